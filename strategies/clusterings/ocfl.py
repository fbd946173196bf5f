"""OCFL: group clients once, in the first round in which their updates become less similar.

M. K. Zuziak, R. Pellungrini, S. Rinzivillo, "One-Shot Clustering for Federated Learning", IEEE Big
Data 2024, https://arxiv.org/abs/2503.04231. Authors' code: github.com/MKZuziak, repositories
OCFL_IEEE_BigData2024 and Clustered-Federated-Learning.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.options import one_of, option
from strategies.clusterings.agglomeration import canonical_labels, closest_clusters
from strategies.clusterings.first_update import OnceByTraining
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import Float64, Vector, cosine_similarities, inner_products


@dataclass
class TemperatureClustering(OnceByTraining):
    """Density-based clusters of the cosine distances Γ of updates, once Γ's temperature rises.

    The temperature is ‖Γ‖ / √(4 n (n − 1)) (Frobenius norm). It falls while one model suits all
    clients better and better. All clients train until then. The number of clusters is found;
    clients that HDBSCAN puts into none are one cluster, as in the authors' code.
    """

    name: ClassVar[str] = "temperature"
    method: str = option(
        "hdbscan",
        one_of(("hdbscan", "mean-shift")),
        "how clients are grouped, by the distances of their updates",
        key="ocfl-method",
    )
    _temperature: float = state_field(lambda: math.inf)  # of the last round that all answered
    _asked: int = state_field(int)  # number of clients that train in this round

    def needs_all_clients(self, number: int) -> bool:
        """Return whether clients are not grouped yet."""
        return not self._found

    def before_training(self, state: Round, conversation: Conversation) -> Clusters:
        """Count the participants; then as all others that group once."""
        self._asked = len(state.participants)
        return super().before_training(state, conversation)

    def is_due(self, state: Round) -> bool:
        """Return whether the temperature has risen, in a round that all asked clients answered."""
        if len(state.updates) < max(2, self._asked):
            return False
        before = self._temperature
        self._temperature = temperature(cosine_distances([self.move(u) for u in state.updates]))
        return self._temperature > before

    def group(self, clients: Sequence[int], moves: Sequence[Vector]) -> Clusters:
        """Group by density; of HDBSCAN, a cluster has at least a fifth of the clients."""
        from sklearn.cluster import HDBSCAN, MeanShift  # noqa: PLC0415 - it takes a second

        distances = cosine_distances(moves)
        labels = np.zeros(len(clients), np.int64)
        if self.method == "mean-shift":
            labels = MeanShift().fit_predict(distances)
        elif len(clients) > 1:
            least = max(2, len(clients) // 5)
            labels = HDBSCAN(least, metric="precomputed", copy=True).fit_predict(distances)
        similar = Comparison(tuple(clients), 1 - distances, measure="cosine of updates")
        return Clusters.of_labels(clients, canonical_labels(labels), comparison=similar)

    def nearest(
        self, moves: Sequence[Vector], known: Sequence[Vector], members: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Sequence[Float64]]:
        """Go by the mean cosine with the clients of each cluster; of equals, the first."""
        cosines = 1 - cosine_distances([*moves, *known])[: len(moves), len(moves) :]
        return closest_clusters(cosines, members), list(cosines)


def cosine_distances(vectors: Sequence[Vector]) -> Float64:
    """Return 1 − cos(v_i, v_j), shape (n, n), 0 on the diagonal."""
    distances = 1 - cosine_similarities(inner_products(vectors))
    np.fill_diagonal(distances, 0)
    return distances


def temperature(distances: Float64) -> float:
    """Return the temperature of cosine distances, shape (n, n), in [0, 1]; 0 for one client."""
    count = len(distances)
    return float(np.linalg.norm(distances) / math.sqrt(max(1, 4 * count * (count - 1))))
