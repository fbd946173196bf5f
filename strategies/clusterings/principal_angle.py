"""PACFL: group clients once, by the angles between the spaces that their samples span.

S. Vahidian, M. Morafah, W. Wang, V. Kungurtsev, C. Chen, M. Shah, B. Lin, "Efficient Distribution
Similarity Identification in Clustered Federated Learning via Principal Angles Between Client Data
Subspaces", AAAI 2023, https://arxiv.org/abs/2209.10526.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import number, one_of, option, or_none
from fl_core.relevance import Spectra, corresponding_angles, smallest_angles
from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    NumClusters,
    agglomerate_distances,
    cut_dendrogram,
    mean_scores,
    number_within,
)
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.spectral import DIMENSIONS, SpectralClustering, read_eigenvectors
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison
from strategies.rounds.state import state_field

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Measure = Literal["smallest", "sum"]


@dataclass
class PrincipalAngleClustering(Clustering):
    """Clients upload p singular vectors, once; the server groups by the angles between them.

    The left singular vectors of a client's data matrix, samples as columns, are the eigenvectors
    that `spectral` clusterings share, too, and the same query asks for them. Nothing is sent back.
    With `features=raw` the columns are pixels, as in the paper.

    A newcomer joins the cluster that is nearest on average, or, if none is within `threshold`, is
    grouped with other such newcomers. Earlier clients stay where they are.
    """

    name: ClassVar[str] = "principal-angle"
    shares: ClassVar[str] = "eigenvectors"
    exact_number: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "elbow"  # where there is no threshold
    num_eigenvectors: int = 3  # p
    # Equation 2, or equation 3
    measure: Measure = option(
        "smallest",
        one_of(get_args(Measure)),
        "the distance of clients: by their smallest principal angle, or by the sum of the angles "
        "between their first vectors, their second ones, …",
        key="principal-angle",
    )
    # Β
    threshold: float | None = option(
        "never",
        or_none(number(float, 0), "never"),
        "do not merge clusters at a distance of more than so many degrees, instead of looking for "
        "`num-clusters`",
        key="angle-threshold",
    )
    linkage: str = SpectralClustering.linkage  # the authors' average linkage is SciPy's "weighted"
    dimension: int | None = None  # of a vector; None: the most common one
    _vectors: dict[int, Float32] = state_field(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for singular vectors, then agglomerate."""
        asked = self._ask(conversation, None, self.dimension)
        lengths = {client: len(vectors) for client, vectors in asked.items()}
        similar = conversation.keep_common_size(protocol.SPECTRUM, lengths, DIMENSIONS)
        self._vectors = {client: asked[client] for client in similar}
        angles = self._angles(self._vectors, self._vectors)
        number = 1 if self.threshold is not None else self.num_clusters
        grouping = agglomerate_distances(angles, number, self.linkage)
        return Clusters.of_labels(
            similar,
            self._cut(grouping.labels, grouping.merges),
            comparison=Comparison(
                tuple(similar),
                self._closeness(angles),
                grouping.merges,
                "closeness by principal angles",
            ),
        )

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each in the nearest cluster, if it is near enough."""
        known = self._vectors
        dimension = len(next(iter(known.values())))
        fresh = self._ask(conversation, newcomers, dimension)
        if not fresh:
            return clusters
        angles = self._angles(fresh, known)
        members = [clusters.of_client[client] for client in known]
        numbers, means = mean_scores(angles, members)
        labels = numbers[means.argmin(axis=1)]
        if self.threshold is not None and (far := means.min(axis=1) > self.threshold).any():
            among = [client for client, is_far in zip(fresh, far, strict=True) if is_far]
            distant = {client: fresh[client] for client in among}
            grouping = agglomerate_distances(self._angles(distant, distant), 1, self.linkage)
            labels[far] = clusters.count + self._cut(grouping.labels, grouping.merges)
        self._vectors = {**known, **fresh}
        compared = np.isin([*known], clusters.compared)
        late = self._closeness(angles[:, compared])
        return clusters.with_clients(
            dict(zip(fresh, labels.tolist(), strict=True)), dict(zip(fresh, late, strict=True))
        )

    def _cut(self, labels: NDArray[np.int64], merges: Float64) -> NDArray[np.int64]:
        """Return the labels, or, with a threshold, those of the clusters within it."""
        if self.threshold is None:
            return labels
        return cut_dendrogram(merges, number_within(merges, self.threshold))

    def _angles(self, some: Mapping[int, Float32], others: Mapping[int, Float32]) -> Float64:
        one, other = (Spectra.of_vectors(list(each.values())) for each in (some, others))
        if self.measure == "sum":
            return corresponding_angles(one, other, self.num_eigenvectors)
        angles = smallest_angles(one, other, self.num_eigenvectors)
        return np.degrees(angles, dtype=np.float64)

    def _closeness(self, angles: Float64) -> Float64:
        """Return 1 for no angle, 0 for right ones."""
        most = 90 * (self.num_eigenvectors if self.measure == "sum" else 1)
        closeness: Float64 = np.clip(1 - angles / most, 0, 1)
        return closeness

    def _ask(
        self, conversation: Conversation, clients: Sequence[int] | None, dimension: int | None
    ) -> dict[int, Float32]:
        p = self.num_eigenvectors
        return conversation.query(
            protocol.SPECTRUM,
            lambda content: read_eigenvectors(content, p, dimension),
            options={protocol.NUM_EIGENVECTORS: p, protocol.COMPARED_THERE: 1},
            clients=clients,
        )
