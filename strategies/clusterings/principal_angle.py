"""PACFL: group clients once, by the angles between the spaces that their samples span.

S. Vahidian, M. Morafah, W. Wang, V. Kungurtsev, C. Chen, M. Shah, B. Lin, "Efficient Distribution
Similarity Identification in Clustered Federated Learning via Principal Angles Between Client Data
Subspaces", AAAI 2023, https://arxiv.org/abs/2209.10526.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import number, one_of, option, or_none
from fl_core.relevance import Spectra, corresponding_angles, smallest_angles
from strategies.clusterings.agglomeration import (
    Grouping,
    agglomerate_distances,
    closest_clusters,
    cut_dendrogram,
    mean_scores,
    number_within,
)
from strategies.clusterings.one_shot import Answers, OneShotClustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.replies import DIMENSIONS, read_eigenvectors

Float64 = NDArray[np.float64]
Measure = Literal["smallest", "sum"]


@dataclass
class PrincipalAngleClustering(OneShotClustering):
    """Clients upload p singular vectors, once; the server groups by the angles between them.

    The left singular vectors of a client's data matrix are the eigenvectors that `spectral` shares.
    As in the paper, a sample is its pixels or numbers. A newcomer joins the cluster that is nearest
    on average, or, if none is within `threshold`, is grouped with other such newcomers. The
    authors' average linkage is SciPy's "weighted".
    """

    name: ClassVar[str] = "principal-angle"
    shares: ClassVar[str] = "eigenvectors"
    compares_raw: ClassVar[bool] = True
    similarity_name: ClassVar[str] = "closeness by principal angles"
    num_eigenvectors: int = 3  # p
    measure: Measure = option(  # equation 2, or equation 3
        "smallest",
        one_of(get_args(Measure)),
        "the distance of clients: by their smallest principal angle, or by the sum of the angles "
        "between their first vectors, their second ones, …",
        key="principal-angle",
    )
    # β, which the paper tunes for each data set. By this one, 2, 3 and 5 tasks of MNIST are found;
    # Fashion-MNIST needs 5, CIFAR-10 1.5.
    threshold: float | None = option(
        15.0,
        or_none(number(float, 0), "never"),
        "merge no clusters at a distance of more than so many degrees; `never`: merge until there "
        "are `num-clusters`",
        key="angle-threshold",
    )

    def ask(self, conversation: Conversation, clients: Sequence[int] | None) -> Answers:
        """Return singular vectors, shapes (d, 1 to p)."""
        p, dimension = self.num_eigenvectors, None
        if clients is not None:
            dimension = len(next(iter(self._answers.values())))
        asked = conversation.query(
            protocol.SPECTRUM,
            lambda content: read_eigenvectors(content, p, dimension),
            options={
                protocol.NUM_EIGENVECTORS: p,
                protocol.COMPARED_THERE: 1,
                protocol.RAW_SAMPLES: 1,
            },
            clients=clients,
        )
        if clients is not None:
            return asked
        lengths = {client: len(vectors) for client, vectors in asked.items()}
        same = conversation.exclude_uncommon_sizes(protocol.SPECTRUM, lengths, DIMENSIONS)
        return {client: asked[client] for client in same}

    def distances(self, some: Answers, others: Answers) -> Float64:
        """Return principal angles in degrees."""
        one, other = (Spectra.of_vectors(list(each.values())) for each in (some, others))
        if self.measure == "sum":
            return corresponding_angles(one, other, self.num_eigenvectors)
        return np.degrees(smallest_angles(one, other, self.num_eigenvectors), dtype=np.float64)

    def similarity(self, distances: Float64) -> Float64:
        """Return 1 for no angle, 0 for right ones."""
        most = 90 * (self.num_eigenvectors if self.measure == "sum" else 1)
        closeness: Float64 = np.clip(1 - distances / most, 0, 1)
        return closeness

    def agglomerate(self, distances: Float64) -> Grouping:
        """Return the requested number of clusters, or those within the threshold."""
        if self.threshold is None:
            return super().agglomerate(distances)
        merges = agglomerate_distances(distances, 1, self.linkage).merges
        return Grouping(cut_dendrogram(merges, number_within(merges, self.threshold)), merges)

    def join(self, fresh: Answers, distances: Float64, members: Sequence[int]) -> NDArray[np.int64]:
        """Return the nearest cluster; newcomers beyond the threshold are grouped separately."""
        labels = closest_clusters(-distances, members)
        _, means = mean_scores(distances, members)
        if self.threshold is not None and (far := means.min(axis=1) > self.threshold).any():
            distant = {c: fresh[c] for c, is_far in zip(fresh, far, strict=True) if is_far}
            separate = self.agglomerate(self.distances(distant, distant)).labels
            labels[far] = max(members) + 1 + separate
        return labels
