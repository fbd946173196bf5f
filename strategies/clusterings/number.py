"""The number of groups: silhouettes of all cuts of a dendrogram, and a test for one group.

The silhouette is undefined for one cluster, so a test from no paper comes first. Pure functions
over arrays; labels are never used. docs/grouping.md has where they are wrong.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import eigsh

from fl_core.relevance import PAPER

Float64 = NDArray[np.float64]

# At most so much is chance or skew among clients of one group.
_ONE_BY_EIGENVALUE = 0.045
_ONE_BY_SILHOUETTE = 0.4
_NOTHING = 1e-9  # in place of no relevance to anybody, by which nothing could be divided
_MOST_EXACT = 1_000  # clients; of more, the eigenvalue is found by iterations
_ROUNDING = 9  # decimals: of equals the first is taken, and sums differ in their last bits


class Evidence(NamedTuple):
    """What speaks for each number of groups."""

    scores: Float64  # the mean silhouette of 2, 3, …, K − 1 groups
    distance: float  # the distance of clients, by `measure`
    most: float  # above it, there is more than one group
    measure: str

    @property
    def number(self) -> int:
        """Return the number of groups that the evidence is for."""
        several = self.scores.max(initial=0) > 0 and self.distance > self.most
        return _number_of_highest(self.scores) if several else 1


def evidence(similarity: Float64, merges: Float64, formula: str) -> Evidence:
    """Weigh the numbers of groups by R, shape (K, K), symmetric, in [0, 1], and its dendrogram.

    The paper's relevance has an absolute scale, on which noise within a group and distance between
    groups differ, so `second_eigenvalue` decides whether there is one group. Missed energy is
    relative: where all clients are similar, chance is stretched to the same scale, but then makes
    no compact groups, so the highest silhouette decides.
    """
    distances = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distances, 0)
    scores = silhouettes(distances, merges)
    if formula == PAPER:
        value = second_eigenvalue(similarity)
        return Evidence(scores, value, _ONE_BY_EIGENVALUE, "second eigenvalue")
    return Evidence(scores, float(scores.max(initial=0)), _ONE_BY_SILHOUETTE, "highest silhouette")


def best_silhouette(distances: Float64, merges: Float64) -> int:
    """Return the number of clusters, 2 to K − 1, with the highest mean silhouette, or the first."""
    return _number_of_highest(silhouettes(distances, merges))


def _number_of_highest(scores: Float64) -> int:
    return 2 + int(scores.round(_ROUNDING).argmax()) if len(scores) else 2


def silhouettes(distances: Float64, merges: Float64) -> Float64:
    """Return the mean silhouette of 2, 3, …, K − 1 clusters (P. J. Rousseeuw, 1987).

    Scikit-learn's costs K² for one cut, this for all together, since a merge moves few: the mean
    distance to two clusters that become one lies between those to either, so a client that was
    nearest to a third still is. `distances`, shape (K, K), have a zero diagonal; `merges` are
    scipy's.
    """
    count = len(distances)
    clients = np.arange(count)
    sums = distances.copy()  # row c: from each client to all of cluster c
    sizes, cluster = np.ones(count, np.int64), clients.copy()
    left = clients.copy()  # rows that are clusters still
    row_of = {client: client for client in range(count)}
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    nearest, near = others.argmin(axis=0), others.min(axis=0)
    scores = []
    for step, (one, other) in enumerate(merges[:-1, :2].astype(int).tolist()):
        joined, gone = row_of.pop(one), row_of.pop(other)
        row_of[count + step] = joined
        sums[joined] += sums[gone]
        sizes[joined] += sizes[gone]
        cluster[cluster == gone] = joined
        left = left[left != gone]
        moved = np.flatnonzero((nearest == joined) | (nearest == gone))
        means = sums[np.ix_(left, moved)] / sizes[left, None]
        means[left[:, None] == cluster[moved]] = np.inf
        nearest[moved], near[moved] = left[means.argmin(axis=0)], means.min(axis=0)
        within = sums[cluster, clients] / np.maximum(sizes[cluster] - 1, 1)
        scale = np.maximum(within, near)
        alone = sizes[cluster] == 1
        scores.append(np.where(alone, 0, (near - within) / np.where(scale > 0, scale, 1)).mean())
    return np.array(scores, np.float64)[::-1]


def second_eigenvalue(similarity: Float64) -> float:
    """Return λ₂ of D^(−1/2) S D^(−1/2), in [0, 1], S being R with its rows' means on the diagonal.

    D are S's row sums. Of clients that are exchangeable, R is one value plus noise of deviation σ:
    the value makes λ₁ = 1 and nothing else, the noise λ₂ ≈ 2σ/(mean·√K), which is small for any K.
    M groups of one size with relevance w within and b between make λ₂ = (w − b)/(w + (M − 1) b)
    where they are large, for any K. A zero diagonal would subtract about 1/K. Of two clients it is
    0.
    """
    count = len(similarity)
    if count < 3:
        return 0.0
    filled = np.array(similarity, np.float64)
    np.fill_diagonal(filled, 0)
    totals = np.maximum(filled.sum(axis=1), _NOTHING)
    np.fill_diagonal(filled, totals / (count - 1))
    roots = np.sqrt(filled.sum(axis=1))
    filled /= np.multiply.outer(roots, roots)
    # The first eigenvector is known, so it is taken out, which leaves the second as the largest.
    first = roots / np.linalg.norm(roots)
    filled -= np.multiply.outer(first, first)
    if count <= _MOST_EXACT:
        largest = eigvalsh(filled, subset_by_index=[count - 1, count - 1])
    else:
        start = np.random.default_rng(0).normal(size=count)
        largest = eigsh(filled, 1, which="LA", v0=start, tol=1e-4, return_eigenvectors=False)
    return float(largest[0])
