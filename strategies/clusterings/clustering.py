"""Clusterings: each finds which client belongs to which cluster, before or during training.

The baselines of RCC-PFL (section V) are here; the papers' clusterings are in separate files.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from flwr.app import ConfigRecordValues
from numpy.typing import NDArray

from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Resamples, Round
from strategies.rounds.state import Stateful, state_field


class Clustering(Stateful, ABC):
    """A way to group clients.

    Only `find` must be written. A clustering that groups in every round does so before the clients
    train, by asking them (`before_training`), or afterwards, by what they sent (`after_training`).
    """

    name: ClassVar[str] = ""  # by which a configuration pairs it with an aggregation
    needs_packages: ClassVar[tuple[str, ...]] = ()  # beside the project's requirements
    # What clients reveal of their data in order to be grouped: "eigenvectors", "centroids", …;
    # "updates": no more than what they send when they train; "nothing": not even that is used.
    shares: ClassVar[str] = "updates"
    compares_raw: ClassVar[bool] = False  # what is shared comes from samples, not from features
    exact_number: ClassVar[bool] = False  # whether it makes exactly as many clusters as requested
    # Words for its field `num_clusters`, which has no default if it cannot choose the number.
    count_rules: ClassVar[tuple[str, ...]] = ()
    needs_tasks: ClassVar[bool] = False  # whether it needs the clients' true tasks, of a simulation
    # When clusters change, True: a cluster retains its model, also for clients that join it (IFCA);
    # False: each new cluster starts from the mean of its clients' models (FedHC).
    retains_models: ClassVar[bool] = False
    shows_groups: ClassVar[bool] = False  # whether results have grouping.json and its pictures
    # Whether clients are sent the models of all clusters, and train and test them all (FedEM)
    is_soft: ClassVar[bool] = False
    trains_together: ClassVar[bool] = True  # whether clients train with others at all
    # Whether clients must have trained to be grouped: until then they train in every round.
    knows_by_training: ClassVar[bool] = False
    note: str = ""  # a sentence for the table of results

    def needs_all_clients(self, number: int) -> bool:
        """Return whether all clients train in a round, not only those that are drawn."""
        return False

    @abstractmethod
    def find(self, conversation: Conversation) -> Clusters:
        """Return the clusters of `conversation.nodes` before round 1, asking clients as needed.

        A ValueError says that clusters are more than clients, a RuntimeError that no client
        answers.
        """

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Return the clusters in which the round's participants train."""
        return state.clusters

    def after_training(self, state: Round) -> Clusters:
        """Return the clusters in which the participants' updates are combined."""
        return state.clusters

    def before_test(self, state: Round, conversation: Conversation) -> Clusters:
        """Return the clusters in which clients are tested; of the last round, the result's."""
        return state.clusters

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Return clusters that include the newcomers: by default, in the largest one."""
        return clusters.with_all_clients(newcomers)

    def shared_eigenvectors(self) -> Mapping[int, NDArray[np.float32]]:
        """Return the eigenvectors that clients shared, by which newcomers may be placed: none."""
        return {}

    def with_resamples(
        self, clusters: Clusters, regroup: Callable[[Any], Resamples | None]
    ) -> Clusters:
        """Return clusters with how they would be on data that `regroup` resamples and groups."""
        return clusters

    def training_entries(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return further entries of the config record of a client's training message."""
        return {}


class GroupedByTraining(Clustering):
    """A clustering of clients that have trained: until then, they share a cluster."""

    knows_by_training: ClassVar[bool] = True

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with all clients: none has trained."""
        return Clusters(dict.fromkeys(conversation.nodes, 0))


@dataclass
class GivenClusters(Clustering):
    """Clusters known beforehand (RCC-PFL's optimum clustering)."""

    name: ClassVar[str] = "tasks"
    shares: ClassVar[str] = "nothing"
    needs_tasks: ClassVar[bool] = True
    retains_models: ClassVar[bool] = True
    labels: Mapping[int, int]  # from client index to any cluster number
    later: Mapping[int, Mapping[int, int]] = field(default_factory=dict)  # from a round on
    _now: Mapping[int, int] = state_field(dict)
    _names: dict[int, int] = state_field(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Look every client up; a ValueError says that one has no cluster."""
        self._now = self.labels
        return self._look_up(list(conversation.nodes))

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Look all clients up again in a round in which labels change."""
        if state.number not in self.later:
            return state.clusters
        self._now = self.later[state.number]
        return self._look_up(list(state.clusters.of_client))

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Look newcomers up, and exclude those without a cluster."""
        known = [client for client in newcomers if client in self._now]
        for client in set(newcomers) - set(known):
            conversation.registry.leave_out(client, "clustering", "no cluster is given for it")
        return self._look_up(sorted({*clusters.of_client, *known}))

    def _look_up(self, clients: Sequence[int]) -> Clusters:
        unknown = [client for client in clients if client not in self._now]
        if unknown:
            raise ValueError(
                f"no cluster is given for client {unknown[0]}: give one for each that takes part."
            )
        names = self._names
        found = {c: names.setdefault(self._now[c], len(names)) for c in clients}
        return Clusters(found, len(names))


@dataclass
class RandomClusters(GivenClusters):
    """Clusters of given sizes, filled at random."""

    name: ClassVar[str] = "random"
    labels: Mapping[int, int] = field(init=False)
    later: Mapping[int, Mapping[int, int]] = field(init=False, default_factory=dict)
    sizes: Sequence[int]  # type: ignore[misc] # the fields above are no arguments
    seed: int  # type: ignore[misc]

    def __post_init__(self) -> None:
        """Draw each client's cluster, by its index."""
        places = np.repeat(np.arange(len(self.sizes)), self.sizes)
        drawn = np.random.default_rng([self.seed, 0xD1CE]).permutation(places)
        self.labels = dict(enumerate(drawn.tolist()))


@dataclass(frozen=True)
class SingleCluster(Clustering):
    """All clients together: one global model."""

    name: ClassVar[str] = "single"
    shares: ClassVar[str] = "nothing"

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with all clients."""
        return Clusters(dict.fromkeys(conversation.nodes, 0))


@dataclass(frozen=True)
class ClusterPerClient(Clustering):
    """Each client alone: no federation."""

    name: ClassVar[str] = "own"
    shares: ClassVar[str] = "nothing"
    trains_together: ClassVar[bool] = False

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster for each client."""
        return Clusters({client: i for i, client in enumerate(conversation.nodes)})

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Give each newcomer a separate cluster."""
        fresh = clusters.unplaced(newcomers)
        return clusters.with_clients({c: n for n, c in enumerate(fresh, clusters.count)})
