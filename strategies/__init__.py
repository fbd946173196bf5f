"""What happens on the server: clusterings, aggregations, and the strategies made of them."""

from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, RoundReport
from strategies.baselines import Local, Optimum, Random, Single
from strategies.clustering import (
    Clusters,
    GivenClusters,
    OwnCluster,
    RandomClusters,
    SingleCluster,
    SpectralClustering,
)
from strategies.rcc_pfl import RccPfl

__all__ = [
    "ClusterMean",
    "ClusteredStrategy",
    "Clusters",
    "GivenClusters",
    "Local",
    "Optimum",
    "OwnCluster",
    "Random",
    "RandomClusters",
    "RccPfl",
    "RoundReport",
    "Single",
    "SingleCluster",
    "SpectralClustering",
]
