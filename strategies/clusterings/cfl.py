"""CFL: split a cluster when its mean update vanishes but its clients' updates do not.

F. Sattler, K.-R. Müller, W. Samek, "Clustered federated learning: model-agnostic distributed
multitask optimization under privacy constraints", IEEE TNNLS 32(8), 2021,
https://doi.org/10.1109/TNNLS.2020.3015958.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fl_core.options import COUNT, POSITIVE, number, option
from strategies.clusterings.agglomeration import agglomerate, canonical_labels
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import cosine_similarities, update_vector


@dataclass
class RecursiveBipartition(Clustering):
    """Sattler et al.'s clustered federated learning (2021, Algorithms 1 and 2).

    A cluster is split when ‖mean of updates‖ < ε₁, so it is near a stationary point of its clients'
    common objective, while max ‖update‖ > ε₂, so the point does not suit all of them. The paper's
    two parts are those with the lowest maximal cosine similarity across, which single linkage
    finds; its authors' code takes complete linkage. With noisy labels both tend to cut single
    clients off, and average linkage, the default, does so least. The paper advises thresholds in
    proportion to the longest mean update seen; they are given that way here, and so fit any model
    and learning rate.

    In the paper all clients train in every round. Where only some do, the mean and the two parts
    are of the last update of each client of the cluster, and the maximum is of the round's updates
    alone: a long one from before says nothing of the present model. So that each has an update, a
    client trains in every round until it has sent its first.
    """

    name: ClassVar[str] = "bipartition"
    knows_by_training: ClassVar[bool] = True
    mean_norm: float = option(
        0.4,
        POSITIVE,
        "a cluster is split when its mean update is below this share of the longest so far",
        key="cfl-mean-norm",
    )
    max_norm: float = option(
        0.7,
        number(float, 0),
        "and some client's update is above this share of it",
        key="cfl-max-norm",
    )
    # "single", as in the paper; "complete", as in its authors' code
    split_linkage: Literal["average", "complete", "single"] = "average"
    min_size: int = option(
        5, COUNT, "split only into parts of at least so many clients", key="cfl-min-size"
    )
    _longest: float = state_field(float)
    _last: dict[int, NDArray[np.float64]] = state_field(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with all clients: none has trained."""
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def after_training(self, state: Round) -> Clusters:
        """Split clusters; clients that never sent an update follow the larger part."""
        self._last.update({update.client: update_vector(update) for update in state.updates})
        labels = dict(state.clusters.of_client)
        fresh = state.clusters.count
        trained: dict[int, list[int]] = {}
        for update in state.updates:
            trained.setdefault(update.cluster, []).append(update.client)
        asked = {
            cluster: [client for client in state.clusters.members(cluster) if client in self._last]
            for cluster in sorted(trained)
            if len(trained[cluster]) > 1
        }
        # The longest of all clusters, before any of them is judged by it.
        means = {
            c: float(np.linalg.norm(self._updates(clients).mean(0))) for c, clients in asked.items()
        }
        self._longest = max([self._longest, *means.values()])
        for cluster, known in asked.items():
            if self._is_stuck(means[cluster], trained[cluster]):
                part = self._smaller_part(known)
                labels.update(dict.fromkeys(part, fresh))
                fresh += bool(part)
        if fresh == state.clusters.count:
            return state.clusters
        names = canonical_labels(list(labels.values())).tolist()
        return Clusters(dict(zip(labels, names, strict=True)))

    def _is_stuck(self, mean: float, trained: list[int]) -> bool:
        """Return whether a cluster's mean is short while one of those that trained moves far."""
        longest = float(np.linalg.norm(self._updates(trained), axis=1).max())
        return mean < self.mean_norm * self._longest and longest > self.max_norm * self._longest

    def _smaller_part(self, known: list[int]) -> list[int]:
        """Return the clients that leave, if both parts are large enough."""
        similarities = cosine_similarities(self._updates(known))
        labels = agglomerate(similarities, 2, self.split_linkage).labels
        sizes = np.bincount(labels)
        if sizes.min() < self.min_size:
            return []
        smaller = int(sizes.argmin())
        return [client for client, label in zip(known, labels, strict=True) if label == smaller]

    def _updates(self, clients: list[int]) -> NDArray[np.float64]:
        return np.stack([self._last[client] for client in clients])
