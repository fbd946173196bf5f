"""Protect a clustering by relevance from clients that lie, or are outliers (`outliers=separate`).

From no paper; docs/comparing-clients.md has what it was measured on, and the numbers of this file.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fl_core.relevance import PAPER, Spectra, smallest_angles
from strategies.clusterings.agglomeration import (
    canonical_labels,
    cut_dendrogram,
    gaps,
    half_way,
    mean_scores,
)
from strategies.clusterings.relevance_groups import NumGroups, RelevanceGroups, group_by_relevance

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

KEEP, SEPARATE = "keep", "separate"
CONTRADICTORY = "its scores contradict the other clients' scores of it, and are ignored"
SHARES_NOTHING = "its eigenvectors share no subspace with the others', and its cluster is separate"
UNRELATED = "it is similar to no other client, and is alone in its cluster"

# An honest client's scores correlate with the others' scores of it. Where all clients are similar,
# nothing correlates, so they must also disagree by more than chance: by √2/6, where both have the
# standard deviation that `fl_core.relevance.relative_scores` gives them, 1/6. Scores drawn from
# [0, 1] disagree by 0.29 or so; of honest clients 0.21 at most was seen.
_LEAST_AGREEMENT = 0.5
_MOST_DISAGREEMENT = 2**0.5 / 6
_USUAL_DISAGREEMENT = 2.0  # times the usual: with noise all scores are far off
# Times the median client's standard deviation: less is the same score for all, and nearly the
# same. Honest clients had 0.10 at least; below 0.4, their levels were 0.13 off, of images, and 0.22
# where clients record signals of very different strength.
_LEAST_SPREAD, _LITTLE_SPREAD = 0.05, 0.4
_MEDIAN_OF_NORMAL = 0.6745  # the median of |x| for x normal with standard deviation 1
_FEWEST_JUDGED = 8  # clients; a correlation over fewer says little
# Two clients with images of one class each shared 0.3 at least; random bases, 5 of 324, 0.06.
_NOTHING_SHARED = 0.1
_LEADING = 5  # eigenvectors; by chance, 20 of 324 share as much as 0.24
_SAME_KIND = 0.5
# With a client of their task, honest clients of 30 and 100 images shared 0.16 at least, and mostly
# above 0.3; a random basis, 20 of 196, had 0.07 at most.
_RELATED = 0.2
_COMPARED_WITH = 200  # clients, that each may be found to be a stranger to
_MOST_STRANGERS = 2_000
_SHARE_OF_A_TASK = 0.25
_FAR_WIDER = 4.0  # a gap between merges that overrules the number; with 2 a liar could do so
_FEW = 100  # clients, of which a cluster of one may be chance


def group_without_outliers(
    scores: NDArray[np.floating],
    kinds: Int64,
    num_clusters: NumGroups,
    linkage: str = "average",
    formula: str = PAPER,
    *,
    self_reported: bool = True,
) -> RelevanceGroups:
    """Group the clients that can be trusted, as `group_by_relevance` does, then the others.

    A client that is not trusted joins the cluster that finds it most relevant, if it is near; else
    it stays alone. Strangers are in clusters of those of their kind (`kinds`, as of `strangers`).
    Both, and clusters of at most a hundredth of the clients, come on top of a requested number of
    clusters. With `self_reported`, row i is client i's, and is compared with the others' scores of
    it.
    """
    compared = usual = np.flatnonzero(kinds < 0)
    if self_reported:
        compared = usual[trusted_clients(scores[np.ix_(usual, usual)])]
    is_chosen = isinstance(num_clusters, str)
    if not isinstance(num_clusters, str) and len(compared) < len(scores):
        num_clusters = min(num_clusters, len(compared))
    found = group_by_relevance(scores[np.ix_(compared, compared)], num_clusters, linkage, formula)
    number = number_beside_few(found.merges, int(found.labels.max()) + 1, is_chosen=is_chosen)
    cut = cut_dendrogram(found.merges, number)

    rejected, separate = np.setdiff1d(usual, compared), np.flatnonzero(kinds >= 0)
    joined = near_clusters(scores[np.ix_(compared, rejected)], found.similarity, cut)
    alone = np.cumsum(joined < 0) + number - 1
    labels = kinds + number + int((joined < 0).sum())
    labels[compared], labels[rejected] = cut, np.where(joined < 0, alone, joined)
    outliers = dict.fromkeys(separate.tolist(), SHARES_NOTHING)
    outliers |= dict.fromkeys(rejected.tolist(), CONTRADICTORY)
    outliers |= dict.fromkeys(rejected[joined < 0].tolist(), UNRELATED)
    return replace(
        found,
        labels=canonical_labels(labels),
        compared=compared,
        outliers=dict(sorted(outliers.items())),
    )


def strangers(spectra: Spectra, rng: np.random.Generator) -> Int64:
    """Return the kind of each client that shares nothing with most others, shape (K,); −1: none.

    Two clients share cos²θ, θ being the smallest angle between the spans of their leading
    eigenvectors. A stranger shares very little with the median client; similar ones have the same
    number, from 0. But a kind is none if a quarter of all clients are of it, or if half of it are
    related to another client: it is a task, or part of one. If half of all clients are strangers,
    none is. `rng` draws with which others each of many clients is compared.
    """
    count, spectra = len(spectra.widths), spectra.leading(_LEADING)

    def shared(some: Int64, others: Int64) -> Float64:
        angles = smallest_angles(spectra[some], spectra[others], _LEADING)
        cosines: Float64 = np.cos(angles, dtype=np.float64)
        return cosines**2

    clients = asked = np.arange(count)
    if count > _COMPARED_WITH:
        asked = np.sort(rng.choice(count, _COMPARED_WITH, replace=False))
    mutual = shared(clients, asked)
    mutual[asked, np.arange(len(asked))] = np.nan
    found = np.full(count, -1)
    if len(asked) < 3:
        return found
    candidates = np.flatnonzero(np.nanmedian(mutual, axis=1) < _NOTHING_SHARED)
    if 2 * len(candidates) >= count or not len(candidates):
        return found
    kinds = np.zeros(len(candidates), np.int64)
    if len(candidates) <= _MOST_STRANGERS:  # more are not compared with each other
        similarity = shared(candidates, candidates)
        _, kinds = connected_components(similarity > _SAME_KIND, directed=False)
    of_kind = np.bincount(kinds)
    few = of_kind[kinds] < _SHARE_OF_A_TASK * count
    others = ~np.isin(asked, candidates[few])
    related = (mutual[np.ix_(candidates, others)] > _RELATED).any(axis=1)
    separate = few & (2 * np.bincount(kinds, related) < of_kind)[kinds]
    found[candidates[separate]] = canonical_labels(kinds[separate])
    return found


def trusted_clients(scores: NDArray[np.floating]) -> Int64:
    """Return, ascending, the clients with scores that agree with the others' scores of them.

    Relevance is nearly mutual, so client i's scores, r(i, ·), correlate with the others' scores of
    it, r(·, i). A client is not trusted if it gives all clients the same score; or if its scores do
    not correlate and disagree by more than chance does, or are nearly the same for all clients and
    of another level. The worst is rejected first, then the others are judged without it. Of fewer
    than eight clients, or if no more than half would be left, all are trusted.
    """
    clients = np.arange(len(scores))
    left = clients
    while len(scores) >= _FEWEST_JUDGED and 2 * len(left) > len(scores):
        said = scores[np.ix_(left, left)].astype(np.float64)
        spreads = said.std(axis=1, where=~np.eye(len(left), dtype=bool))
        same, little = (
            spreads < part * np.median(spreads) for part in (_LEAST_SPREAD, _LITTLE_SPREAD)
        )
        distances, levels, usual = _disagreements(said)
        far = distances > max(_MOST_DISAGREEMENT, _USUAL_DISAGREEMENT * usual)
        far |= little & (levels > _MOST_DISAGREEMENT)
        suspects = same | (far & (_agreements(said) < _LEAST_AGREEMENT))
        if not suspects.any():
            return left
        # Of many, several at a time; first those with one score for all.
        doubts = np.where(suspects, distances + levels + same, -1)
        worst = np.argsort(-doubts, kind="stable")[: 1 + len(left) // 50]
        left = np.delete(left, [one for one in worst if suspects[one]])
    return clients


def _disagreements(said: Float64) -> tuple[Float64, Float64, float]:
    """Return how far each client's scores are from the others' scores of it, and what is usual.

    All score a client of few images low, so r(i, j) − r(j, i) is taken without the means of i's and
    j's. Returned are each client's root mean square of what is left; how far its mean score is from
    the median client's or the others' of it, whichever is nearer; and the deviation of all that is
    left.
    """
    count = len(said)
    others = ~np.eye(count, dtype=bool)
    differences = said - said.T
    offsets = differences.sum(axis=1) / count
    rest = differences - np.subtract.outer(offsets, offsets)
    distances = np.sqrt((rest**2).sum(axis=1) / (count - 1))
    levels = said.mean(axis=1, where=others)
    far = np.minimum(np.abs(levels - np.median(levels)), np.abs(offsets))
    return distances, far, float(np.median(np.abs(rest[others])) / _MEDIAN_OF_NORMAL)


def _agreements(said: Float64) -> Float64:
    """Return the correlation of each row with its column, without the diagonal; 0 if constant."""
    count = len(said)
    others = ~np.eye(count, dtype=bool)
    rows, columns = (part[others].reshape(count, count - 1) for part in (said, said.T))
    rows, columns = (part - part.mean(axis=1, keepdims=True) for part in (rows, columns))
    scale = np.sqrt((rows**2).sum(axis=1) * (columns**2).sum(axis=1))
    products = (rows * columns).sum(axis=1)
    found: Float64 = np.divide(products, scale, out=np.zeros(count), where=scale > 1e-9)
    return found


def near_clusters(opinions: NDArray[np.floating], similarity: Float64, clusters: Int64) -> Int64:
    """Return which of K clients' `clusters` n others, `opinions` (K, n), are near to; −1: none."""
    _, near = mean_scores(opinions.T, clusters)
    best = near.argmax(axis=1)
    return np.where(near.max(axis=1) >= half_way(similarity, clusters)[best], best, -1)


def number_beside_few(merges: Float64, number: int, *, is_chosen: bool) -> int:
    """Return into how many clusters to cut when those of a hundredth of the clients do not count.

    With thousands of clients some are alone by chance. The cut in the widest gap is taken that
    leaves `number` that count, or two at least if a rule chose it, unless the gap at `number` is
    far wider.
    """
    count = len(merges) + 1
    few = count // _FEW
    if not few or number in (1, count):
        return number
    is_large = np.concatenate([np.zeros(count, np.int64), (merges[:, 3] > few).astype(np.int64)])
    left, right = merges[:, :2].astype(int).T
    # How many count when 1, 2, …, K − 1 clusters are left
    counted = np.cumsum(is_large[count:] - is_large[left] - is_large[right])[::-1]
    allowed = counted > 1 if is_chosen else counted == number
    numbers = np.flatnonzero(allowed[1:]) + 2
    if allowed[number - 1] or not len(numbers):
        return number
    wide = gaps(merges)
    best = int(numbers[wide[numbers - 2].argmax()])
    return number if wide[number - 2] > _FAR_WIDER * wide[best - 2] else best
