"""FedHC: in every round, clients whose updates point the same way are averaged together.

FedHC, unsigned: "Federated Learning with Hierarchical Clustering for Personalized Model
Aggregation"; the copy that we have names no author, year or address.
C. Briggs, Z. Fan, P. Andras, "Federated learning with hierarchical clustering of local updates to
improve training on non-IID data", IJCNN 2020, https://arxiv.org/abs/2004.11791 (FL+HC).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist, squareform

from fl_core.options import BOOLEAN, one_of, option
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.grouping import (
    COUNT_RULES,
    NumClusters,
    agglomerate_distances,
    canonical_labels,
)
from strategies.engine.conversation import Conversation
from strategies.engine.memory import learnt
from strategies.engine.rounds import Clusters, Comparison, Round
from strategies.engine.updates import cosine_similarities, direction_distances, update_vector

Distance = Literal["cosine", "euclidean"]
Reference = Literal["initial", "received"]

_MOST_LENGTH = 4.0  # times the median; those of honest clients differ by less than two


@dataclass
class UpdateClustering(Clustering):
    """Ward's method on how far clients' training moves their models (FedHC, section 3).

    The paper compares "the gradient of the local model" without saying against which model, by the
    distance 1 − cos(g_i, g_j). Since ‖u − v‖² = 2(1 − cos) for unit vectors, Ward's method is
    exact on these. With `initial`, g_i is the movement since the model that all clients started
    from, so clients of different clusters stay comparable. With `received`, g_i is the movement of
    the last round alone.

    A client that does not take part in a round keeps its last movement. Those that have never sent
    an update share a cluster that starts from the initial model, and train in the next round.

    Attributes
    ----------
    num_clusters : int, "elbow" or "silhouette"
        A number, capped at the number of clients to group; or how it is chosen in every round.
        Clients that are set apart are not counted.
    distance : {"cosine", "euclidean"}
        What is compared: directions, as in the paper; or the movements themselves, as in the
        earlier FL+HC.
    reference : {"initial", "received"}
        The model against which a movement is measured.
    odd_alone : bool
        Whether clients that move against all others, or several times as far in a round, are set
        apart, each alone, before the others are grouped (`odd_ones`): ours, not the paper's.
    """

    name: ClassVar[str] = "update"
    knows_by_training: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "silhouette"
    distance: Distance = option(
        "cosine",
        one_of(get_args(Distance)),
        "how far apart updates are; `euclidean` also sees how long they are",
        key="update-distance",
    )
    reference: Reference = option(
        "initial",
        one_of(get_args(Reference)),
        "measure updates from the model that all clients started from, or from the one just "
        "`received`, with which the tasks are lost after a few rounds",
        key="update-reference",
    )
    odd_alone: bool = option(
        False,
        BOOLEAN,
        "ours, not the paper's: whoever moves against all others, or more than four times as far "
        "as most, is set apart, alone, before the others are grouped",
    )
    _vectors: dict[int, NDArray[np.float64]] = learnt(dict)
    _lengths: dict[int, float] = learnt(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with everybody: nobody has trained."""
        self._vectors, self._lengths = {}, {}
        return Clusters(dict.fromkeys(conversation.nodes, 0))

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Give newcomers a cluster of their own until they have trained; who comes back has one."""
        fresh = clusters.unplaced(newcomers)
        return clusters.with_clients(dict.fromkeys(fresh, clusters.count))

    def after_training(self, state: Round) -> Clusters:
        """Group the movements of this round's clients and the last ones of the others."""
        since = state.initial if self.reference == "initial" else None
        for update in state.updates:
            self._vectors[update.client] = update_vector(update, since)
            self._lengths[update.client] = float(np.linalg.norm(update_vector(update)))
        clients = sorted(self._vectors)
        vectors = np.stack([self._vectors[client] for client in clients])
        similarity = cosine_similarities(vectors)
        odd = np.zeros(len(clients), bool)
        if self.odd_alone:
            odd = odd_ones(similarity, np.array([self._lengths[client] for client in clients]))
        if self.distance == "euclidean":
            distances = squareform(pdist(vectors))
        else:
            distances = direction_distances(similarity)
        rest = np.flatnonzero(~odd)
        number = self.num_clusters
        grouping = agglomerate_distances(
            distances[np.ix_(rest, rest)],
            number if isinstance(number, str) else min(number, len(rest)),
            "ward",
        )
        labels = len(clients) + np.arange(len(clients))  # each alone, but for those grouped
        labels[rest] = grouping.labels
        merges = grouping.merges
        if odd.any():  # a picture shows the tree of all
            merges = agglomerate_distances(distances, 1, "ward").merges
        found = Clusters(
            dict(zip(clients, canonical_labels(labels).tolist(), strict=True)),
            comparison=Comparison(
                tuple(clients), similarity, merges, "cosine of updates", round=state.number
            ),
        )
        unknown = [client for client in state.clusters.of_client if client not in self._vectors]
        return found.with_clients(dict.fromkeys(unknown, found.count))


def odd_ones(similarity: NDArray[np.float64], lengths: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which clients do not move as the others do, shape (n,): always less than half.

    Odd is who moves against the sum of all directions, as updates with a flipped sign do, or moved
    more than four times the median length in its last round, as blown-up updates do.

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (n, n)
        Cosines of the movements since a common model.
    lengths : NDArray[np.float64], shape (n,)
        How far each moved in the last round in which it trained.

    Examples
    --------
    >>> flipped = np.array([[1, 0.5, -0.9], [0.5, 1, -0.9], [-0.9, -0.9, 1]])
    >>> odd_ones(flipped, np.ones(3)).tolist()
    [False, False, True]
    >>> odd_ones(np.ones((3, 3)), np.array([1.0, 9.0, 1.5])).tolist()
    [False, True, False]
    """
    odd: NDArray[np.bool_] = similarity.sum(axis=1) < 0
    odd |= lengths > _MOST_LENGTH * np.median(lengths)
    return odd if 2 * odd.sum() < len(odd) else np.zeros_like(odd)
