"""Values of a round: which client is in which cluster, the models, and the clients' updates.

Clusterings and aggregations are handed these and know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays


@dataclass(frozen=True, eq=False)
class Comparison:
    """How similar a clustering found clients; in `Clusters.comparison`, it is drawn."""

    clients: tuple[int, ...]  # those compared, in the order of the rows
    similarity: NDArray[np.float64]  # shape (n, n), higher is nearer
    # The dendrogram, as scipy's `linkage` returns it, shape (n − 1, 4); by default, there is none
    merges: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 4)))
    measure: str = "relevance"  # what `similarity` is
    formula: str = ""  # of a relevance: `relevance` in docs/options.md
    late: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)  # of newcomers, or NaN
    round: int = 0  # the round of the data compared; 0: before training


@dataclass(frozen=True, eq=False)
class Resamples:
    """How clients were grouped on resampled data."""

    labels: NDArray[np.int64]  # of `Clusters.of_client`'s clients in B groupings, shape (B, K)
    drawn: str  # what was resampled
    numbers: tuple[int, ...] = ()  # the number of clusters chosen in each; empty: unknown


@dataclass(frozen=True, eq=False)
class Clusters:
    """Which client is in which cluster."""

    of_client: dict[int, int]  # from client index, ascending, to cluster
    num_clusters: int | None = None  # needed where clusters may be empty (IFCA)
    neighbours: Mapping[int, frozenset[int]] | None = None  # in a graph (FLT), itself included
    models: Sequence[NDArrays] = ()  # one for each cluster, where the clustering makes them
    unheld: Mapping[int, NDArrays] = field(default_factory=dict)  # models of empty or new clusters
    outliers: Mapping[int, str] = field(default_factory=dict)  # why clients are outliers
    comparison: Comparison | None = None
    resamples: Resamples | None = None
    # Why a client's data say little of which others are similar; None: unknown
    uninformative: Mapping[int, str] | None = None

    @classmethod
    def of_labels(cls, clients: Iterable[int], labels: NDArray[np.int64], **more: Any) -> Clusters:
        """Return clusters by each client's label; `more` are other fields."""
        return cls(dict(zip(clients, labels.tolist(), strict=True)), **more)

    @property
    def compared(self) -> tuple[int, ...]:
        """Return the clients that were compared with each other, or else all."""
        return tuple(self.of_client) if self.comparison is None else self.comparison.clients

    @property
    def count(self) -> int:
        """Return the number of clusters, empty ones included."""
        return self.num_clusters or max(self.of_client.values()) + 1

    def members(self, cluster: int) -> list[int]:
        """Return the clients of `cluster`, ascending."""
        return list(self._members.get(cluster, ()))

    @cached_property
    def _members(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for client, cluster in self.of_client.items():
            found.setdefault(cluster, []).append(client)
        return found

    @cached_property
    def _together(self) -> dict[int, frozenset[int]]:
        return {cluster: frozenset(clients) for cluster, clients in self._members.items()}

    def neighbours_of(self, client: int) -> frozenset[int]:
        """Return the clients that `client` averages with, itself included."""
        if self.neighbours is not None:
            return self.neighbours[client]
        return self._together[self.of_client[client]]

    def unplaced(self, clients: Sequence[int]) -> list[int]:
        """Return those of `clients` that have no cluster."""
        return [client for client in clients if client not in self.of_client]

    def with_clients(
        self, placed: Mapping[int, int], late: Mapping[int, NDArray[np.float64]] | None = None
    ) -> Clusters:
        """Return clusters with further clients, `placed` from client to cluster.

        In a graph, a newcomer and its cluster become neighbours; a client that moves loses its own.
        `late` is as in `Comparison`, where clients that were compared have a row already.
        """
        of_client = dict(sorted({**self.of_client, **placed}.items()))
        neighbours = None
        if self.neighbours is not None:
            moved = {
                c: cluster for c, cluster in placed.items() if cluster != self.of_client.get(c)
            }
            linked = {client: set(near - moved.keys()) for client, near in self.neighbours.items()}
            for newcomer, cluster in moved.items():
                same = {c for c, other in of_client.items() if other == cluster}
                linked[newcomer] = same
                for client in same - {newcomer}:
                    linked.setdefault(client, {client}).add(newcomer)
            neighbours = {client: frozenset(near) for client, near in linked.items()}
        comparison = self.comparison
        if comparison is not None and late:
            rows = {client: row for client, row in late.items() if client not in self.compared}
            comparison = replace(comparison, late={**comparison.late, **rows})
        count = self.num_clusters and max(self.num_clusters, *(c + 1 for c in of_client.values()))
        return replace(
            self,
            of_client=of_client,
            neighbours=neighbours,
            num_clusters=count,
            comparison=comparison,
        )

    def with_all_clients(self, clients: Sequence[int]) -> Clusters:
        """Return clusters in which those of `clients` that have no cluster join the largest one."""
        missing = self.unplaced(clients)
        if not missing:
            return self
        sizes = np.bincount(list(self.of_client.values()))
        return self.with_clients(dict.fromkeys(missing, int(sizes.argmax())))


@dataclass(frozen=True, eq=False)
class Update:
    """What one client returned after local training."""

    client: int
    cluster: int
    arrays: NDArrays
    num_examples: float  # number of samples, n_i
    received: NDArrays = field(default_factory=dict)  # the model that the client was sent
    shift: float = 0.0  # FLT's δ: how far the client's data have moved since its last signature
    loss: float | None = None  # the mean training loss
    share: float = 1.0  # of the cluster at this client, which has an update for each (FedEM)


@dataclass(frozen=True, eq=False)
class Round:
    """The state of training, as clusterings and aggregations see it."""

    number: int  # from 1; 0 before training
    clusters: Clusters
    # One per cluster; if `per_client`, one per client, in the order of `clusters.of_client`
    models: Sequence[NDArrays]
    updates: Sequence[Update] = ()  # by client, ascending; empty before the round's training
    num_examples: Mapping[int, float] = field(default_factory=dict)  # of those that have trained
    participants: tuple[int, ...] = ()  # the clients that train in this round
    per_client: bool = False  # whether the aggregation gives every client a separate model
    initial: NDArrays = field(default_factory=dict)  # the model that the training started from
