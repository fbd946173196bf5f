"""What happens on the server: clusterings, aggregations, and strategies of them.

`make_strategy("rcc-pfl", num_clusters=3)` makes a strategy of the catalogue.
"""

from fl_core.objectives.objective import LocalObjective, LocalTraining
from strategies.aggregations.aggregation import Aggregation, ClusterMean, GraphMean
from strategies.aggregations.lps_gps import LpsGps
from strategies.aggregations.robust import (
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from strategies.catalogue import make_strategy
from strategies.clusterings.cfl import RecursiveBipartition, StableBipartition
from strategies.clusterings.clustering import (
    Clustering,
    ClusterPerClient,
    GivenClusters,
    RandomClusters,
    SingleCluster,
)
from strategies.clusterings.fedhc import UpdateClustering
from strategies.clusterings.fedsem import AllModelsClustering, ModelClustering
from strategies.clusterings.first_update import FirstDirectionClustering, FirstUpdateClustering
from strategies.clusterings.flt import SignatureClustering
from strategies.clusterings.ifca import LossClustering
from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.principal_angle import PrincipalAngleClustering
from strategies.clusterings.spectral import SpectralClustering
from strategies.rounds.client_registry import ClientRegistry, Refusal
from strategies.rounds.conversation import Conversation
from strategies.rounds.failures import Failure
from strategies.rounds.round_state import Clusters, Round, Update
from strategies.rounds.training import RoundReport, Training
from strategies.strategy import ClusteredStrategy

__all__ = [
    "Aggregation",
    "AllModelsClustering",
    "ClientRegistry",
    "ClusterMean",
    "ClusterPerClient",
    "ClusteredStrategy",
    "Clustering",
    "Clusters",
    "Conversation",
    "Failure",
    "FirstDirectionClustering",
    "FirstUpdateClustering",
    "GivenClusters",
    "GraphMean",
    "Krum",
    "LinearSignatureClustering",
    "LocalObjective",
    "LocalTraining",
    "LossClustering",
    "LpsGps",
    "Median",
    "ModelClustering",
    "MultiKrum",
    "PrincipalAngleClustering",
    "RandomClusters",
    "RecursiveBipartition",
    "Refusal",
    "Round",
    "RoundReport",
    "SignatureClustering",
    "SingleCluster",
    "SpectralClustering",
    "StableBipartition",
    "Training",
    "TrimmedMean",
    "Update",
    "UpdateClustering",
    "make_strategy",
]
