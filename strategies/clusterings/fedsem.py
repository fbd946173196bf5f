"""FedSEM: in every round, each client joins the cluster with the model nearest to its model.

M. Xie, G. Long, T. Shen, T. Zhou, X. Wang, J. Jiang, "Multi-center federated learning", 2020,
https://arxiv.org/abs/2005.01026. H. Jamali-Rad et al., 2022 (see `flt`) compare with another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fl_core.messages.protocol import NDArrays
from strategies.clusterings.agglomeration import k_means
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.means import cluster_models
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import Float64, Vector, coordinates, inner_products, model_vector

_STARTS = 20  # of the first k-means of `AllModelsClustering`, of which the best counts


@dataclass
class ModelClustering(Clustering):
    """k-means over the parameters of client models, one step a round (Xie et al., FedSEM).

    The first round's models are grouped by k-means++; from then on, each participant is assigned to
    the nearest model of a cluster with clients (the E-step), and the aggregation moves that model
    (the M-step). Where not all take part, a client trains in every round until it has sent one.
    """

    name: ClassVar[str] = "model"
    knows_by_training: ClassVar[bool] = True
    retains_models: ClassVar[bool] = True
    num_clusters: int  # an upper bound: fewer of fewer participants or different models
    seed: int = 0
    _grouped: bool = state_field(bool)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one inhabited cluster, with all clients: none has trained."""
        return Clusters(dict.fromkeys(conversation.nodes, 0), self.num_clusters)

    def after_training(self, state: Round) -> Clusters:
        """Assign this round's participants; others stay where they are."""
        if not self._grouped:  # in the first round in which anybody answers
            self._grouped = True
            vectors = [model_vector(update.arrays, state.initial) for update in state.updates]
            points = coordinates(inner_products(vectors))
            labels = k_means(points, self.num_clusters, self.seed)
            largest = int(np.bincount(labels).argmax())
            before = dict.fromkeys(state.clusters.of_client, largest)
        else:
            models = cluster_models(state)
            inhabited = sorted(set(state.clusters.of_client.values()))
            trained = [self.vector(update.arrays, state.initial) for update in state.updates]
            centres = [self.vector(models[cluster], state.initial) for cluster in inhabited]
            labels = np.array(inhabited)[self.nearness(trained, centres).argmax(axis=1)]
            before = state.clusters.of_client
        found = {u.client: int(label) for u, label in zip(state.updates, labels, strict=True)}
        return Clusters({**before, **found}, self.num_clusters)

    def vector(self, model: NDArrays, initial: NDArrays) -> Vector:
        """Return what is compared of a model."""
        return model_vector(model, initial)

    def nearness(self, trained: Sequence[Vector], centres: Sequence[Vector]) -> Float64:
        """Return how near n models are to those of K clusters, shape (n, K), higher is nearer."""
        # ‖v‖² − ‖v − c‖²
        nearness: Float64 = (
            2 * inner_products(trained, centres) - inner_products(centres).diagonal()
        )
        return nearness


@dataclass
class AllModelsClustering(ModelClustering):
    """k-means over all clients' last or initial models, each round from the last centres.

    So FLT's authors compare with FedSEM (hjraad/FLT, `clustering_multi_center`).
    """

    name: ClassVar[str] = "all-models"
    knows_by_training: ClassVar[bool] = False
    _trained: dict[int, Vector] = state_field(dict)
    _centres: list[Vector] = state_field(list)

    def after_training(self, state: Round) -> Clusters:
        """Return the clusters of all clients' last models."""
        for update in state.updates:
            self._trained[update.client] = self.vector(update.arrays, state.initial)
        untrained = np.zeros_like(next(iter(self._trained.values())))
        vectors = [self._trained.get(client, untrained) for client in state.clusters.of_client]
        points = coordinates(inner_products([*vectors, *self._centres]))
        labels = self._labels(points[: len(vectors)], points[len(vectors) :])
        centres = dict(enumerate(self._centres))
        for label in np.unique(labels).tolist():
            members = [v for v, one in zip(vectors, labels, strict=True) if one == label]
            centres[label] = np.mean(members, axis=0)
        self._centres = list(centres.values())
        of_client = dict(zip(state.clusters.of_client, labels.tolist(), strict=True))
        return Clusters(of_client, self.num_clusters)

    def _labels(self, points: Float64, before: Float64) -> NDArray[np.int64]:
        """Return labels by k-means from the centres `before`: a cluster keeps its number.

        More clusters start at the points that are farthest from all centres; fewer, at the nearest
        ones.
        """
        number = min(self.num_clusters, len(np.unique(points, axis=0)))
        if not len(before):
            return k_means(points, number, self.seed, _STARTS)
        away = cdist(before, points)
        retained = np.sort(away.min(axis=1).argsort(kind="stable")[:number])
        centres, away = before[retained], away[retained]
        while len(centres) < number:
            farthest = points[away.min(axis=0).argmax()][None]
            centres, away = (
                np.vstack([centres, farthest]),
                np.vstack([away, cdist(farthest, points)]),
            )
        of_centre = np.array([*retained, *range(len(retained), number)])
        return of_centre[k_means(points, number, self.seed, centres=centres)]
