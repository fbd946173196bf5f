"""What RCC-PFL is compared with: clusters that are known, random, one, or one for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, Options
from strategies.clustering import GivenClusters, OwnCluster, RandomClusters, SingleCluster


class Optimum(ClusteredStrategy):
    """The true tasks are known: the best that clustering can reach.

    Parameters
    ----------
    tasks : mapping from client index to task
    weighted_mean : bool
        Weight clients by their number of samples.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(
        self,
        tasks: Mapping[int, int],
        *,
        weighted_mean: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(GivenClusters(tasks), ClusterMean(weighted_mean), **options)


class Random(ClusteredStrategy):
    """Random clusters of the true sizes.

    Parameters
    ----------
    sizes : sequence of int
        How many clients each cluster has.
    weighted_mean : bool
        Weight clients by their number of samples.
    **options
        See `ClusteredStrategy`; `seed` deals the clusters, too.
    """

    def __init__(
        self, sizes: Sequence[int], *, weighted_mean: bool = False, **options: Unpack[Options]
    ) -> None:
        clustering = RandomClusters(sizes, options.get("seed", 0))
        super().__init__(clustering, ClusterMean(weighted_mean), **options)


class Single(ClusteredStrategy):
    """One global model: FedAvg.

    Parameters
    ----------
    weighted_mean : bool
        Weight clients by their number of samples.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(self, *, weighted_mean: bool = False, **options: Unpack[Options]) -> None:
        super().__init__(SingleCluster(), ClusterMean(weighted_mean), **options)


class Local(ClusteredStrategy):
    """No federation: every client trains its own model.

    The models still travel, so that all strategies are run and evaluated alike.

    Parameters
    ----------
    **options
        See `ClusteredStrategy`.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__(OwnCluster(), ClusterMean(), **options)
