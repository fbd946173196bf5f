"""Protect a clustering by relevance from clients that lie, or are outliers.

From no paper; docs/robustness.md has what it was measured on, and the numbers that are set here.
Strangers are separated by their eigenvectors, before clients compare themselves. Clients with
scores that contradict the others' are not trusted, and join a cluster by the others' scores.
Clusters of very few clients do not count towards the number of clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fl_core.relevance import Spectra, captured_energies, smallest_angles
from strategies.clusterings.agglomeration import canonical_labels, gaps, mean_scores

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

# An honest client's scores go along with the others' scores of it. Where all clients are similar
# there is nothing to go along with, so they must also disagree by more than chance: by √2/6, where
# both have the standard deviation that `fl_core.relevance.relative_scores` gives them, 1/6. Scores
# drawn from [0, 1] disagree by 0.29 or so; of honest clients 0.21 at most was seen.
_LEAST_AGREEMENT = 0.5
_MOST_DISAGREEMENT = 2**0.5 / 6
_USUAL_DISAGREEMENT = 2.0  # times the usual: with noise all scores are far off
# Times the median client's standard deviation: less is the same score for all, and nearly the
# same. Honest clients had 0.10 at least; below 0.4, their levels were 0.13 off, of images, and 0.22
# where clients record signals of very different strength.
_LEAST_SPREAD = 0.05
_LITTLE_SPREAD = 0.4
_MEDIAN_OF_NORMAL = 0.6745  # the median of |x| for x normal with standard deviation 1
_FEWEST_JUDGED = 8  # clients; a correlation over fewer says little
# Of each other's energy, clients that see something similar capture more: of two with images of one
# class each 0.18 at least, in 120 usual federations 0.54. A random basis, 5 of 324, captures 0.015.
# Of the nearest direction alone 0.3 at least, and by chance, 5 of 324, 0.06.
_NOTHING_SHARED = 0.1
_LEADING = 5  # eigenvectors; by chance, 20 of 324 share as much as 0.24 of a direction
_SAME_STRANGENESS = 0.5
# Where five tasks or more have little in common, all share next to nothing with most others, but
# honest clients of 30 and 100 standardised images 0.16 at least, and mostly above 0.3, with
# a client of their task; a random basis, 20 of 196, had 0.07 at most, of 20 in all.
_RELATED = 0.2
_COMPARED_WITH = 200  # clients, that each may be found to be a stranger to
_MOST_STRANGERS = 2_000
_SHARE_OF_A_TASK = 0.25
# A gap between merges that overrules the number that was requested; with 2 a liar could do so.
_FAR_WIDER = 4.0
_FEW = 100  # clients, of which a cluster of one may be chance


def strangers(spectra: Spectra, num_eigenvectors: int, rng: np.random.Generator) -> Int64:
    """Return the kind of each client that shares nothing with most others, shape (K,); −1: none.

    Strangers that share something with one another have the same number, from 0. A client is a
    stranger if the median of what it and another capture of each other's energy, the smaller of the
    two, is very small. But a kind is none if a quarter of all clients are of it, which is a task,
    or if half of it are related to another client, with which they share a task; and if half of all
    clients are strangers, none is. `num_eigenvectors` capture; `rng` draws with
    which others each of many clients is compared.
    """

    def mutually_captured(one: Int64, other: Int64) -> Float64:
        few, many = spectra[one], spectra[other]
        ours = captured_energies(few, many, num_eigenvectors)
        theirs = captured_energies(many, few, num_eigenvectors)
        return np.minimum(ours, theirs.T).astype(np.float64)

    return _strangers(len(spectra.widths), mutually_captured, rng)


def outliers_by_vectors(vectors: Sequence[NDArray[np.float32]], rng: np.random.Generator) -> Int64:
    """Return `strangers` by K clients' eigenvectors alone, shapes (d, k_j), without eigenvalues.

    Two clients share cos²θ, θ being the smallest angle between the spans of the leading
    eigenvectors of either: how much of any direction in the one the other captures at most.
    """
    spectra = Spectra.of_vectors([one[:, :_LEADING] for one in vectors])

    def shared(one: Int64, other: Int64) -> Float64:
        angles = smallest_angles(spectra[one], spectra[other], _LEADING)
        cosines: Float64 = np.cos(angles, dtype=np.float64)
        return cosines**2

    return _strangers(len(vectors), shared, rng)


def _strangers(
    count: int, shared: Callable[[Int64, Int64], Float64], rng: np.random.Generator
) -> Int64:
    """Return strangers by what some clients share with others, in [0, 1], as a matrix."""
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
        _, kinds = connected_components(similarity > _SAME_STRANGENESS, directed=False)
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
    of another level. The worst is rejected first, then the others are judged without it, since
    liars score all clients. Of fewer than eight clients, or if no more than half would be left, all
    are trusted.

    `scores`, shape (K, K): row i is client i's.
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

    A client of few images has poor eigenvectors, which all score low, while it scores as others do.
    So r(i, j) − r(j, i) is compared without the means of i's and j's: first comes the root of each
    client's mean square of what is left. Then how far its level, the mean of its scores, is from
    the median level or from that of the others' scores of it, whichever is nearer. Then the
    standard deviation of all that is left, by its median, which a few liars hardly change.
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
    """Return the cluster that each of n clients is near to; −1: none.

    `opinions`, shape (K, n), are how relevant K clients find them, `similarity` is R of these K,
    and `clusters` are theirs.
    """
    _, near = mean_scores(opinions.T, clusters)
    best = near.argmax(axis=1)
    return np.where(near.max(axis=1) >= half_way(similarity, clusters)[best], best, -1)


def half_way(similarity: Float64, clusters: Int64) -> Float64:
    """Return how similar to its clients a member of each cluster must be, shape (C,).

    That is half-way between how similar they are to each other and to those of the next cluster. A
    client alone in its cluster counts as similar to itself as clients of other clusters are to each
    other on average.
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
    within = np.divide(to_others, pairs, out=next_best.copy(), where=several)
    if several.any():
        within[~several] = within[several].mean()
    return np.asarray((within + next_best) / 2, np.float64)


def number_beside_few(merges: Float64, number: int, *, is_chosen: bool) -> int:
    """Return into how many clusters to cut when those of a hundredth of the clients do not count.

    With thousands of clients some are alone by chance, and would each be one of `number`. Where
    such clusters are among them, the cut in the widest gap is taken that leaves `number` that
    count, or, if a rule chose the number, two at least; unless the gap at `number` is far wider.
    """
    count = len(merges) + 1
    few = count // _FEW
    if not few or number in (1, count):
        return number
    counted = _clusters_of_more_than(few, merges)
    allowed = counted > 1 if is_chosen else counted == number
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
