"""FedClust and FedGroup: group clients once, by how their first training moved the model.

M. S. Islam, S. Javaherian, F. Xu, X. Yuan, L. Chen, N.-F. Tzeng, "FedClust: Tackling Data
Heterogeneity in Federated Learning through Weight-Driven Client Clustering", 2024,
https://arxiv.org/abs/2407.07124.
M. Duan, D. Liu, X. Ji, R. Liu, L. Liang, X. Chen, Y. Tan, "FedGroup: Efficient Clustered Federated
Learning via Decomposed Data-Driven Measure", 2020, https://arxiv.org/abs/2010.06870.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fl_core.messages.protocol import NDArrays
from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    NumClusters,
    agglomerate_distances,
    closest_clusters,
    k_means,
)
from strategies.clusterings.clustering import GroupedByTraining
from strategies.clusterings.spectral import SpectralClustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.means import cluster_models, mean_held_models
from strategies.rounds.round_state import Clusters, Comparison, Round, Update
from strategies.rounds.state import state_field
from strategies.rounds.updates import Vector, coordinates, inner_products, last_layer, model_vector

Float64 = NDArray[np.float64]


@dataclass
class OnceByTraining(GroupedByTraining):
    """What both papers share: all clients train one model, are grouped by it, and then stay.

    The papers' training before round 1 is round 1 here. A client that did not train in the round of
    the grouping waits in an extra cluster with the model that this round started from. It trains
    that, joins a cluster before the next test or round, and continues with that cluster's model;
    what it trained alone is in no cluster's mean.
    """

    retains_models: ClassVar[bool] = True
    # Each client's movement from `_received`, shape (p,): in the grouping's round, or later
    _moves: dict[int, Vector] = state_field(dict)
    _received: NDArrays = state_field(dict)  # the model that all were sent in the grouping's round
    _found: int = state_field(int)  # number of clusters; waiting clients are in the next one
    _grouped: list[int] = state_field(list)  # the clients of the clustering, which others join

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Let newcomers wait until they have trained."""
        fresh = clusters.unplaced(newcomers)
        return self._with_waiting(clusters.with_clients(dict.fromkeys(fresh, self._found)))

    def _with_waiting(self, clusters: Clusters) -> Clusters:
        """Let all clusters that are new start from the model that the grouped clients moved."""
        models = dict.fromkeys(range(clusters.count), self._received) if self._found else {}
        return replace(clusters, unheld=models)

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Let those that have waited and trained join a cluster."""
        clusters = state.clusters
        waiting = [c for c, cluster in clusters.of_client.items() if cluster >= self._found > 0]
        fresh = [client for client in waiting if client in self._moves]
        if not fresh:
            return clusters
        moves, known = (
            [self._moves[client] for client in clients] for clients in (fresh, self._grouped)
        )
        members = np.array([clusters.of_client[client] for client in self._grouped])
        labels, late = self.nearest(moves, known, members)
        models = cluster_models(state)[: self._found]
        if len(fresh) < len(waiting):
            models.append(self._received)  # for those who wait on: not what the others trained
        placed = dict(zip(fresh, labels.tolist(), strict=True))
        joined = clusters.with_clients(placed, dict(zip(fresh, late, strict=False)))
        return replace(joined, models=models)

    def after_training(self, state: Round) -> Clusters:
        """Group once it is due, by this round's updates; store the first one of later clients."""
        if not self._found and not self.is_due(state):
            return state.clusters
        for update in state.updates:
            if update.client not in self._moves:
                self._moves[update.client] = self.move(update)
        if self._found:
            return state.clusters
        clients, sent = sorted(self._moves), {one.client: one.received for one in state.updates}
        (self._received,) = mean_held_models(sent, [clients], state.initial)
        found = self.group(clients, [self._moves[client] for client in clients])
        if found.comparison is not None:
            found = replace(found, comparison=replace(found.comparison, round=state.number))
        self._found, self._grouped = found.count, clients
        waiting = [client for client in state.clusters.of_client if client not in self._moves]
        return self._with_waiting(found.with_clients(dict.fromkeys(waiting, self._found)))

    def before_test(self, state: Round, conversation: Conversation) -> Clusters:
        """Let those that have waited and trained join a cluster."""
        return self.before_training(state, conversation)

    def is_due(self, state: Round) -> bool:
        """Return whether clients are grouped now: by default, once there are updates."""
        return True

    def move(self, update: Update) -> Vector:
        """Return how far the whole model has moved, by which a client is compared, shape (p,)."""
        return model_vector(update.received, update.arrays)

    @abstractmethod
    def group(self, clients: Sequence[int], moves: Sequence[Vector]) -> Clusters:
        """Return the clusters of K clients by their movements, shapes (p,)."""

    @abstractmethod
    def nearest(
        self, moves: Sequence[Vector], known: Sequence[Vector], members: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[Float64]]:
        """Return the cluster that each of n others joins; and its nearness, for `Comparison.late`.

        `known` are the movements of the K grouped clients, `members`, shape (K,), their clusters.
        """


