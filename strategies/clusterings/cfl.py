"""CFL: split a cluster when its mean update vanishes but its clients' updates do not.

F. Sattler, K.-R. Müller, W. Samek, "Clustered federated learning: model-agnostic distributed
multitask optimization under privacy constraints", IEEE TNNLS 32(8), 2021,
https://doi.org/10.1109/TNNLS.2020.3015958.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fl_core.options import COUNT, POSITIVE, number, option
from strategies.clusterings.agglomeration import agglomerate, canonical_labels
from strategies.clusterings.clustering import GroupedByTraining
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import (
    Float64,
    Vector,
    cosine_similarities,
    inner_products,
    model_vector,
)


@dataclass
class RecursiveBipartition(GroupedByTraining):
    """Sattler et al.'s clustered federated learning (2021, Algorithms 1 and 2).

    A cluster is split when ‖mean of updates‖ < ε₁, near a stationary point of the common objective,
    while max ‖update‖ > ε₂, so that the point does not suit all. The two parts have the lowest
    maximal cosine similarity across: single linkage; the authors' code
    (felisat/clustered-federated-learning) takes "complete". Thresholds are shares of the longest
    mean update so far, as the paper advises.

    In the paper all clients train in every round. Where only some do, the mean and the parts are of
    each client's last update, and a client trains in every round until it has sent one.
    """

    name: ClassVar[str] = "bipartition"
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
    split_linkage: Literal["single", "complete", "average"] = "single"
    min_size: int = 1  # of each part
    _longest: float = state_field(float)
    _last: dict[int, Vector] = state_field(dict)

    def after_training(self, state: Round) -> Clusters:
        """Split clusters; clients that never sent an update follow the larger part."""
        self._last.update({u.client: model_vector(u.received, u.arrays) for u in state.updates})
        labels = dict(state.clusters.of_client)
        fresh = state.clusters.count
        trained: dict[int, list[int]] = {}
        for update in state.updates:
            trained.setdefault(update.cluster, []).append(update.client)
        known = {
            cluster: [client for client in state.clusters.members(cluster) if client in self._last]
            for cluster in sorted(trained)
            if len(trained[cluster]) > 1
        }
        products = {
            cluster: inner_products([self._last[client] for client in clients])
            for cluster, clients in known.items()
        }
        # The longest of all clusters, before any of them is judged by it.
        means = {c: math.sqrt(max(of_c.mean(), 0.0)) for c, of_c in products.items()}
        self._longest = max([self._longest, *means.values()])
        for cluster, clients in known.items():
            of_trained = np.isin(clients, trained[cluster])
            longest = math.sqrt(products[cluster].diagonal()[of_trained].max())
            is_short = means[cluster] < self.mean_norm * self._longest
            if is_short and longest > self.max_norm * self._longest:
                part = self._smaller_part(clients, products[cluster])
                labels.update(dict.fromkeys(part, fresh))
                fresh += bool(part)
        if fresh == state.clusters.count:
            return state.clusters
        names = canonical_labels(list(labels.values())).tolist()
        return Clusters(dict(zip(labels, names, strict=True)))

    def _smaller_part(self, clients: Sequence[int], products: Float64) -> list[int]:
        """Return the clients that leave, if both parts are large enough."""
        labels = agglomerate(cosine_similarities(products), 2, self.split_linkage).labels
        sizes = np.bincount(labels)
        if sizes.min() < self.min_size:
            return []
        smaller = int(sizes.argmin())
        return [client for client, label in zip(clients, labels, strict=True) if label == smaller]


@dataclass
class StableBipartition(RecursiveBipartition):
    """Ours: average linkage cuts single clients with wrong labels off least, and larger parts."""

    name: ClassVar[str] = "stable-bipartition"
    split_linkage: Literal["single", "complete", "average"] = "average"
    min_size: int = option(
        5, COUNT, "split only into parts of at least so many clients", key="cfl-min-size"
    )
