"""From relevances to clusters: Procedure 1 of RCC-PFL on the clients that can be compared.

`strategies.clusterings.outliers` finds these, and handles the others.
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

CONTRADICTORY = "its scores contradict the other clients' scores of it, and are ignored"
SHARES_NOTHING = "its eigenvectors share no subspace with the others', and its cluster is separate"
UNRELATED = "it is similar to no other client, and is alone in its cluster"


@dataclass(frozen=True, eq=False)
class RelevanceGroups:
    """Clusters by relevance, and the outliers."""

    labels: Int64  # canonical, shape (K,)
    compared: Int64  # the clients that were agglomerated, ascending, shape (n,)
    similarity: Float64  # R of these, shape (n, n)
    merges: Float64  # their dendrogram, as scipy writes it, shape (n − 1, 4)
    outliers: dict[int, str]  # why clients are outliers
    # The number of clusters that the rule chose, before others came on top; of a requested number,
    # what "auto" would choose, or 0 of more than `MOST_WEIGHED` clients
    by_rule: int


def group_by_relevance(
    scores: NDArray[np.floating],
    num_clusters: NumGroups,
    linkage: str = "average",
    *,
    formula: str = PAPER,
    kinds: Int64 | None = None,
    self_reported: bool = True,
) -> RelevanceGroups:
    """Group clients by their relevance to each other (RCC-PFL, Procedure 1).

    Trusted clients are agglomerated. A client that is not trusted joins the cluster that finds it
    most relevant, if it is near (`near_clusters`); else it stays alone. Strangers are separate, in
    clusters of those that are similar. Of fewer than a hundred clients without an outlier, the
    clusters are those of `agglomerate`.

    Parameters
    ----------
    scores : NDArray, shape (K, K)
        r(i, j), of client j to client i.
    num_clusters : int, "auto", "elbow" or "silhouette"
        As in `agglomerate`. Clusters of outliers come on top, and so do clusters of less than a
        hundredth of the clients (`number_beside_few`).
    formula : str
        Which relevance it is, by which "auto" decides on one group.
    kinds : NDArray[np.int64], shape (K,), optional
        The strangers, as `strangers` or `outliers_by_vectors` returns them; by default none.
    self_reported : bool
        Whether row i is reported by client i, and so compared with the others' scores of it.
    """
    if kinds is None:
        kinds = np.full(len(scores), -1)
    compared = usual = np.flatnonzero(kinds < 0)
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
    outliers = dict.fromkeys(rejected.tolist(), CONTRADICTORY)
    for client in rejected[joined < 0].tolist():
        labels[client], outliers[client] = labels.max() + 1, UNRELATED
    separate = np.flatnonzero(kinds >= 0)
    labels[separate] = labels.max() + 1 + kinds[separate]
    outliers = dict(sorted((outliers | dict.fromkeys(separate.tolist(), SHARES_NOTHING)).items()))
    return RelevanceGroups(
        canonical_labels(labels), compared, similarity, plain.merges, outliers, by_rule
    )


def group_by_eigenpairs(
    spectra: Spectra,
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
    spectra : Spectra
        Of K clients.
    num_eigenvectors : int
        How many of each client are compared.
    num_compared : int, optional
        If there are more clients, so many are drawn and compared with each other, and each other
        one joins the cluster that is most relevant to it; by default all are compared.
    rng : numpy.random.Generator, optional
        Draws with which others each of many clients is compared; by default from a fixed seed.
    """
    rng = rng or np.random.default_rng(0)
    kinds = strangers(spectra, num_eigenvectors, rng)
    compared = usual = np.flatnonzero(kinds < 0)
    if num_compared is not None and len(usual) > num_compared:
        compared = np.sort(rng.choice(usual, num_compared, replace=False))
    if not isinstance(num_clusters, str) and len(usual) < len(kinds):
        num_clusters = min(num_clusters, len(compared))
    chosen = spectra[compared]
    scores = relevances(formula, chosen, chosen, num_eigenvectors)
    found = group_by_relevance(scores, num_clusters, linkage, formula=formula, self_reported=False)
    labels = kinds + int(found.labels.max()) + 1
    labels[compared] = found.labels
    if len(others := np.setdiff1d(usual, compared)):
        near = relevances(formula, spectra[others], chosen, num_eigenvectors)
        labels[others] = closest_clusters(near, found.labels)
    outliers = dict.fromkeys(np.flatnonzero(kinds >= 0).tolist(), SHARES_NOTHING)
    return replace(found, labels=canonical_labels(labels), compared=compared, outliers=outliers)
