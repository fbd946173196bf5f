"""FedHC: in every round, clients whose updates point the same way are averaged together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, Options
from strategies.clustering import Clustering
from strategies.conversation import Conversation
from strategies.grouping import NumClusters, agglomerate_distances
from strategies.rounds import Clusters, Round
from strategies.updates import cosine_similarities, update_vector


@dataclass
class UpdateClustering(Clustering):
    """Ward's method on the directions of the clients' updates (FedHC, section 3).

    The paper's distance is 1 − cos(g_i, g_j), and ‖u − v‖² = 2(1 − cos) for unit vectors, on which
    Ward's method is exact. A client that does not take part in a round keeps its last direction;
    one that never has is in the largest cluster.

    Attributes
    ----------
    num_clusters : int, "elbow" or "silhouette"
        A number, at most as many as there are directions; or how it is chosen in every round.
    """

    num_clusters: NumClusters = "silhouette"
    _vectors: dict[int, NDArray[np.float64]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster of all: nobody has trained."""
        self._vectors = {}
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Group the directions of this round's updates and the last ones of other clients."""
        self._vectors |= {update.client: update_vector(update) for update in state.updates}
        clients = sorted(self._vectors)
        similarity = cosine_similarities(np.stack([self._vectors[client] for client in clients]))
        number = self.num_clusters
        grouping = agglomerate_distances(
            np.sqrt(2 * (1 - similarity)),
            min(number, len(clients)) if isinstance(number, int) else number,
            "ward",
        )
        found = Clusters(
            dict(zip(clients, grouping.labels.tolist(), strict=True)),
            similarity=similarity,
            merges=grouping.merges,
            compared=tuple(clients),
        )
        return found.with_everybody(list(state.clusters.of_client))


class FedHC(ClusteredStrategy):
    """FedHC: Ward's clusters of update directions in every round, means weighted by samples.

    Parameters
    ----------
    num_clusters : int, "elbow" or "silhouette"
        A number, or how it is chosen in every round.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(
        self, num_clusters: NumClusters = "silhouette", **options: Unpack[Options]
    ) -> None:
        super().__init__(UpdateClustering(num_clusters), ClusterMean(weighted=True), **options)
