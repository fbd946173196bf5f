"""From relevances to clusters, such that an odd client costs at most itself.

RCC-PFL's Procedure 1 agglomerates what clients send. Here it is decided before whose answers count
and who has nothing to do with the others. That part is from no paper: docs/robustness.md has what
it was measured on, and the numbers that are set here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_core.relevance import PAPER
from strategies.clusterings.agglomeration import (
    NumClusters,
    agglomerate,
    average_relevance,
    canonical_labels,
    closest_clusters,
    cut_dendrogram,
    gaps,
    mean_scores,
    merge_heights,
)
from strategies.clusterings.number import evidence
from strategies.clusterings.outliers import believed_clients, strangers
from strategies.clusterings.server_relevance import Spectra, relevances

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

NumGroups = NumClusters | Literal["auto"]
"""A number of clusters, or the rule by which it is chosen; "auto": `number.evidence`."""
MOST_WEIGHED = 300
"""Clients of whom numbers of clusters are weighed where one is asked for: it takes a moment."""

# A gap between merges that overrules the number that was asked for; with 2 a liar could do so.
_FAR_WIDER = 4.0
_FEW = 100  # clients, of which a cluster of one may be chance

DISBELIEVED = "what it says of the others disagrees with what they say of it, and does not count"
SHARES_NOTHING = "its eigenvectors have next to nothing to do with the others', and it stays apart"
UNLIKE_ALL = "it is unlike all others and stays alone"


@dataclass(frozen=True, eq=False)
class RelevanceGroups:
    """Clusters by relevance, and who is odd.

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
        From client to what is odd about it.
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
    own_words: bool = True,
) -> RelevanceGroups:
    """Group clients by their relevance to each other (RCC-PFL, Procedure 1), whatever a few send.

    Clients that are believed are agglomerated. One that is not believed joins the cluster that
    finds it most relevant, if that finds it nearer to itself than to the next cluster; else it
    stays alone. Strangers stay apart, in clusters of those that are alike. Of fewer than a hundred
    clients, where nobody is odd, the clusters are those of `agglomerate`.

    Parameters
    ----------
    scores : NDArray, shape (K, K)
        r(i, j), of client j to client i.
    num_clusters : int, "auto", "elbow" or "silhouette"
        As in `agglomerate`; odd clients that stay apart come on top, and so do clusters of less
        than a hundredth of the clients (`_number_beside_few`). But a client that is alone because
        it is not believed may be one of the tasks (`_number_with_tasks_of_one`).
    formula : str
        Which relevance it is, by which "auto" knows one group.
    strange : NDArray[np.int64], shape (K,), optional
        Who shares nothing with most others, as `strangers` or `strangers_by_vectors` returns it; by
        default nobody.
    own_words : bool
        Whether row i is what client i says, which is then compared with what the others say of it.
    """
    if strange is None:
        strange = np.full(len(scores), -1)
    believed = usual = np.flatnonzero(strange < 0)
    if own_words:
        believed = usual[believed_clients(scores[np.ix_(usual, usual)])]
    doubted = np.setdiff1d(usual, believed)
    similarity = average_relevance(scores[np.ix_(believed, believed)])
    possible = _possible(num_clusters, len(believed), len(scores))
    plain = agglomerate(similarity, 1 if possible == "auto" else possible, linkage)
    merges, chosen = plain.merges, isinstance(num_clusters, str)
    found = int(plain.labels.max()) + 1
    if num_clusters == "auto":
        found = evidence(similarity, merges, formula).number
    by_rule = found if chosen else 0
    if not chosen and len(believed) <= MOST_WEIGHED:
        by_rule = evidence(similarity, merges, formula).number
    number = _number_beside_few(merges, found, chosen=chosen)
    cut = cut_dendrogram(merges, number)
    opinions = scores[np.ix_(believed, doubted)]
    joined = near_clusters(opinions, similarity, cut)
    if (alone := joined < 0).any() and not chosen:
        fewest = max(1, number - int(alone.sum()))
        apart = 1 - float(opinions[:, alone].mean(axis=0).max())
        fewer = _number_with_tasks_of_one(merge_heights(merges), fewest, number, apart)
        cut = cut_dendrogram(merges, fewer)
        joined = np.where(alone, -1, near_clusters(opinions, similarity, cut))
    labels = np.full(len(scores), -1)
    labels[believed], labels[doubted] = cut, joined
    odd = dict.fromkeys(doubted.tolist(), DISBELIEVED)
    for client in doubted[joined < 0].tolist():
        labels[client], odd[client] = labels.max() + 1, UNLIKE_ALL
    aside = np.flatnonzero(strange >= 0)
    labels[aside] = labels.max() + 1 + strange[aside]
    odd = dict(sorted((odd | dict.fromkeys(aside.tolist(), SHARES_NOTHING)).items()))
    return RelevanceGroups(canonical_labels(labels), believed, similarity, merges, odd, by_rule)


def _possible(num_clusters: NumGroups, left: int, count: int) -> NumGroups:
    """Return the number of clusters, at most one for each client left if some were set apart."""
    if left == count or isinstance(num_clusters, str):
        return num_clusters
    return min(num_clusters, left)


