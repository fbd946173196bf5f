"""MT-HFL: spectral clusters, and a hierarchy of servers that shares only some layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from strategies.aggregation import LpsGps
from strategies.base import ClusteredStrategy, Options
from strategies.grouping import NumClusters
from strategies.spectral import SpectralClustering


class MtHfl(ClusteredStrategy):
    """MT-HFL (Ali and Arafa): each cluster has a local server, and the common layers a global one.

    Parameters
    ----------
    num_clusters : int, "elbow" or "silhouette"
        T, the number of tasks, or how it is chosen from the dendrogram.
    common_layers : sequence of str
        The modules that all clusters share: the paper takes a CNN's convolutions, an MLP's first
        layer.
    local_rounds : int
        Rounds of FedAvg inside the clusters for each exchange with the global server.
    num_eigenvectors, linkage
        As in `RccPfl`.
    weighted_mean : bool
        Weight a cluster's clients by their number of samples, as FedAvg does.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(
        self,
        num_clusters: NumClusters = "elbow",
        *,
        common_layers: Sequence[str],
        local_rounds: int = 1,
        num_eigenvectors: int = 20,
        linkage: str = "average",
        weighted_mean: bool = True,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            SpectralClustering(num_clusters, num_eigenvectors, linkage),
            LpsGps(tuple(common_layers), local_rounds, weighted_mean),
            **options,
        )
