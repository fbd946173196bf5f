"""RCC-PFL: cluster once by data similarity, then FedAvg inside each cluster (Algorithm 1)."""

from __future__ import annotations

from typing import Unpack

from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, Options
from strategies.grouping import NumClusters
from strategies.spectral import SpectralClustering


class RccPfl(ClusteredStrategy):
    """RCC-PFL (Ali and Arafa): spectral clustering before round 1, the plain mean per cluster.

    Parameters
    ----------
    num_clusters : int, "elbow" or "silhouette"
        M, or how it is chosen from the dendrogram.
    num_eigenvectors : int
        k, the leading eigenvectors that each client uploads.
    linkage : str
        Any of scipy's linkage methods.
    weighted_mean : bool
        Weight clients by their number of samples.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(
        self,
        num_clusters: NumClusters = "elbow",
        *,
        num_eigenvectors: int = 20,
        linkage: str = "average",
        weighted_mean: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            SpectralClustering(num_clusters, num_eigenvectors, linkage),
            ClusterMean(weighted_mean),
            **options,
        )
