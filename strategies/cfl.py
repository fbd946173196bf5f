"""CFL: a cluster is split in two when its mean update vanishes but its clients' do not.

F. Sattler, K.-R. Müller, W. Samek, "Clustered federated learning: model-agnostic distributed
multitask optimization under privacy constraints", IEEE TNNLS 32(8), 2021,
https://doi.org/10.1109/TNNLS.2020.3015958.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fl_core.options import POSITIVE, number, option
from strategies.clustering import Clustering, learnt
from strategies.conversation import Conversation
from strategies.grouping import agglomerate, canonical_labels
from strategies.rounds import Clusters, Round, Update
from strategies.updates import cosine_similarities, update_vector


@dataclass
class RecursiveBipartition(Clustering):
    """Sattler et al.'s clustered federated learning (2021, Algorithms 1 and 2).

    A cluster is split when ‖mean of updates‖ < ε₁, so it is near a stationary point of its
    clients' common objective, while max ‖update‖ > ε₂, so the point does not suit all of them. The
    two parts are those with the lowest maximal cosine similarity across, which single linkage
    finds. The paper advises thresholds in proportion to the longest mean update seen; they are
    given that way here, and so fit any model and learning rate.

    Both, `mean_norm` and `max_norm`, are shares of the longest mean update of any cluster so far.
    """

    name: ClassVar[str] = "bipartition"
    mean_norm: float = option(
        0.4,
        POSITIVE,
        "a cluster is split when its mean update is below this share of the longest so far",
        key="cfl-mean-norm",
    )
    max_norm: float = option(
        2.0,
        number(float, 0),
        "and some client's update is above this share of it",
        key="cfl-max-norm",
    )
    _longest: float = learnt(float)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with everybody: nobody has trained."""
        self._longest = 0.0
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Split the clusters that ask for it; clients without an update follow the larger part."""
        labels = dict(state.clusters.of_client)
        fresh = state.clusters.count
        for cluster in range(state.clusters.count):
            updates = [update for update in state.updates if update.cluster == cluster]
            part = self._smaller_part(updates)
            if part:
                labels.update(dict.fromkeys(part, fresh))
                fresh += 1
        if fresh == state.clusters.count:
            return state.clusters
        names = canonical_labels(list(labels.values())).tolist()
        return Clusters(dict(zip(labels, names, strict=True)))

    def _smaller_part(self, updates: list[Update]) -> list[int]:
        """Return the clients that leave, if the cluster is to be split."""
        if len(updates) < 2:
            return []
        vectors = np.stack([update_vector(update) for update in updates])
        mean = float(np.linalg.norm(vectors.mean(axis=0)))
        longest = float(np.linalg.norm(vectors, axis=1).max())
        self._longest = max(self._longest, mean)
        if mean >= self.mean_norm * self._longest or longest <= self.max_norm * self._longest:
            return []
        labels = agglomerate(cosine_similarities(vectors), 2, "single").labels
        smaller = int(np.bincount(labels).argmin())
        return [u.client for u, label in zip(updates, labels, strict=True) if label == smaller]
