"""RCC-PFL: cluster once by data similarity, then FedAvg inside each cluster (Algorithm 1)."""

from __future__ import annotations

from typing import Unpack

from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, Options
from strategies.clustering import SpectralClustering


class RccPfl(ClusteredStrategy):
    """RCC-PFL (Ali and Arafa): spectral clustering before round 1, the plain mean per cluster.

    Parameters
    ----------
    num_clusters : int or None
        M; None: chosen at the widest gap of the dendrogram.
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
        num_clusters: int | None = None,
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
