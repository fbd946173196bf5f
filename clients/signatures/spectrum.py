"""The client's half of one-shot spectral clustering: Gram matrix, eigenvectors, relevance.

RCC-PFL Procedure 1 (equations 1 to 4), which is MT-HFL Algorithm 2. Labels never enter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fl_core.relevance import Spectra, relevances

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

MOST_DIMENSIONS = 20_000
"""The largest dimension of a Gram matrix, of 1.6 GB."""

_FEW = 1_000
"""Rows of a matrix of which all eigenpairs are computed in any case, in a second. Of 2,000 samples
with 3,072 dimensions all take 7 s, and the ten leading ones 2 s."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A client's second moment."""

    whole: Spectra  # all the Gram matrix's eigenpairs, or the leading ones; they stay here
    eigenvalues: Float64  # the k leading ones, descending
    eigenvectors: Float32  # their unit eigenvectors, shape (d, k): all that is uploaded


def gram_matrix(features: Float32) -> Float32:
    """Return G = ΦᵀΦ/n, shape (d, d), of features Φ, shape (n, d) (RCC-PFL, equation 1)."""
    _check_count_of_samples(features)
    if (dimension := features.shape[1]) > MOST_DIMENSIONS:
        raise ValueError(
            f"the client's features have {dimension:,} dimensions, but its Gram matrix can have "
            f"{MOST_DIMENSIONS:,} at most: choose other features, or smaller samples."
        )
    with np.errstate(over="ignore", invalid="ignore"):  # said below
        gram = features.T @ features / np.float32(len(features))
    _check_finite(features, gram)
    return gram


def _check_count_of_samples(features: Float32) -> None:
    if not len(features):
        raise ValueError("the client has no samples, so it has no spectrum: give it at least one.")


def _check_finite(features: Float32, products: Float32) -> None:
    """Refuse features by their products, which are infinite if one of them is, or too large."""
    if np.isfinite(products).all():
        return
    if np.isfinite(features).all():
        raise ValueError(
            "the client's features are too large to be squared: bring its samples to a smaller "
            "scale."
        )
    raise ValueError("the client's features are not all finite: check its samples.")


def leading_spectrum(
    features: Float32, num_eigenvectors: int, *, only_leading: bool = False
) -> Spectrum:
    """Return the k = `num_eigenvectors` leading eigenpairs of the Gram matrix (equation 1).

    Of features Φ(X), float32 (n, d). With `only_leading`, the others of a large matrix are not
    computed. Directions in which the client has no data carry no information and are left out: a
    client with fewer samples than k has fewer eigenpairs. Each eigenvector's largest entry is
    positive.
    """
    count, dimension = features.shape
    _check_count(num_eigenvectors, dimension)
    if count > dimension:
        gram = gram_matrix(features)
        if not only_leading or dimension <= _FEW:
            return spectrum_of_gram(gram, num_eigenvectors)
        pairs = _largest_eigenpairs(gram.astype(np.float64), num_eigenvectors)
        return _spectrum(*pairs, num_eigenvectors, dimension)
    _check_count_of_samples(features)
    # No entry of G is above these.
    _check_finite(features, np.einsum("nd,nd->d", features, features))
    most = num_eigenvectors if only_leading and count > _FEW else count
    pairs = _eigenpairs_of_few(features.astype(np.float64), most)
    return _spectrum(*pairs, num_eigenvectors, count)


def spectrum_of_gram(gram: Float32, num_eigenvectors: int) -> Spectrum:
    """Return the k leading eigenpairs above zero of a Gram matrix (d, d), perhaps with noise."""
    _check_count(num_eigenvectors, len(gram))
    values, vectors = scipy.linalg.eigh(gram.astype(np.float64), driver="evd")
    return _spectrum(values[::-1], vectors[:, ::-1], num_eigenvectors, len(gram))


def _largest_eigenpairs(matrix: Float64, most: int) -> tuple[Float64, Float64]:
    """Return eigenpairs, descending."""
    count = len(matrix)
    last = [max(0, count - most), count - 1]
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=last if most < count else None)
    return values[::-1], vectors[:, ::-1]


def _check_count(num_eigenvectors: int, dimension: int) -> None:
    if not 1 <= num_eigenvectors <= dimension:
        raise ValueError(
            f"num-eigenvectors is {num_eigenvectors}, but the features have {dimension} "
            f"dimensions: choose 1 to {dimension}."
        )


def _spectrum(values: Float64, vectors: Float64, num_eigenvectors: int, size: int) -> Spectrum:
    """Return the eigenpairs that are not zero of a matrix of this `size`, with fixed signs."""
    # What float32 features cannot tell from zero.
    nothing = max(values[0], 0) * size * np.finfo(np.float32).eps
    if not values[0] > nothing:
        raise ValueError("the client's features are all zero: check its samples.")
    counted = np.abs(values) > nothing
    values, vectors = values[counted], vectors[:, counted]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    signed = np.ascontiguousarray(vectors * signs, dtype=np.float32)
    k = min(num_eigenvectors, int((values > 0).sum()))
    leading = np.ascontiguousarray(signed[:, :k])
    return Spectrum(Spectra.of([signed], [values]), values[:k], leading)


def _eigenpairs_of_few(features: Float64, most: int) -> tuple[Float64, Float64]:
    """Return the eigenpairs of G, descending, by those of ΦΦᵀ/n, which is smaller.

    24 samples at d = 324 take 1 ms instead of 17. With ΦΦᵀu = nλu, Φᵀu/√(nλ) is G's eigenvector.
    """
    number = len(features)
    values, vectors = _largest_eigenpairs(features @ features.T / number, most)
    lengths = np.sqrt(number * np.maximum(values, np.finfo(np.float64).tiny))
    return values, features.T @ vectors / lengths


def relevance(formula: str, whole: Spectra, eigenvectors: Sequence[Float32]) -> list[float]:
    """Return r(i, j) in [0, 1], this client's relevance of each client's eigenvectors, (d, k_j).

    With missed energy each answer depends on all, and they are orthonormal.
    """
    others = Spectra.of_vectors(eigenvectors)
    return [float(one) for one in relevances(formula, whole, others, others.vectors.shape[1])[0]]