@dataclass
class FirstUpdateClustering(OnceByTraining):
    """Agglomerative clustering of round 1's change of the last layer (FedClust).

    Since all start from one model, layers differ as their movements do.
    """

    name: ClassVar[str] = "first-update"
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "elbow"  # an upper bound; the paper cuts at a height instead
    linkage: str = SpectralClustering.linkage

    def move(self, update: Update) -> Vector:
        """Return how far the last layer has moved."""
        return model_vector(update.received, update.arrays, last_layer(update.arrays))

    def distances(self, moves: Sequence[Vector], others: Sequence[Vector]) -> Float64:
        """Return how far n movements are from K others, shape (n, K)."""
        found: Float64 = cdist(moves, others)
        return found

    def group(self, clients: Sequence[int], moves: Sequence[Vector]) -> Clusters:
        """Agglomerate by distance."""
        distances, number = self.distances(moves, moves), self.num_clusters
        number = number if isinstance(number, str) else min(number, len(clients))
        grouping = agglomerate_distances(distances, number, self.linkage)
        return Clusters.of_labels(
            clients,
            grouping.labels,
            comparison=Comparison(
                tuple(clients),
                1 / (1 + distances),
                grouping.merges,
                "closeness 1/(1 + distance)",
            ),
        )

    def nearest(
        self, moves: Sequence[Vector], known: Sequence[Vector], members: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[Float64]]:
        """Go by the mean distance; of equals, the first."""
        distances = self.distances(moves, known)
        return closest_clusters(-distances, members), list(1 / (1 + distances))


@dataclass
class FirstDirectionClustering(OnceByTraining):
    """k-means of round 1's updates along the directions that they have in common (FedGroup).

    A client's coordinates are the cosines between its update and the M leading singular vectors of
    all updates. Later clients join the cluster with the mean update at the smallest angle.
    """

    name: ClassVar[str] = "first-direction"
    num_clusters: int  # type: ignore[misc] # M, an upper bound; no default, on purpose
    seed: int = 0

    def group(self, clients: Sequence[int], moves: Sequence[Vector]) -> Clusters:
        """Run k-means on the coordinates."""
        # Rounded, so that those who moved the same way are at one point.
        points = decomposed_cosines(inner_products(moves), self.num_clusters).round(6)
        labels = k_means(points, self.num_clusters, self.seed)
        return Clusters.of_labels(clients, labels)

    def nearest(
        self, moves: Sequence[Vector], known: Sequence[Vector], members: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[Float64]]:
        """Go by the cosine with each cluster's mean update; of equals, the first."""
        shares = np.eye(members.max() + 1)[members]  # of known clients in the clusters' means
        shares /= shares.sum(axis=0)
        squares = np.diagonal(shares.T @ inner_products(known) @ shares)
        lengths = np.sqrt(np.maximum(squares, np.finfo(float).tiny))
        return (inner_products(moves, known) @ shares / lengths).argmax(axis=1), ()


def decomposed_cosines(products: Float64, count: int) -> Float64:
    """Return the cosines of n vectors with `count` leading singular vectors, (n, min(count, n)).

    Between these, FedGroup takes Euclidean distances: EDC. `products` are the vectors' inner
    products. A vector of zeros has 0; the sign of a column is arbitrary.

    Examples
    --------
    >>> vectors = np.array([[3.0, 0], [5, 0], [0, -1]])
    >>> np.abs(decomposed_cosines(vectors @ vectors.T, 2)).round(6).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    along = coordinates(products)[:, :count]
    norms = np.sqrt(products.diagonal())[:, None]
    cosines: Float64 = np.divide(along, norms, out=np.zeros_like(along), where=norms > 0)
    return cosines
