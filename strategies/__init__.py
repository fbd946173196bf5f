"""What happens on the server: clusterings, aggregations, objectives, and strategies of them."""

from strategies.aggregation import Aggregation, ClusterMean, GraphMean
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
from strategies.cfl import RecursiveBipartition
from strategies.clustering import (
    Clustering,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
)
from strategies.conversation import Conversation
from strategies.fedhc import UpdateClustering
from strategies.fedsem import ModelClustering
from strategies.first_update import FirstDirectionClustering, FirstUpdateClustering
from strategies.flt import SignatureClustering
from strategies.ifca import LossClustering
from strategies.mt_hfl import LpsGps
from strategies.pca_km_hc import LinearSignatureClustering
from strategies.principal_angle import PrincipalAngleClustering
from strategies.robust import (
    ClippedMean,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    TrimmedMean,
)
from strategies.roster import Refusal, Roster
from strategies.rounds import Clusters, Round, Update
from strategies.spectral import SpectralClustering
from strategies.training import RoundReport, Training

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
