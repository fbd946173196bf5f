"""FedHC: in every round, average clients together that moved in the same direction.

FedHC, unsigned: "Federated Learning with Hierarchical Clustering for Personalized Model
Aggregation"; our copy names no author, year or address.
C. Briggs, Z. Fan, P. Andras, "Federated learning with hierarchical clustering of local updates to
improve training on non-IID data", IJCNN 2020, https://arxiv.org/abs/2004.11791 (FL+HC).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from fl_core.options import one_of, option
from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    Grouping,
    NumClusters,
    agglomerate_distances,
)
from strategies.clusterings.clustering import GroupedByTraining
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import (
    Float64,
    Vector,
    cosine_similarities,
    inner_products,
    model_vector,
)

Reference = Literal["initial", "received"]


@dataclass
class UpdateClustering(GroupedByTraining):
    """Ward's method on how far clients' training moves their models (FedHC, section 3).

    The paper compares "the gradient of the local model", without saying against which model, by 1 −
    cos(g_i, g_j). Since ‖u − v‖² = 2(1 − cos) for unit vectors, Ward's method is exact on these.
    With `initial`, g_i is the movement since the model that all started from, so clients of
    different clusters stay comparable. A client that does not take part has its last movement.
    Those that have never sent an update share a cluster that starts from the initial model.
    """

    name: ClassVar[str] = "update"
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "silhouette"  # a number is limited to that of the clients to group
    reference: Reference = option(
        "initial",
        one_of(get_args(Reference)),
        "measure updates from the model that all clients started from, or from the one just "
        "`received`, with which the tasks are lost after a few rounds",
        key="update-reference",
    )
    _vectors: dict[int, Vector] = state_field(dict)

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Give newcomers a separate cluster until they have trained."""
        fresh = clusters.unplaced(newcomers)
        return clusters.with_clients(dict.fromkeys(fresh, clusters.count))

    def after_training(self, state: Round) -> Clusters:
        """Group the movements of this round's clients and the last ones of the others."""
        for update in state.updates:
            since = state.initial if self.reference == "initial" else update.received
            self._vectors[update.client] = model_vector(since, update.arrays)
        clients = sorted(self._vectors)
        vectors = [self._vectors[client] for client in clients]
        similarity, grouping = agglomerate_directions(vectors, self.num_clusters)
        found = Clusters.of_labels(
            clients,
            grouping.labels,
            comparison=Comparison(
                tuple(clients), similarity, grouping.merges, "cosine of updates", round=state.number
            ),
        )
        unknown = [client for client in state.clusters.of_client if client not in self._vectors]
        return found.with_clients(dict.fromkeys(unknown, found.count))


def agglomerate_directions(
    vectors: Sequence[Vector], num_clusters: NumClusters
) -> tuple[Float64, Grouping]:
    """Return vectors' cosines, shape (n, n), and Ward's grouping of their unit vectors."""
    similarity = cosine_similarities(inner_products(vectors))
    number = num_clusters if isinstance(num_clusters, str) else min(num_clusters, len(vectors))
    return similarity, agglomerate_distances(np.sqrt(2 * (1 - similarity)), number, "ward")