def near_clusters(
    opinions: NDArray[np.floating], similarity: Float64, cut: Int64
) -> NDArray[np.int64]:
    """Return the cluster that each of n clients is near to; −1: to none.

    `opinions`, shape (K, n), are how relevant K clients find them, `similarity` is R of these K,
    and `cut` are their clusters.
    """
    _, near = mean_scores(opinions.T, cut)
    best = near.argmax(axis=1)
    return np.where(near.max(axis=1) >= half_way(similarity, cut)[best], best, -1)


def half_way(similarity: Float64, clusters: Int64) -> Float64:
    """Return how similar to its clients one must be to belong to each cluster, shape (C,).

    That is half-way between how similar they are to each other and to those of the next cluster.
    A client alone in its cluster counts as similar to itself as clients of other clusters are to
    each other on average.
    """
    sizes = np.bincount(clusters)
    shares = np.eye(len(sizes))[clusters] / sizes
    between = shares.T @ similarity @ shares
    pairs = sizes * (sizes - 1)
    # Without what clients are to themselves.
    to_others = between.diagonal() * sizes**2 - np.bincount(clusters, similarity.diagonal())
    np.fill_diagonal(between, 0)
    next_best = between.max(axis=1)
    several = pairs > 0
    own = np.divide(to_others, pairs, out=next_best.copy(), where=several)
    if several.any():
        own[~several] = own[several].mean()
    return np.asarray((own + next_best) / 2, np.float64)


def _number_beside_few(merges: Float64, number: int, *, chosen: bool) -> int:
    """Return into how many clusters to cut when those of a hundredth of the clients do not count.

    With thousands of clients some stand alone by chance, and would each be one of `number`. Where
    such clusters are among them, the cut in the widest gap is taken that leaves `number` that
    count, or, if the number was chosen, two at least; unless the gap at `number` is far wider.
    """
    count = len(merges) + 1
    few = count // _FEW
    if not few or number in (1, count):
        return number
    counted = _clusters_of_more_than(few, merges)
    allowed = counted > 1 if chosen else counted == number
    numbers = np.flatnonzero(allowed[2:count]) + 2
    if allowed[number] or not len(numbers):
        return number
    wide = gaps(merges)
    best = int(numbers[wide[numbers - 2].argmax()])
    return number if wide[number - 2] > _FAR_WIDER * wide[best - 2] else best


def _clusters_of_more_than(few: int, merges: Float64) -> Int64:
    """Return how many clusters have more than `few` clients when k are left, at index k."""
    count = len(merges) + 1
    large = np.concatenate([np.zeros(count, np.int64), (merges[:, 3] > few).astype(np.int64)])
    left, right = merges[:, :2].astype(int).T
    after = np.cumsum(large[count:] - large[left] - large[right])  # of 1, 2, … merges
    return np.concatenate([[0], after[::-1], [0]])


def _number_with_tasks_of_one(heights: Float64, fewest: int, number: int, apart: float) -> int:
    """Return `number`, or fewer, from `fewest` on, if the gap between merges is far wider there.

    Then the clients that are alone are the other tasks. With missed energy, what a client says
    that is the only one of its task is chance, so it is not believed, though honest. `apart`, the
    distance to all that are believed of the nearest client that is alone, counts as one more merge.
    """
    if number > len(heights):
        return number
    wide = np.diff(np.append(heights, max(apart, heights[-1])))[::-1]  # of 1, 2, … clusters
    widest = fewest + int(wide[fewest - 1 : number].argmax())
    return widest if wide[widest - 1] > _FAR_WIDER * wide[number - 1] else number


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
    """Group clients by the relevance that the server works out, as `group_by_relevance` does.

    Strangers stay apart, in clusters of those that are alike, and are not counted. Nobody says
    anything of others, so there is nothing that could be disbelieved.

    Parameters
    ----------
    everybody : Spectra
        Of K clients.
    formula : str
        One of `strategies.clusterings.server_relevance.FORMULAS`.
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
    usual = np.flatnonzero(strange < 0)
    compared = usual
    if num_compared is not None and len(usual) > num_compared:
        compared = np.sort(rng.choice(usual, num_compared, replace=False))
    chosen = everybody[compared]
    scores = relevances(formula, chosen, chosen, num_eigenvectors)
    possible = num_clusters
    if len(usual) < len(strange):
        possible = _possible(num_clusters, len(compared), len(strange))
    others = np.setdiff1d(usual, compared)
    found = group_by_relevance(scores, possible, linkage, formula=formula, own_words=False)
    labels = strange + int(found.labels.max()) + 1
    labels[compared] = found.labels
    if len(others):
        near = relevances(formula, everybody[others], chosen, num_eigenvectors)
        labels[others] = closest_clusters(near, found.labels)
    odd = dict.fromkeys(np.flatnonzero(strange >= 0).tolist(), SHARES_NOTHING)
    return replace(found, labels=canonical_labels(labels), compared=compared, odd=odd)


def all_scores(
    clients: Sequence[int], compared: Sequence[int], answers: Mapping[int, Sequence[float]]
) -> Float64:
    """Return what each client says of each, shape (K, K): 0 of whom it was not compared with."""
    scores = np.zeros((len(clients), len(clients)))
    places = [place for place, client in enumerate(clients) if client in answers]
    # A client that fails while it compares leaves its column behind.
    columns = [place for place, client in enumerate(compared) if client in answers]
    said = [answers[clients[place]] for place in places]
    scores[np.ix_(places, places)] = np.array(said, np.float64)[:, columns]
    return scores
