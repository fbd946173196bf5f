"""What clusterings by one query share: compare answers, agglomerate, place newcomers."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    Grouping,
    NumClusters,
    agglomerate_distances,
    closest_clusters,
)
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.spectral import SpectralClustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison
from strategies.rounds.state import state_field

Answers = Mapping[int, NDArray[np.float32]]
Float64 = NDArray[np.float64]


@dataclass
class OneShotClustering(Clustering):
    """Clients answer one query before training, and are grouped by the distances of the answers.

    A newcomer joins the cluster that is nearest on average; earlier clients stay where they are.
    """

    exact_number: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    similarity_name: ClassVar[str] = "closeness 1/(1 + distance)"
    num_clusters: NumClusters = "elbow"
    linkage: str = SpectralClustering.linkage
    _answers: dict[int, NDArray[np.float32]] = state_field(dict)

    @abstractmethod
    def ask(self, conversation: Conversation, clients: Sequence[int] | None) -> Answers:
        """Return the answers of all clients, or of newcomers, by client index, ascending."""

    @abstractmethod
    def distances(self, some: Answers, others: Answers) -> Float64:
        """Return the distances of n clients to K others, or to each other, shape (n, K)."""

    def similarity(self, distances: Float64) -> Float64:
        """Return distances as numbers in [0, 1]: 1 for none."""
        closeness: Float64 = 1 / (1 + distances)
        return closeness

    def agglomerate(self, distances: Float64) -> Grouping:
        """Return the grouping of clients by their distances."""
        return agglomerate_distances(distances, self.num_clusters, self.linkage)

    def join(self, fresh: Answers, distances: Float64, members: Sequence[int]) -> NDArray[np.int64]:
        """Return the cluster of each newcomer; `members` are the clusters of earlier clients."""
        return closest_clusters(-distances, members)

    def find(self, conversation: Conversation) -> Clusters:
        """Ask all clients, then agglomerate."""
        self._answers = answers = dict(self.ask(conversation, None))
        distances = self.distances(answers, answers)
        grouping = self.agglomerate(distances)
        similarity, clients = self.similarity(distances), tuple(answers)
        comparison = Comparison(clients, similarity, grouping.merges, self.similarity_name)
        return Clusters.of_labels(clients, grouping.labels, comparison=comparison)

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each in a cluster."""
        known, fresh = self._answers, self.ask(conversation, newcomers)
        if not fresh:
            return clusters
        distances = self.distances(fresh, known)
        labels = self.join(fresh, distances, [clusters.of_client[client] for client in known])
        self._answers = {**known, **fresh}
        compared = np.isin([*known], clusters.compared)
        late = self.similarity(distances[:, compared])
        return clusters.with_clients(
            dict(zip(fresh, labels.tolist(), strict=True)), dict(zip(fresh, late, strict=True))
        )
