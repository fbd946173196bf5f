from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.cluster import KMeans

from strategies.clusterings.clustering import Clustering
from strategies.clusterings.grouping import canonical_labels
from strategies.engine.conversation import Conversation
from strategies.engine.rounds import Clusters, Round, Update


@dataclass
class BiasClustering(Clustering):
    """k-means on the direction in which round 1 moves the last bias; then it stays."""

    name: ClassVar[str] = "bias"
    num_clusters: int
    seed: int = 0

    def find(self, conversation: Conversation) -> Clusters:
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        if state.number > 1:
            return state.clusters
        moves = np.stack([self._direction(update) for update in state.updates])
        kmeans = KMeans(self.num_clusters, n_init=10, random_state=self.seed)
        labels = canonical_labels(kmeans.fit_predict(moves))
        return Clusters({u.client: int(c) for u, c in zip(state.updates, labels, strict=True)})

    def _direction(self, update: Update) -> np.ndarray:
        bias = list(update.arrays)[-1]
        moved = update.arrays[bias].astype(np.float64) - update.received[bias]
        return moved / max(float(np.linalg.norm(moved)), 1e-12)
