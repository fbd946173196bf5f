"""How many groups clients form by their relevance to each other, one among them.

Pure functions over arrays. No paper's: docs/grouping.md has what they were measured on, and where
they err. Labels are never used.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh
from scipy.sparse.linalg import eigsh

from fl_core.relevance import PAPER
from strategies.clusterings.silhouettes import balanced_silhouettes, number_of_highest

Float64 = NDArray[np.float64]

# At most so much is chance or skew among clients of one group (benchmarks.how_many).
_ONE_BY_EIGENVALUE = 0.045
_ONE_BY_SILHOUETTE = 0.3
_NOTHING = 1e-9  # in place of no relevance to anybody, by which nothing could be divided
_MOST_EXACT = 1_000  # clients; of more, the eigenvalue is found by iterations


class Evidence(NamedTuple):
    """What speaks for each number of groups.

    Attributes
    ----------
    scores : NDArray[np.float64], shape (K − 2,)
        Of 2, 3, …, K − 1 groups: see `balanced_silhouettes`.
    apart, least : float
        How far apart clients lie, and how far one group's can: above it, there are more than one.
    measure : str
        What `apart` is, in words.
    """

    scores: Float64
    apart: float
    least: float
    measure: str

    @property
    def number(self) -> int:
        """Return the number of groups that the evidence is for."""
        apart = self.scores.max(initial=0) > 0 and self.apart > self.least
        return number_of_highest(self.scores) if apart else 1


def evidence(similarity: Float64, merges: Float64, formula: str) -> Evidence:
    """Weigh the numbers of groups.

    The paper's relevance has a scale of its own, on which noise within a group and distance between
    groups differ, so one group is told by `second_eigenvalue`. Missed energy is relative: where
    all clients are alike, chance is stretched to the same scale, but then makes no compact groups.

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (K, K)
        R, symmetric, in [0, 1]. The diagonal is not used.
    merges : NDArray[np.float64], shape (K − 1, 4)
        Their dendrogram, as scipy writes it.
    formula : str
        By which R was found: `relevance` in docs/options.md.
    """
    distances = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distances, 0)
    scores = balanced_silhouettes(distances, merges)
    if formula == PAPER:
        value, least = second_eigenvalue(similarity), _ONE_BY_EIGENVALUE
        return Evidence(scores, value, least, "second eigenvalue")
    return Evidence(scores, float(scores.max(initial=0)), _ONE_BY_SILHOUETTE, "highest score")


def second_eigenvalue(similarity: Float64) -> float:
    """Return λ₂ of D^(−1/2) S D^(−1/2), S being R with the mean of its row on the diagonal.

    D are S's row sums. Of clients that are exchangeable, R is one value plus noise of deviation σ:
    the value makes λ₁ = 1 and nothing else, the noise λ₂ ≈ 2σ/(mean·√K), which is small for any K.
    M groups of one size with relevance w within and b between make λ₂ = (w − b)/(w + (M − 1) b)
    where they are large, whatever K is. A zero diagonal would subtract about 1/K.

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (K, K)
        Symmetric, not negative. The diagonal is not used.

    Returns
    -------
    float
        From 0 to 1; 0 for fewer than three clients.
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
