"""What happens on the server: clusterings, aggregations, objectives, and strategies of them."""

from strategies.aggregations.aggregation import Aggregation, ClusterMean, GraphMean
from strategies.aggregations.lps_gps import LpsGps
from strategies.aggregations.robust import (
    ClippedMean,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from strategies.base import ClusteredStrategy
from strategies.catalogue import (
    Cfl,
    Ditto,
    FedBN,
    FedClust,
    FedHC,
    FedPer,
    FedProx,
    FedRep,
    FedSem,
    FlexCfl,
    Flt,
    Ifca,
    IfcaPfl,
    Local,
    MtHfl,
    Optimum,
    Pacfl,
    PcaKmHc,
    Random,
    RccPfl,
    Single,
)
from strategies.clusterings.cfl import RecursiveBipartition
from strategies.clusterings.clustering import (
    Clustering,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
)
from strategies.clusterings.fedhc import UpdateClustering
from strategies.clusterings.fedsem import ModelClustering
from strategies.clusterings.first_update import FirstDirectionClustering, FirstUpdateClustering
from strategies.clusterings.flt import SignatureClustering
from strategies.clusterings.ifca import LossClustering
from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.principal_angle import PrincipalAngleClustering
from strategies.clusterings.spectral import SpectralClustering
from strategies.engine.conversation import Conversation
from strategies.engine.roster import Refusal, Roster
from strategies.engine.rounds import Clusters, Round, Update
from strategies.engine.training import RoundReport, Training

__all__ = [
    "Aggregation",
    "Cfl",
    "ClippedMean",
    "ClusterMean",
    "ClusteredStrategy",
    "Clustering",
    "Clusters",
    "Conversation",
    "Ditto",
    "FedBN",
    "FedClust",
    "FedHC",
    "FedPer",
    "FedProx",
    "FedRep",
    "FedSem",
    "FirstDirectionClustering",
    "FirstUpdateClustering",
    "FlexCfl",
    "Flt",
    "GeometricMedian",
    "GivenClusters",
    "GraphMean",
    "Ifca",
    "IfcaPfl",
    "Krum",
    "LinearSignatureClustering",
    "Local",
    "LossClustering",
    "LpsGps",
    "Median",
    "ModelClustering",
    "MtHfl",
    "MultiKrum",
    "Optimum",
    "OwnCluster",
    "Pacfl",
    "PcaKmHc",
    "PrincipalAngleClustering",
    "Random",
    "RandomClusters",
    "RccPfl",
    "RecursiveBipartition",
    "Refusal",
    "Roster",
    "Round",
    "RoundReport",
    "SignatureClustering",
    "Single",
    "SingleCluster",
    "SpectralClustering",
    "Training",
    "TrimmedMean",
    "Update",
    "UpdateClustering",
]
