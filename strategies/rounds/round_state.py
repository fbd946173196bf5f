"""What a strategy knows in a round: who trains with whom, which models there are, what came back.

Values only: clusterings and aggregations are handed these and know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays


@dataclass(frozen=True, eq=False)
class Comparison:
    """How alike a clustering found clients, for pictures and reports.

    Attributes
    ----------
    clients : tuple of n int
        Those compared with each other, in the order of the rows.
    similarity : NDArray[np.float64], shape (n, n)
    merges : NDArray[np.float64], shape (n − 1, 4)
        The dendrogram, as scipy writes it.
    measure : str
        What `similarity` is, in words.
    formula : str
        By which it was found, if it is a relevance: `relevance` in docs/options.md; or empty.
    late : mapping of NDArray[np.float64], shape (n,)
        How near each client that came later is to those compared; NaN where it is not known.
    round : int
        By whose data they were compared; 0: those of the pre-round.
    """

    clients: tuple[int, ...]
    similarity: NDArray[np.float64]
    merges: NDArray[np.float64]
    measure: str = "relevance"
    formula: str = ""
    late: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True, eq=False)
class Resamples:
    """How clients were grouped on data drawn again.

    Attributes
    ----------
    labels : NDArray[np.int64], shape (B, K)
        The clusters of `Clusters.of_client`'s clients in each of B groupings.
    drawn : str
        What was drawn again, in words.
    numbers : tuple of B int
        The number of clusters that the data would have chosen in each; empty: unknown.
    """

    labels: NDArray[np.int64]
    drawn: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Clusters:
    """Who trains with whom.

    Attributes
    ----------
    of_client : dict of int
        From client index, ascending, to cluster.
    num_clusters : int, optional
        Needed where clusters may be empty (IFCA); otherwise one more than the highest cluster.
    neighbours : mapping of frozenset, optional
        From client to the clients whose models it averages, itself included, where the clustering
        finds a graph (FLT); otherwise the clients of the same cluster.
    models : sequence of dicts, optional
        One for each cluster, with which they go on, where the clustering makes models of its own.
    unheld : mapping of dicts, optional
        The models of clusters that were empty, where clients have the models and nobody has those.
    odd : mapping of str
        From client to what was found odd about it, where the clustering looks for that.
    comparison : Comparison, optional
        Where the clustering compares clients.
    resamples : Resamples, optional
        Where data were drawn again.
    uninformative : mapping of str, optional
        From client to why what it has says little of whom it is like, where somebody has looked.
    """

    of_client: dict[int, int]
    num_clusters: int | None = None
    neighbours: Mapping[int, frozenset[int]] | None = None
    models: Sequence[NDArrays] = ()
    unheld: Mapping[int, NDArrays] = field(default_factory=dict)
    odd: Mapping[int, str] = field(default_factory=dict)
    comparison: Comparison | None = None
    resamples: Resamples | None = None
    uninformative: Mapping[int, str] | None = None

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
        """Return the clients of each inhabited cluster: all are looked at once, not for each."""
        found: dict[int, list[int]] = {}
        for client, own in self.of_client.items():
            found.setdefault(own, []).append(client)
        return found

    @cached_property
    def _together(self) -> dict[int, frozenset[int]]:
        return {cluster: frozenset(own) for cluster, own in self._members.items()}

    def neighbours_of(self, client: int) -> frozenset[int]:
        """Return the clients whose models `client` averages, itself included."""
        if self.neighbours is not None:
            return self.neighbours[client]
        return self._together[self.of_client[client]]

    def unplaced(self, clients: Sequence[int]) -> list[int]:
        """Return those of `clients` that have no cluster: who comes back may have one."""
        return [client for client in clients if client not in self.of_client]

    def with_clients(
        self, placed: Mapping[int, int], late: Mapping[int, NDArray[np.float64]] | None = None
    ) -> Clusters:
        """Return clusters in which further clients, from client to cluster, have a place.

        In a graph, a newcomer and the clients of its cluster become neighbours; who had a place
        before leaves the neighbours that it had there. `late` is as in `Comparison`; who has been
        away and was compared before is not among them.
        """
        of_client = dict(sorted({**self.of_client, **placed}.items()))
        neighbours = None
        if self.neighbours is not None:
            moved = {c: own for c, own in placed.items() if own != self.of_client.get(c)}
            linked = {client: set(own - moved.keys()) for client, own in self.neighbours.items()}
            for newcomer, cluster in moved.items():
                same = {c for c, own in of_client.items() if own == cluster}
                linked[newcomer] = same
                for client in same - {newcomer}:
                    linked.setdefault(client, {client}).add(newcomer)
            neighbours = {client: frozenset(own) for client, own in linked.items()}
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

    def with_everybody(self, clients: Sequence[int]) -> Clusters:
        """Return clusters in which those of `clients` that have no place join the largest one."""
        missing = self.unplaced(clients)
        if not missing:
            return self
        sizes = np.bincount(list(self.of_client.values()))
        return self.with_clients(dict.fromkeys(missing, int(sizes.argmax())))


@dataclass(frozen=True, eq=False)
class Update:
    """What one client returned after local training.

    Attributes
    ----------
    client, cluster : int
        Who, and of which cluster.
    arrays : dict of arrays
        The trained model.
    num_examples : float
        Number of samples, n_i.
    received : dict of arrays
        The model that the client was sent.
    shift : float
        FLT's δ: how far the client says that its data have moved since its last signature; 0 if it
        does not say.
    loss : float, optional
        The mean training loss, if the client sent one.
    """

    client: int
    cluster: int
    arrays: NDArrays
    num_examples: float
    received: NDArrays = field(default_factory=dict)
    shift: float = 0.0
    loss: float | None = None


@dataclass(frozen=True, eq=False)
class Round:
    """The state of training, as clusterings and aggregations see it.

    Attributes
    ----------
    number : int
        From 1; 0 before training.
    clusters : Clusters
    models : sequence of dicts
        One for each cluster; or, where `per_client`, one for each client, in the order of
        `clusters.of_client`.
    updates : sequence of Update
        By client, ascending; empty before the round's training.
    num_examples : mapping of float
        Number of samples of each client that has trained so far.
    participants : tuple of int
        The clients that train in this round.
    per_client : bool
        Whether the aggregation gives every client a model of its own.
    initial : dict of arrays
        The model that the training started from.
    """

    number: int
    clusters: Clusters
    models: Sequence[NDArrays]
    updates: Sequence[Update] = ()
    num_examples: Mapping[int, float] = field(default_factory=dict)
    participants: tuple[int, ...] = ()
    per_client: bool = False
    initial: NDArrays = field(default_factory=dict)
