"""A user-defined clustering: clients that move the last layer in one direction train together."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from strategies.clusterings.agglomeration import canonical_labels
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round


@dataclass
class LastLayer(Clustering):
    """Average linkage on the cosine between last layers' first updates; then it stays."""

    exact_number: ClassVar[bool] = True
    num_clusters: int

    def find(self, conversation: Conversation) -> Clusters:
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        if state.number > 1:
            return state.clusters
        last = list(state.updates[0].arrays)[-2]  # the weights; its bias comes after them
        moves = np.stack([(u.arrays[last] - u.received[last]).ravel() for u in state.updates])
        merges = linkage(moves.astype(np.float64), "average", "cosine")
        labels = canonical_labels(fcluster(merges, self.num_clusters, "maxclust"))
        return Clusters({u.client: int(c) for u, c in zip(state.updates, labels, strict=True)})
