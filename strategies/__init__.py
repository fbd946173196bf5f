"""What happens on the server: clusterings, aggregations, and the strategies made of them."""

from strategies.aggregation import Aggregation, ClusterMean, GraphMean, LpsGps
from strategies.base import ClusteredStrategy, RoundReport
from strategies.baselines import Local, Optimum, Random, Single
from strategies.cfl import Cfl, RecursiveBipartition
from strategies.clustering import (
    Clustering,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
)
from strategies.conversation import Conversation
from strategies.fedhc import FedHC, UpdateClustering
from strategies.fedsem import FedSem, ModelClustering
from strategies.flt import Flt, SignatureClustering
from strategies.ifca import Ifca, IfcaPfl, LossClustering
from strategies.mt_hfl import MtHfl
from strategies.pca_km_hc import LinearSignatureClustering, PcaKmHc
from strategies.rcc_pfl import RccPfl
from strategies.rounds import Clusters, Round, Update
from strategies.spectral import SpectralClustering

__all__ = [
    "Aggregation",
    "Cfl",
    "ClusterMean",
    "ClusteredStrategy",
    "Clustering",
    "Clusters",
    "Conversation",
    "FedHC",
    "FedSem",
    "Flt",
    "GivenClusters",
    "GraphMean",
    "Ifca",
    "IfcaPfl",
    "LinearSignatureClustering",
    "Local",
    "LossClustering",
    "LpsGps",
    "ModelClustering",
    "MtHfl",
    "Optimum",
    "OwnCluster",
    "PcaKmHc",
    "Random",
    "RandomClusters",
    "RccPfl",
    "RecursiveBipartition",
    "Round",
    "RoundReport",
    "SignatureClustering",
    "Single",
    "SingleCluster",
    "SpectralClustering",
    "Update",
    "UpdateClustering",
]
