"""From relevances to clusters: Procedure 1 of RCC-PFL on the clients that can be compared.

Which clients those are, and what becomes of the others, is in `strategies.clusterings.outliers`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_core.relevance import PAPER, Spectra, relevances
from strategies.clusterings.agglomeration import (
    NumClusters,
    agglomerate,
    average_relevance,
    canonical_labels,
    closest_clusters,
    cut_dendrogram,
)
from strategies.clusterings.number import evidence
from strategies.clusterings.outliers import (
    near_clusters,
    number_beside_few,
    strangers,
    trusted_clients,
)

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NumGroups = NumClusters | Literal["auto"]
"""A number of clusters, or the rule by which it is chosen; "auto": `number.evidence`."""
MOST_WEIGHED = 300
"""Clients of whom numbers of clusters are weighed where one is asked for: it takes a moment."""

DISBELIEVED = "what it says of the others disagrees with what they say of it, and does not count"
SHARES_NOTHING = "its eigenvectors have next to nothing to do with the others', and it stays apart"
UNLIKE_ALL = "it is unlike all others and stays alone"


@dataclass(frozen=True, eq=False)
class RelevanceGroups:
    """Clusters by relevance, and the outliers.

    Attributes
    ----------
    labels : NDArray[np.int64], shape (K,)
        Canonical.
    compared : NDArray[np.int64], shape (n,)
        The clients that were agglomerated, ascending.
    similarity : NDArray[np.float64], shape (n, n)
        R of these.
    merges : NDArray[np.float64], shape (n − 1, 4)
        Their dendrogram, as scipy writes it.
    odd : dict of str
        From an outlier to why it is one.
    by_rule : int
        How many clusters the rule chose, before any came on top; if a number was asked for, how
        many "auto" would choose, or 0 of more than `MOST_WEIGHED` clients.
    """

    labels: Int64
    compared: Int64
    similarity: Float64
    merges: Float64
    odd: dict[int, str]
    by_rule: int


def group_by_relevance(
    scores: NDArray[np.floating],
    num_clusters: NumGroups,
    linkage: str = "average",
    *,
    formula: str = PAPER,
    strange: Int64 | None = None,
    self_reported: bool = True,
) -> RelevanceGroups:
    """Group clients by their relevance to each other (RCC-PFL, Procedure 1).

    Trusted clients are agglomerated. A client that is not trusted joins the cluster that finds it
    most relevant, if it is near (`near_clusters`); else it stays alone. Strangers stay apart, in
    clusters of those that are similar. Of fewer than a hundred clients without an outlier, the
    clusters are those of `agglomerate`.

    Parameters
    ----------
    scores : NDArray, shape (K, K)
        r(i, j), of client j to client i.
    num_clusters : int, "auto", "elbow" or "silhouette"
        As in `agglomerate`. Outliers that stay apart come on top, and so do clusters of less than
        a hundredth of the clients (`number_beside_few`).
    formula : str
        Which relevance it is, by which "auto" knows one group.
    strange : NDArray[np.int64], shape (K,), optional
        The strangers, as `strangers` or `strangers_by_vectors` returns them; by default none.
    self_reported : bool
        Whether row i is what client i says, which is then compared with what the others say of it.
    """
    if strange is None:
        strange = np.full(len(scores), -1)
    compared = usual = np.flatnonzero(strange < 0)
    if self_reported:
        compared = usual[trusted_clients(scores[np.ix_(usual, usual)])]

    similarity = average_relevance(scores[np.ix_(compared, compared)])
    number = num_clusters
    if not isinstance(number, str) and len(compared) < len(scores):
        number = min(number, len(compared))
    plain = agglomerate(similarity, 1 if number == "auto" else number, linkage)
    found, by_rule = int(plain.labels.max()) + 1, 0
    if number == "auto":
        found = by_rule = evidence(similarity, plain.merges, formula).number
    elif isinstance(number, str):
        by_rule = found
    elif len(compared) <= MOST_WEIGHED:
        by_rule = evidence(similarity, plain.merges, formula).number
    found = number_beside_few(plain.merges, found, is_chosen=isinstance(number, str))
    cut = cut_dendrogram(plain.merges, found)

    rejected = np.setdiff1d(usual, compared)
    joined = near_clusters(scores[np.ix_(compared, rejected)], similarity, cut)
    labels = np.full(len(scores), -1)
    labels[compared], labels[rejected] = cut, joined
    odd = dict.fromkeys(rejected.tolist(), DISBELIEVED)
    for client in rejected[joined < 0].tolist():
        labels[client], odd[client] = labels.max() + 1, UNLIKE_ALL
    apart = np.flatnonzero(strange >= 0)
    labels[apart] = labels.max() + 1 + strange[apart]
    odd = dict(sorted((odd | dict.fromkeys(apart.tolist(), SHARES_NOTHING)).items()))
    return RelevanceGroups(
        canonical_labels(labels), compared, similarity, plain.merges, odd, by_rule
    )


def group_by_eigenpairs(
    everybody: Spectra,
    formula: str,
    num_eigenvectors: int,
    num_clusters: NumGroups,
    linkage: str = "average",
    *,
    num_compared: int | None = None,
    rng: np.random.Generator | None = None,
) -> RelevanceGroups:
    """Group clients by the relevance that the server computes, as `group_by_relevance` does.

    No client reports a score, so none is rejected.

    Parameters
    ----------
    everybody : Spectra
        Of K clients.
    formula : str
        One of `fl_core.relevance.FORMULAS`.
    num_eigenvectors : int
        How many of each client are compared.
    num_clusters : int, "auto", "elbow" or "silhouette"
        As in `group_by_relevance`.
    num_compared : int, optional
        If there are more clients, so many are drawn and compared with each other, and each other
        one joins the cluster that is most relevant to it; by default all are compared.
    rng : numpy.random.Generator, optional
        Draws with whom each of many clients is compared; by default from a stream of its own.
    """
    rng = rng or np.random.default_rng(0)
    strange = strangers(everybody, num_eigenvectors, rng)
    compared = usual = np.flatnonzero(strange < 0)
    if num_compared is not None and len(usual) > num_compared:
        compared = np.sort(rng.choice(usual, num_compared, replace=False))
    if not isinstance(num_clusters, str) and len(usual) < len(strange):
        num_clusters = min(num_clusters, len(compared))
    chosen = everybody[compared]
    scores = relevances(formula, chosen, chosen, num_eigenvectors)
    found = group_by_relevance(scores, num_clusters, linkage, formula=formula, self_reported=False)
    labels = strange + int(found.labels.max()) + 1
    labels[compared] = found.labels
    if len(others := np.setdiff1d(usual, compared)):
        near = relevances(formula, everybody[others], chosen, num_eigenvectors)
        labels[others] = closest_clusters(near, found.labels)
    odd = dict.fromkeys(np.flatnonzero(strange >= 0).tolist(), SHARES_NOTHING)
    return replace(found, labels=canonical_labels(labels), compared=compared, odd=odd)
