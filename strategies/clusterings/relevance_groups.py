"""From relevances to clusters: lines 14 and 15 of RCC-PFL's Procedure 1, as pure functions."""

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fl_core.relevance import PAPER
from strategies.clusterings.agglomeration import (
    NumClusters,
    agglomerate,
    average_relevance,
    cut_dendrogram,
)
from strategies.clusterings.number import evidence

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

AUTO: Final = "auto"
NumGroups = NumClusters | Literal["auto"]
"""A number of clusters, or the rule that chooses it; "auto": `number.evidence`."""


@dataclass(frozen=True, eq=False)
class RelevanceGroups:
    """Clusters by relevance."""

    labels: Int64  # canonical, shape (K,)
    compared: Int64  # the clients that were agglomerated, ascending, shape (n,)
    similarity: Float64  # R of these, shape (n, n)
    merges: Float64  # their dendrogram, as scipy writes it, shape (n − 1, 4)
    outliers: dict[int, str] = field(default_factory=dict)  # why clients are outliers


def group_by_relevance(
    scores: NDArray[np.floating],
    num_clusters: NumGroups,
    linkage: str = "average",
    formula: str = PAPER,
) -> RelevanceGroups:
    """Group clients by their relevance, r(i, j) of client j to client i, shape (K, K).

    `num_clusters` is M, exactly so many; or what chooses it, which is not in the paper, as is its
    `linkage`. "auto" decides on one group by the relevance's `formula`. A ValueError says that
    there are fewer clients.
    """
    similarity = average_relevance(scores)  # line 14
    found = agglomerate(similarity, 1 if num_clusters == AUTO else num_clusters, linkage)  # line 15
    labels = found.labels
    if num_clusters == AUTO:
        number = evidence(similarity, found.merges, formula).number
        labels = cut_dendrogram(found.merges, number)
    return RelevanceGroups(labels, np.arange(len(scores)), similarity, found.merges)
