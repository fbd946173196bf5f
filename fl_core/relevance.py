"""From eigenvalues and energies to relevances in [0, 1]: what clients and server both compute.

Labels never enter.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

PAPER, MISSED_ENERGY = "paper", "missed-energy"

# How many eigenvectors each is best with on the images and features of docs/relevance.md.
USUAL_EIGENVECTORS: Mapping[str, int] = {PAPER: 20, MISSED_ENERGY: 5}

Float64 = NDArray[np.float64]

# A missed energy below this is rounding: the largest miss of a client's own eigenvectors, which
# miss nothing, was 5e-8 on real images, and the smallest of another client's 3e-4.
_NOTHING_MISSED = 1e-6
# A standard deviation of log m below this is rounding too; on real images it was 0.1 to 3.
_NO_SPREAD = 1e-3
# Beyond so many standard deviations a client counts as the farthest or the nearest there is.
_FARTHEST = 3.0


def eigenvalue_agreement(own: Float64, estimated: Float64, shared: NDArray[np.int64]) -> Float64:
    """Return the geometric mean of min(λ, λ̂)/max(λ, λ̂) (RCC-PFL, equations 3 and 4).

    Parameters
    ----------
    own : NDArray[np.float64], shape (..., k)
        λ, descending.
    estimated : NDArray[np.float64], shape (..., k)
        λ̂, of another client's eigenvectors.
    shared : NDArray[np.int64], shape (...)
        How many of the k, from the first on, both clients have; the others are not used.

    Returns
    -------
    NDArray[np.float64], shape (...)
        In [0, 1]; in log space, where the product of many small ratios does not vanish.
    """
    counted = np.arange(own.shape[-1]) < shared[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        # log 0 = −∞ is right: no variance, no relevance.
        logs = np.log(np.minimum(own, estimated) / np.maximum(own, estimated))
    means: Float64 = np.where(counted, logs, 0).sum(axis=-1) / shared
    return np.exp(means)


def relative_scores(missed: Float64, nothing: float = _NOTHING_MISSED) -> Float64:
    """Return r_j = 1/2 + z_j/6, cut to [0, 1], of missed energies m_j (docs/relevance.md).

    z_j is how many standard deviations log m_j lies below its mean over those that miss anything;
    the others have r_j = 1.

    Parameters
    ----------
    missed : NDArray[np.float64], shape (..., K)
        Compared along the last axis.
    nothing : float
        A missed energy below this is rounding.
    """
    others = missed > nothing
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1)
    logs = np.log(missed, out=np.zeros_like(missed), where=others)
    mean = logs.sum(axis=-1, keepdims=True) / count
    squares = np.where(others, (logs - mean) ** 2, 0)
    spread = np.maximum(np.sqrt(squares.sum(axis=-1, keepdims=True) / count), _NO_SPREAD)
    compared = np.clip(0.5 + (mean - logs) / (2 * _FARTHEST * spread), 0, 1)
    return np.where(others, compared, 1.0)
