"""How relevant clients' data are to each other: what clients and server both compute.

A client's data stand as the eigenpairs of its Gram matrix, G = V Λ Vᵀ = AᵀA with A = Λ^½ Vᵀ. A
client knows all of its own, the server a few of each client; from there on the formulas are the
same. Labels never enter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAPER, MISSED_ENERGY = "paper", "missed-energy"

# How many eigenvectors each is best with on the images and features of docs/relevance.md.
USUAL_EIGENVECTORS: Mapping[str, int] = {PAPER: 20, MISSED_ENERGY: 5}

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# A missed energy below this is rounding of float32: up to 1.4e-6 was seen of a client's own
# eigenvectors, which miss nothing, and no less than 3e-4 of another client's.
_NOTHING_MISSED = 1e-5
# A standard deviation of log m below this is rounding too; on real images it was 0.1 to 3.
_NO_SPREAD = 1e-3
# Beyond so many standard deviations a client counts as the farthest or the nearest there is.
_FARTHEST = 3.0
# Numbers in a block of products V_iᵀ V_j: 128 MB of float32.
_BLOCK = 32_000_000


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenpairs of the Gram matrices of K clients; zeros fill those of clients with fewer than k.

    Attributes
    ----------
    vectors : NDArray[np.float32], shape (K, k, d)
        Rows are eigenvectors, by descending eigenvalue.
    values : NDArray[np.float64], shape (K, k)
        Eigenvalues; those below zero, which noise makes, come last.
    widths : NDArray[np.int64], shape (K,)
        How many above zero each client has.
    """

    vectors: Float32
    values: Float64
    widths: NDArray[np.int64]

    @classmethod
    def of(cls, vectors: Sequence[Float32], values: Sequence[Float64]) -> Spectra:
        """Return those of clients with eigenvectors (d, k_j) and eigenvalues (k_j,).

        Each client's eigenvalues are scaled, which changes no relevance: the first one to 1/2 up to
        2, by a power of four, which rounds neither them nor their roots; no square overflows.
        """
        count = max(own.shape[1] for own in vectors)
        joined = np.zeros((len(vectors), count, len(vectors[0])), np.float32)
        filled = np.zeros(joined.shape[:2])
        for client, (own, eigenvalues) in enumerate(zip(vectors, values, strict=True)):
            joined[client, : own.shape[1]] = own.T
            halved = np.frexp(eigenvalues[0])[1] // 2
            filled[client, : own.shape[1]] = np.ldexp(eigenvalues, -2 * halved)
        return cls(joined, filled, (filled > 0).sum(axis=1))

    @classmethod
    def of_vectors(cls, vectors: Sequence[Float32]) -> Spectra:
        """Return those of clients whose eigenvalues are not known: for angles, which need none."""
        return cls.of(vectors, [np.ones(own.shape[1]) for own in vectors])

    def __getitem__(self, clients: slice | NDArray[np.int64]) -> Spectra:
        """Return those of some clients."""
        return Spectra(self.vectors[clients], self.values[clients], self.widths[clients])

    def leading(self, count: int) -> Spectra:
        """Return the first `count` eigenpairs of each client."""
        return Spectra(
            self.vectors[:, :count], self.values[:, :count], np.minimum(self.widths, count)
        )


Formula = Callable[[Spectra, Spectra], Float64]
"""From i's and j's eigenpairs to numbers, shape (K, L)."""


def relevances(formula: str, own: Spectra, others: Spectra, num_eigenvectors: int) -> Float32:
    """Return r(i, j), shape (K, L), of clients j to clients i.

    Parameters
    ----------
    formula : str
        One of `FORMULAS`.
    own : Spectra
        Of K clients i, whose Gram matrices their eigenpairs stand for.
    others : Spectra
        Of L clients j.
    num_eigenvectors : int
        How many of j's eigenvectors are compared.
    """
    return _by_blocks(FORMULAS[formula], own, others.leading(num_eigenvectors))


def captured_energies(own: Spectra, others: Spectra, num_eigenvectors: int) -> Float32:
    """Return the share of i's energy that j's eigenvectors capture, shape (K, L).

    Of what as many directions can capture, so of a client's own it is 1; as in `relevances`.
    """
    return _by_blocks(_captured, own, others.leading(num_eigenvectors))


def smallest_angles(own: Spectra, others: Spectra, num_eigenvectors: int) -> Float32:
    """Return the smallest angle between the spans of i's and j's eigenvectors, shape (K, L).

    In radians, of so many leading eigenvectors of either (PACFL, equation 2).
    """
    leading = own.leading(num_eigenvectors), others.leading(num_eigenvectors)
    return _by_blocks(_smallest_angles, *leading)


