"""FedSEM: in every round, each client joins the cluster with the model nearest to its model.

M. Xie, G. Long, T. Shen, T. Zhou, X. Wang, J. Jiang, "Multi-center federated learning", 2020,
https://arxiv.org/abs/2005.01026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from strategies.clusterings.agglomeration import k_means
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.means import cluster_models
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import flatten


@dataclass
class ModelClustering(Clustering):
    """k-means over the parameters of client models, one step a round (Xie et al., FedSEM).

    The first round's models are grouped by k-means++; from then on, each participant is assigned to
    the nearest cluster model (the E-step), and the aggregation moves that model (the M-step).

    In the paper all clients take part in every round. Where only a share does, a client trains in
    every round until it has sent a first model, so that the first grouping is of all. FLT's authors
    compare with a FedSEM (hjraad/FLT, `clustering_multi_center`) that groups the last models of all
    clients in every round: that is less accurate (experiments/models_of_all.py, docs/results/flt-
    code.md).
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
        trained = np.stack([flatten(update.arrays) for update in state.updates])
        if not self._grouped:  # in the first round in which anybody answers
            self._grouped = True
            labels = self._first_labels(trained)
            largest = int(np.bincount(labels).argmax())
            before = dict.fromkeys(state.clusters.of_client, largest)
        else:
            centres = np.stack([flatten(model) for model in cluster_models(state)])
            inhabited = sorted(set(state.clusters.of_client.values()))
            nearest = cdist(trained, centres[inhabited]).argmin(axis=1)
            labels = np.array(inhabited)[nearest]
            before = state.clusters.of_client
        found = {u.client: int(label) for u, label in zip(state.updates, labels, strict=True)}
        return Clusters({**before, **found}, self.num_clusters)

    def _first_labels(self, trained: NDArray[np.float64]) -> NDArray[np.int64]:
        # n models span at most n dimensions: there, distances are the same and k-means is fast.
        left, scale, _ = np.linalg.svd(trained, full_matrices=False)
        number = min(self.num_clusters, len(np.unique(trained, axis=0)))
        return k_means(left * scale, number, self.seed)
