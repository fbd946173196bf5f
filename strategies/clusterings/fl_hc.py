"""FL+HC: some rounds with one model for all, then clusters of all clients' updates.

C. Briggs, Z. Fan, P. Andras, "Federated learning with hierarchical clustering of local updates to
improve training on non-IID data", IJCNN 2020, https://arxiv.org/abs/2004.11791. The authors
published no code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from scipy.spatial.distance import cdist

from fl_core.options import NATURAL, one_of, option
from strategies.clusterings.first_update import FirstUpdateClustering
from strategies.rounds.round_state import Round, Update
from strategies.rounds.updates import Float64, Vector, model_vector


@dataclass
class WarmUpClustering(FirstUpdateClustering):
    """Agglomerate the movements of the whole model in the round after a warm-up (Algorithm 1).

    All clients train in that round, from the model that the warm-up has made. The paper cuts the
    dendrogram at a height that it tunes; here a number or a rule decides, as in `FedClust`. It
    starts each cluster from the warm-up's model; here what this round trained is not lost, and each
    cluster starts from its mean.
    """

    name: ClassVar[str] = "warm-up"
    warm_up_rounds: int = option(3, NATURAL, "rounds with one model for all before the grouping")
    distance: str = option(
        "euclidean",
        one_of(("euclidean", "cityblock", "cosine")),
        "how far two updates are apart; `cityblock` is the paper's L1",
        key="update-distance",
    )

    def needs_all_clients(self, number: int) -> bool:
        """Return whether this is the round of the grouping."""
        return not self._found and number > self.warm_up_rounds

    def is_due(self, state: Round) -> bool:
        """Return whether the warm-up is over."""
        return state.number > self.warm_up_rounds

    def move(self, update: Update) -> Vector:
        """Return how far the whole model has moved."""
        return model_vector(update.received, update.arrays)

    def distances(self, moves: Sequence[Vector], others: Sequence[Vector]) -> Float64:
        """Return how far n movements are from K others, shape (n, K)."""
        found: Float64 = cdist(moves, others, self.distance)
        return found
