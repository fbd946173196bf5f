"""FedHC: in every round, clients whose updates point the same way are averaged together.

FedHC, unsigned: "Federated Learning with Hierarchical Clustering for Personalized Model
Aggregation"; the copy that we have names no author, year or address.
C. Briggs, Z. Fan, P. Andras, "Federated learning with hierarchical clustering of local updates to
improve training on non-IID data", IJCNN 2020, https://arxiv.org/abs/2004.11791 (FL+HC).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from fl_core.options import one_of, option
from strategies.clustering import Clustering, learnt
from strategies.conversation import Conversation
from strategies.grouping import NumClusters, agglomerate_distances
from strategies.rounds import Clusters, Round
from strategies.updates import cosine_similarities, update_vector

Distance = Literal["cosine", "euclidean"]


@dataclass
class UpdateClustering(Clustering):
    """Ward's method on the directions of the clients' updates (FedHC, section 3).

    The paper's distance is 1 − cos(g_i, g_j), and ‖u − v‖² = 2(1 − cos) for unit vectors, on which
    Ward's method is exact. A client that does not take part in a round keeps its last direction;
    one that has never taken part is in the largest cluster.

    Attributes
    ----------
    num_clusters : int, "elbow" or "silhouette"
        A number, capped at the number of directions; or how it is chosen in every round.
    distance : {"cosine", "euclidean"}
        What is compared: directions, as in the paper; or the updates themselves, as in the earlier
        FL+HC, which also tells a blown-up update from an honest one.
    """

    name: ClassVar[str] = "update"
    num_clusters: NumClusters = "silhouette"
    distance: Distance = option(
        "cosine",
        one_of(get_args(Distance)),
        "how far apart updates are; `euclidean` also sees how long they are",
        key="update-distance",
    )
    _vectors: dict[int, NDArray[np.float64]] = learnt(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with everybody: nobody has trained."""
        self._vectors = {}
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Group the directions of this round's updates and the other clients' last ones."""
        self._vectors |= {update.client: update_vector(update) for update in state.updates}
        clients = sorted(self._vectors)
        vectors = np.stack([self._vectors[client] for client in clients])
        similarity = cosine_similarities(vectors)
        if self.distance == "euclidean":
            distances = squareform(pdist(vectors))
        else:
            distances = np.sqrt(2 * (1 - similarity))
        number = self.num_clusters
        grouping = agglomerate_distances(
            distances,
            min(number, len(clients)) if isinstance(number, int) else number,
            "ward",
        )
        found = Clusters(
            dict(zip(clients, grouping.labels.tolist(), strict=True)),
            similarity=similarity,
            merges=grouping.merges,
            compared=tuple(clients),
            measure="cosine of updates",
        )
        return found.with_everybody(list(state.clusters.of_client))
