"""The client's half of one-shot spectral clustering: Gram matrix, eigenvectors, relevance.

RCC-PFL Procedure 1 (equations 1 to 4), which is MT-HFL Algorithm 2, and a second relevance beside
the paper's, which is ours (docs/relevance.md). Labels never enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fl_core.relevance import (
    MISSED_ENERGY,
    PAPER,
    eigenvalue_agreement,
    relative_scores,
)

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# From this client's Gram matrix (d, d) and eigenvalues (k,) and every client's eigenvectors
# (d, k_j), its own among them, to one number in [0, 1] for each client.
Relevance = Callable[[Float32, Float64, Sequence[Float32]], list[float]]

MOST_DIMENSIONS = 20_000
"""Of features whose Gram matrix is computed: it then takes 1.6 GB."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """What a client knows of its own second moment.

    Attributes
    ----------
    compute_gram : callable
        Returns `gram`, and computes it once, also for spectra that `replace` makes of this one.
    eigenvalues : NDArray[np.float64], shape (k,)
        The leading eigenvalues of G, descending. They never leave the client.
    eigenvectors : NDArray[np.float32], shape (d, k)
        Their unit eigenvectors: all that is uploaded.
    """

    compute_gram: Callable[[], Float32]
    eigenvalues: Float64
    eigenvectors: Float32

    @property
    def gram(self) -> Float32:
        """Return G = Φ(X)ᵀΦ(X)/n, shape (d, d), not centred. Never leaves the client.

        Computed once it is asked for: of few samples with many features, it is much larger.
        """
        return self.compute_gram()


def gram_matrix(features: Float32) -> Float32:
    """Return G = ΦᵀΦ/n, shape (d, d), of features Φ, shape (n, d) (RCC-PFL, equation 1).

    Raises
    ------
    ValueError
        If there is no row, an entry is not finite or too large to be squared, or there are more
        than `MOST_DIMENSIONS`.
    """
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


def leading_spectrum(features: Float32, num_eigenvectors: int) -> Spectrum:
    """Return the `num_eigenvectors` leading eigenpairs of the Gram matrix (equation 1).

    Directions in which the client has no data (eigenvalue zero up to rounding) carry no
    information and are left out: a client with fewer samples than `num_eigenvectors` has fewer
    eigenpairs. Each eigenvector's sign is fixed so that its largest entry is positive.

    Parameters
    ----------
    features : NDArray[np.float32], shape (n, d)
        Φ(X), one row per sample.
    num_eigenvectors : int
        k, at most d.

    Raises
    ------
    ValueError
        If k is not within 1 to d, there is no sample, a feature is not finite, all are zero, or d
        is above `MOST_DIMENSIONS` and there are more than d/2 samples.
    """
    dimension = features.shape[1]
    _check_count(num_eigenvectors, dimension)
    if 2 * len(features) > dimension:
        return spectrum_of_gram(gram_matrix(features), num_eigenvectors)
    _check_count_of_samples(features)
    # No entry of G is above these.
    _check_finite(features, np.einsum("nd,nd->d", features, features))
    pairs = _eigenpairs_of_few(features.astype(np.float64), num_eigenvectors)
    return _spectrum(cache(partial(gram_matrix, features)), *pairs, len(features))


def spectrum_of_gram(gram: Float32, num_eigenvectors: int) -> Spectrum:
    """Return a Gram matrix with its `num_eigenvectors` leading eigenpairs above zero.

    For a matrix with noise, which has negative eigenvalues, too: that of
    `clients.privacy.private_gram`.

    Parameters
    ----------
    gram : NDArray[np.float32], shape (d, d)
        Symmetric.
    num_eigenvectors : int
        k, at most d.

    Raises
    ------
    ValueError
        If k is not within 1 to d, or no eigenvalue is above zero.
    """
    _check_count(num_eigenvectors, len(gram))
    pairs = _leading_eigenpairs(gram.astype(np.float64), num_eigenvectors)
    return _spectrum(lambda: gram, *pairs, len(gram))


def _check_count(num_eigenvectors: int, dimension: int) -> None:
    if not 1 <= num_eigenvectors <= dimension:
        raise ValueError(
            f"num-eigenvectors is {num_eigenvectors}, but the features have {dimension} "
            f"dimensions: choose 1 to {dimension}."
        )


def _spectrum(
    gram: Callable[[], Float32], values: Float64, vectors: Float64, order: int
) -> Spectrum:
    """Keep the eigenpairs above zero, with signs as `leading_spectrum` fixes them.

    They are of a matrix with `order` rows.
    """
    # What float32 features cannot tell from zero.
    kept = values > max(values[0], 0) * order * np.finfo(np.float32).eps
    if not kept.any():
        raise ValueError("the client's features are all zero: check its samples.")
    values, vectors = values[kept], vectors[:, kept]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.sign(vectors[largest, np.arange(vectors.shape[1])])
    return Spectrum(gram, values, np.ascontiguousarray(vectors * signs, dtype=np.float32))


def _eigenpairs_of_few(features: Float64, count: int) -> tuple[Float64, Float64]:
    """Return the leading eigenpairs of G by those of ΦΦᵀ/n, which is smaller.

    24 samples at d = 324 take 1 ms instead of 17. With ΦΦᵀu = nλu, Φᵀu/√(nλ) is G's eigenvector.
    """
    number = len(features)
    values, vectors = scipy.linalg.eigh(features @ features.T / number)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    lengths = np.sqrt(number * np.maximum(values, np.finfo(np.float64).tiny))
    return values, features.T @ vectors / lengths


def _leading_eigenpairs(gram: Float64, count: int) -> tuple[Float64, Float64]:
    """Return the `count` leading eigenvalues, descending, and their eigenvectors."""
    dimension = len(gram)
    if 8 * count <= dimension:
        # Measured: 1.6 times faster than all of them at d = 324 and 3 times at d = 1280 (k = 20);
        # from k = d/4 on, all of them are faster.
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=[dimension - count, dimension - 1], driver="evr"
        )
    else:
        values, vectors = scipy.linalg.eigh(gram, driver="evd")
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def relevance(gram: Float32, eigenvalues: Float64, eigenvectors: Sequence[Float32]) -> list[float]:
    """Return this client's relevance of every client's eigenvectors (equations 2 to 4).

    λ̂_k = ‖G v_k‖₂ for all clients at once, one matrix product; then the geometric mean over k of
    min(λ_k, λ̂_k)/max(λ_k, λ̂_k), in log space. The mean runs over the eigenvectors that both
    clients have: the shorter of the two lists counts.

    Parameters
    ----------
    gram : NDArray[np.float32], shape (d, d)
        This client's G.
    eigenvalues : NDArray[np.float64], shape (k,)
        This client's leading eigenvalues, descending.
    eigenvectors : sequence of NDArray[np.float32], shapes (d, k_j)
        Of each client j, in the order in which the answer is wanted.

    Returns
    -------
    list of float
        r(i, j) in [0, 1], one for each j.
    """
    widths = np.array([vectors.shape[1] for vectors in eigenvectors])
    # Scaled by a power of two, which rounds nothing: squares of large ones would overflow.
    exponent = -np.frexp(eigenvalues[0])[1]
    products = np.ldexp(gram @ np.concatenate(eigenvectors, axis=1), exponent)
    estimated, eigenvalues = np.linalg.norm(products, axis=0), np.ldexp(eigenvalues, exponent)
    shared = np.minimum(widths, len(eigenvalues))
    # One row for each client: its estimates, up to as many as this one has eigenvalues.
    rows = np.zeros((len(widths), len(eigenvalues)))
    for row, lambda_hat in zip(rows, np.split(estimated, np.cumsum(widths)[:-1]), strict=True):
        row[: len(lambda_hat)] = lambda_hat[: len(row)]
    return [float(score) for score in eigenvalue_agreement(eigenvalues, rows, shared)]


def missed_energy_relevance(
    gram: Float32, eigenvalues: Float64, eigenvectors: Sequence[Float32]
) -> list[float]:
    """Return this client's relevance of every client's eigenvectors by the energy they miss.

    No paper's formula: docs/relevance.md has its measurements. Client j's eigenvectors miss the
    share m_j = 1 − tr(V_jᵀ G V_j) / Σ_k λ_k of the energy that k directions can capture of this
    client's data. What m_j is large depends on the client: on how many samples it has, and on how
    much its samples have in common with everybody's. So each client compares the others with one
    another: z_j is how many standard deviations log m_j lies below its mean over the other
    clients, and r_j = 1/2 + z_j/6, cut to [0, 1]. Clients who miss nothing, the client itself
    above all, have r_j = 1 and are not compared.

    The logarithm makes factors count: within one task m_j varies with the number of samples, and a
    client of few samples would otherwise widen the scale until the tasks are close together on it.
    Not for federations where several tasks have one client each: see docs/relevance.md.

    Parameters
    ----------
    gram, eigenvalues
        As in `relevance`.
    eigenvectors : sequence of NDArray[np.float32], shapes (d, k_j)
        As in `relevance`; orthonormal, k_j at most the k that all were asked for. All clients' are
        needed, since each answer depends on all.

    Returns
    -------
    list of float
        r(i, j) in [0, 1], one for each j.
    """
    missed = 1 - captured_energy(gram, eigenvalues, eigenvectors)
    return [float(score) for score in relative_scores(missed)]


def captured_energy(
    gram: Float32, eigenvalues: Float64, eigenvectors: Sequence[Float32]
) -> Float64:
    """Return tr(V_jᵀ G V_j) / Σ_k λ_k for each j, shape (K,): 1 for the client's own vectors.

    No k orthonormal directions capture more than the k leading eigenvectors (Ky Fan), so it lies
    in [0, 1] but for rounding. The arguments are those of `missed_energy_relevance`.
    """
    widths = [vectors.shape[1] for vectors in eigenvectors]
    joined = np.concatenate(eigenvectors, axis=1)
    # Summed in float64: what is missed is a small difference.
    energies = np.einsum("dk,dk->k", joined, gram @ joined, dtype=np.float64)
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]])
    captured: Float64 = np.add.reduceat(energies, starts) / eigenvalues.sum()
    return captured


RELEVANCES: Mapping[str, Relevance] = {
    PAPER: relevance,
    MISSED_ENERGY: missed_energy_relevance,
}