def _by_blocks(formula: Formula, own: Spectra, others: Spectra) -> Float32:
    found = np.empty((len(own.widths), len(others.widths)), np.float32)
    per_client = own.vectors.shape[1] * others.vectors.shape[0] * others.vectors.shape[1]
    size = max(1, _BLOCK // per_client)
    for start in range(0, len(found), size):
        found[start : start + size] = formula(own[slice(start, start + size)], others)
    return found


def _products(own: Spectra, others: Spectra) -> Float32:
    """Return V_iᵀ V_j, shape (K, a, L, b)."""
    rows, columns = own.vectors, others.vectors
    flat = rows.reshape(-1, rows.shape[2]) @ columns.reshape(-1, columns.shape[2]).T
    return flat.reshape(*rows.shape[:2], *columns.shape[:2])


def corresponding_angles(own: Spectra, others: Spectra, count: int) -> Float64:
    """Return Σ_k arccos |u_ik · u_jk| in degrees, shape (K, L) (PACFL, equation 3).

    Absolute, since the sign of a singular vector is arbitrary. A vector that a client of few
    samples lacks counts as at right angles to the other's.

    Parameters
    ----------
    own, others : Spectra
        Of K and L clients.
    count : int
        How many vectors of each are compared.
    """
    angles: Float64 = np.zeros((len(own.widths), len(others.widths)))
    most = min(count, own.vectors.shape[1], others.vectors.shape[1])
    for k in range(most):
        cosines = own.vectors[:, k].astype(np.float64) @ others.vectors[:, k].T.astype(np.float64)
        angles += np.degrees(np.arccos(np.clip(np.abs(cosines), 0, 1)))
    angles += 90 * (count - most)
    return angles


def _paper(own: Spectra, others: Spectra) -> Float64:
    """Return the geometric mean of min(λ, λ̂)/max(λ, λ̂) (RCC-PFL, equations 2 to 4).

    λ̂ = ‖G_i v‖ = ‖Λ_i V_iᵀ v‖. The mean runs over the eigenvectors that both clients have.
    """
    scaled = Spectra(own.vectors * own.values[..., None].astype(np.float32), own.values, own.widths)
    products = _products(scaled, others)
    estimated = np.sqrt(np.einsum("iajb,iajb->ijb", products, products)).astype(np.float64)
    shared = np.minimum(own.widths[:, None], others.widths[None, :])
    count = estimated.shape[-1]
    values = np.pad(own.values, ((0, 0), (0, max(0, count - own.values.shape[1]))))[:, None, :count]
    return _eigenvalue_agreement(values, estimated, np.minimum(shared, count))


def _missed_energy(own: Spectra, others: Spectra) -> Float64:
    """Compare what j's eigenvectors miss of the energy that as many directions can capture.

    No paper's formula: docs/relevance.md has its measurements. They miss the share
    m_j = 1 − tr(V_jᵀ G V_j) / Σ_k λ_k. What m_j is large depends on client i: on how many samples
    it has, and on how much these have in common with all others'. So m_j are compared with one
    another (`relative_scores`), and all clients' are needed. Not for federations where several
    tasks have one client each.
    """
    return relative_scores(1 - _captured(own, others))


def _captured(own: Spectra, others: Spectra) -> Float64:
    """Return tr(V_jᵀ G_i V_j) / Σ_k λ_k = ‖A_i V_j‖² / Σ_k λ_k.

    No k orthonormal directions capture more than the k leading eigenvectors (Ky Fan), so it lies
    in [0, 1] but for rounding.
    """
    roots = np.sqrt(np.abs(own.values))[..., None].astype(np.float32)
    products = _products(Spectra(own.vectors * roots, own.values, own.widths), others)
    squares = np.einsum("iajb,iajb->iaj", products, products).astype(np.float64)
    energies = np.einsum("iaj,ia->ij", squares, np.sign(own.values))
    most = np.maximum(own.leading(others.vectors.shape[1]).values, 0).sum(axis=1, keepdims=True)
    captured: Float64 = energies / most
    return captured


def _eigenvalue_agreement(own: Float64, estimated: Float64, shared: NDArray[np.int64]) -> Float64:
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


def relative_scores(missed: Float64) -> Float64:
    """Return r_j = 1/2 + z_j/6, cut to [0, 1], of missed energies m_j (docs/relevance.md).

    z_j is how many standard deviations log m_j lies below its mean over those that miss anything;
    the others have r_j = 1.

    Parameters
    ----------
    missed : NDArray[np.float64], shape (..., K)
        Compared along the last axis.
    """
    others = missed > _NOTHING_MISSED
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1)
    logs = np.log(missed, out=np.zeros_like(missed), where=others)
    mean = logs.sum(axis=-1, keepdims=True) / count
    squares = np.where(others, (logs - mean) ** 2, 0)
    spread = np.maximum(np.sqrt(squares.sum(axis=-1, keepdims=True) / count), _NO_SPREAD)
    compared = np.clip(0.5 + (mean - logs) / (2 * _FARTHEST * spread), 0, 1)
    return np.where(others, compared, 1.0)


def _smallest_angles(own: Spectra, others: Spectra) -> Float64:
    products = _products(own, others)
    squares = np.einsum("iajb,iajc->ijbc", products, products)
    largest: Float64 = np.linalg.eigvalsh(squares.astype(np.float64))[..., -1]
    angles: Float64 = np.arccos(np.sqrt(np.clip(largest, 0, 1)))
    return angles


FORMULAS: Mapping[str, Formula] = {PAPER: _paper, MISSED_ENERGY: _missed_energy}
