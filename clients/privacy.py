"""Gaussian noise on what a client shares before training (docs/privacy.md).

One number, sigma, says how much, measured against one: an eigenvector has length 1, and no score is
above 1. So it means the same for features of any dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def noisy_eigenvectors(vectors: Float32, sigma: float, rng: np.random.Generator) -> Float32:
    """Return the nearest orthonormal columns to the eigenvectors with Gaussian noise added.

    Each entry's noise is independent and has the standard deviation σ/√d, so that the noise on one
    eigenvector is about σ long where the eigenvector is 1 long. Nearest: the orthogonal factor of
    the polar decomposition, so the server, which refuses columns that are not orthonormal, sees
    what it would see without noise. It needs the noisy columns alone, so it takes back none of
    their privacy.

    Parameters
    ----------
    vectors : NDArray[np.float32], shape (d, k)
        Orthonormal columns, k at most d.
    sigma : float
        At least 0. With 0 the vectors themselves are returned and nothing is drawn.
    """
    if not sigma:
        return vectors
    noise = rng.standard_normal(vectors.shape) * (sigma / np.sqrt(len(vectors)))
    left, _, right = np.linalg.svd(vectors + noise, full_matrices=False)
    return np.ascontiguousarray(left @ right, dtype=np.float32)


def noisy_eigenvalues(
    values: NDArray[np.float64], sigma: float, rng: np.random.Generator
) -> Float32:
    """Return eigenvalues with Gaussian noise of deviation σ·λ_1/√k on each, descending, above 0.

    Parameters
    ----------
    values : NDArray[np.float64], shape (k,)
        Descending.
    sigma : float
        At least 0. With 0 nothing is drawn.
    """
    if sigma:
        noise = rng.standard_normal(len(values)) * (sigma * values[0] / np.sqrt(len(values)))
        values = np.sort(np.maximum(values + noise, values[0] * 1e-6))[::-1]
    return np.ascontiguousarray(values, dtype=np.float32)


def noisy_relevances(
    scores: Sequence[float], sigma: float, rng: np.random.Generator
) -> list[float]:
    """Return the scores, r(i, j), with independent Gaussian noise of deviation σ, cut to [0, 1].

    Without noise, the scores themselves are returned and nothing is drawn.
    """
    if not sigma:
        return list(scores)
    noisy = np.asarray(scores, np.float64) + sigma * rng.standard_normal(len(scores))
    return [float(score) for score in np.clip(noisy, 0, 1)]


def noise_generator(*entropy: int, real_device: bool) -> np.random.Generator:
    """Return what a client draws its noise from: the same numbers again, in a simulation only.

    A server knows the seed that it sends. With noise drawn from that seed it could draw the same
    noise and take it off again, so a real device asks its operating system for entropy.
    """
    return np.random.default_rng(None if real_device else entropy)
