"""Clients are grouped once, by how round 1 moves their last layer's bias."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.options import COUNT, option
from strategies.clusterings.agglomeration import canonical_labels
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round, Update


@dataclass
class BiasClustering(Clustering):
    """k-means on the direction in which round 1 moves the last bias; then it stays."""

    name: ClassVar[str] = "bias"
    num_clusters: int
    num_starts: int = option(10, COUNT, "draws from which k-means starts; the best counts")
    seed: int = 0

    def find(self, conversation: Conversation) -> Clusters:
        """Put all clients together until they have trained."""
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Group the clients of round 1."""
        if state.number > 1:
            return state.clusters
        from sklearn.cluster import KMeans  # noqa: PLC0415 - it takes a second

        moves = np.stack([self._direction(update) for update in state.updates])
        kmeans = KMeans(self.num_clusters, n_init=self.num_starts, random_state=self.seed)
        labels = canonical_labels(kmeans.fit_predict(moves))
        return Clusters({u.client: int(c) for u, c in zip(state.updates, labels, strict=True)})

    def _direction(self, update: Update) -> NDArray[np.float64]:
        bias = list(update.arrays)[-1]
        before, after = (
            np.asarray(model[bias], np.float64) for model in (update.received, update.arrays)
        )
        return (after - before) / max(float(np.linalg.norm(after - before)), 1e-12)
