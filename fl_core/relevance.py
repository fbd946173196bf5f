"""The relevance of clients' data to each other: formulas for clients and server.

A client's data are represented by the eigenpairs of its Gram matrix, G = V Λ Vᵀ = AᵀA with
A = Λ^½ Vᵀ. A client knows all of its eigenpairs, the server a few of each client; the formulas are
the same. Labels are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAPER, MISSED_ENERGY = "paper", "missed-energy"

# The best number of eigenvectors for each on the images and features of docs/comparing-clients.md.
USUAL_EIGENVECTORS: Mapping[str, int] = {PAPER: 20, MISSED_ENERGY: 5}

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# A missed energy below this is rounding of float32: up to 1.4e-6 was measured with a client's
# eigenvectors on its data, which miss nothing, and at least 3e-4 with another client's.
_NOTHING_MISSED = 1e-5
# A standard deviation of log m below this is rounding too; on real images it was 0.1 to 3.
_LEAST_LOG_DEVIATION = 1e-3
# Beyond so many standard deviations, a client has the relevance 0 or 1.
_LARGEST_Z_SCORE = 3.0
# Numbers in a block of products V_iᵀ V_j: 128 MB of float32.
_BLOCK = 32_000_000


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenpairs of the Gram matrices of K clients; zeros fill up those of fewer than k."""

    vectors: Float32  # (K, k, d): rows are eigenvectors, by descending eigenvalue
    values: Float64  # (K, k): eigenvalues; those below zero, an effect of noise, come last
    widths: NDArray[np.int64]  # (K,): the number of eigenvalues above zero

    @classmethod
    def of(cls, vectors: Sequence[Float32], values: Sequence[Float64]) -> Spectra:
        """Stack clients' eigenvectors, shape (d, k_j), and eigenvalues, (k_j,).

        So that no square overflows, each client's eigenvalues are scaled, the first one to 1/2 up
        to 2, by a power of four: that changes no relevance, and rounds neither them nor roots.
        """
        count = max(columns.shape[1] for columns in vectors)
        joined = np.zeros((len(vectors), count, len(vectors[0])), np.float32)
        filled = np.zeros(joined.shape[:2])
        for client, (columns, eigenvalues) in enumerate(zip(vectors, values, strict=True)):
            joined[client, : columns.shape[1]] = columns.T
            halved = np.frexp(eigenvalues[0])[1] // 2
            filled[client, : columns.shape[1]] = np.ldexp(eigenvalues, -2 * halved)
        return cls(joined, filled, (filled > 0).sum(axis=1))

    @classmethod
    def of_vectors(cls, vectors: Sequence[Float32]) -> Spectra:
        """Stack eigenvectors with unknown eigenvalues, for angles."""
        return cls.of(vectors, [np.ones(columns.shape[1]) for columns in vectors])

    def __getitem__(self, clients: slice | NDArray[np.int64]) -> Spectra:
        """Return the eigenpairs of some clients."""
        return Spectra(self.vectors[clients], self.values[clients], self.widths[clients])

    def leading(self, count: int) -> Spectra:
        """Return the first `count` eigenpairs of each client."""
        return Spectra(
            self.vectors[:, :count], self.values[:, :count], np.minimum(self.widths, count)
        )


Formula = Callable[[Spectra, Spectra], Float64]
"""From eigenpairs of K clients i and L clients j to numbers, shape (K, L)."""


def relevances(formula: str, spectra: Spectra, others: Spectra, num_eigenvectors: int) -> Float32:
    """Return the relevance r(i, j) of L clients j to K clients i, shape (K, L).

    `formula` is one of `FORMULAS`, and `num_eigenvectors` of each client j are compared.
    """
    return _by_blocks(FORMULAS[formula], spectra, others.leading(num_eigenvectors))


def smallest_angles(spectra: Spectra, others: Spectra, num_eigenvectors: int) -> Float32:
    """Return the smallest angles of spans in radians, shape (K, L) (PACFL, equation 2)."""
    leading = spectra.leading(num_eigenvectors), others.leading(num_eigenvectors)
    return _by_blocks(_smallest_angles, *leading)


def _by_blocks(formula: Formula, spectra: Spectra, others: Spectra) -> Float32:
    result = np.empty((len(spectra.widths), len(others.widths)), np.float32)
    per_client = spectra.vectors.shape[1] * others.vectors.shape[0] * others.vectors.shape[1]
    size = max(1, _BLOCK // per_client)
    for start in range(0, len(result), size):
        result[start : start + size] = formula(spectra[slice(start, start + size)], others)
    return result


def _products(spectra: Spectra, others: Spectra) -> Float32:
    """Return V_iᵀ V_j, shape (K, a, L, b)."""
    rows, columns = spectra.vectors, others.vectors
    flat = rows.reshape(-1, rows.shape[2]) @ columns.reshape(-1, columns.shape[2]).T
    return flat.reshape(*rows.shape[:2], *columns.shape[:2])


def corresponding_angles(spectra: Spectra, others: Spectra, count: int) -> Float64:
    """Return Σ_k arccos |u_ik · u_jk| in degrees, shape (K, L) (PACFL, equation 3).

    The sign of a singular vector is arbitrary. A vector of the `count` ones that a client with few
    samples lacks counts as orthogonal.
    """
    angles: Float64 = np.zeros((len(spectra.widths), len(others.widths)))
    most = min(count, spectra.vectors.shape[1], others.vectors.shape[1])
    for k in range(most):
        cosines = spectra.vectors[:, k].astype(np.float64) @ others.vectors[:, k].T.astype(
            np.float64
        )
        angles += np.degrees(np.arccos(np.clip(np.abs(cosines), 0, 1)))
    angles += 90 * (count - most)
    return angles


def _paper(spectra: Spectra, others: Spectra) -> Float64:
    """Return the geometric mean of min(λ, λ̂)/max(λ, λ̂) (RCC-PFL, equations 2 to 4).

    λ̂ = ‖G_i v‖ = ‖Λ_i V_iᵀ v‖. The mean runs over the eigenvectors that both clients have.
    """
    scaled = Spectra(
        spectra.vectors * spectra.values[..., None].astype(np.float32),
        spectra.values,
        spectra.widths,
    )
    products = _products(scaled, others)
    estimated = np.sqrt(np.einsum("iajb,iajb->ijb", products, products)).astype(np.float64)
    shared = np.minimum(spectra.widths[:, None], others.widths[None, :])
    count = estimated.shape[-1]
    values = np.pad(spectra.values, ((0, 0), (0, max(0, count - spectra.values.shape[1]))))[
        :, None, :count
    ]
    return _eigenvalue_agreement(values, estimated, np.minimum(shared, count))


def _missed_energy(spectra: Spectra, others: Spectra) -> Float64:
    """Compare the energy that j's eigenvectors miss of what as many directions can capture (ours).

    They miss the share m_j = 1 − tr(V_jᵀ G V_j) / Σ_k λ_k. Its typical size depends on client i: on
    its number of samples, and on what these have in common with all others'. So the m_j of all
    clients are compared (`relative_scores`). It fails where several tasks have one client each.
    """
    return relative_scores(1 - captured_energies(spectra, others))


def captured_energies(spectra: Spectra, others: Spectra) -> Float64:
    """Return the share of i's energy that j's eigenvectors capture, shape (K, L).

    tr(V_jᵀ G_i V_j) / Σ_k λ_k = ‖A_i V_j‖² / Σ_k λ_k. No k orthonormal directions capture more than
    the k leading eigenvectors (Ky Fan), so it lies in [0, 1] but for rounding.
    """
    roots = np.sqrt(np.abs(spectra.values))[..., None].astype(np.float32)
    products = _products(Spectra(spectra.vectors * roots, spectra.values, spectra.widths), others)
    squares = np.einsum("iajb,iajb->iaj", products, products).astype(np.float64)
    energies = np.einsum("iaj,ia->ij", squares, np.sign(spectra.values))
    most = np.maximum(spectra.leading(others.vectors.shape[1]).values, 0).sum(axis=1, keepdims=True)
    captured: Float64 = energies / most
    return captured


def _eigenvalue_agreement(
    values: Float64, estimated: Float64, shared: NDArray[np.int64]
) -> Float64:
    """Return the geometric mean of min(λ, λ̂)/max(λ, λ̂), in [0, 1] (RCC-PFL, equations 3 and 4).

    λ and λ̂ have shape (..., k), and the first `shared` of the k count, shape (...). It is computed
    in log space, where the product of many small ratios does not vanish.
    """
    counted = np.arange(values.shape[-1]) < shared[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        # log 0 = −∞ is right: no variance, no relevance.
        logs = np.log(np.minimum(values, estimated) / np.maximum(values, estimated))
    means: Float64 = np.where(counted, logs, 0).sum(axis=-1) / shared
    return np.exp(means)


def relative_scores(missed: Float64) -> Float64:
    """Return r_j = 1/2 + z_j/6, cut to [0, 1], of missed energies m_j (docs/comparing-clients.md).

    z_j is the number of standard deviations that log m_j lies below its mean over the clients that
    miss anything; the others have r_j = 1. `missed` has shape (..., K).
    """
    others = missed > _NOTHING_MISSED
    count = np.maximum(others.sum(axis=-1, keepdims=True), 1)
    logs = np.log(missed, out=np.zeros_like(missed), where=others)
    mean = logs.sum(axis=-1, keepdims=True) / count
    squares = np.where(others, (logs - mean) ** 2, 0)
    spread = np.maximum(np.sqrt(squares.sum(axis=-1, keepdims=True) / count), _LEAST_LOG_DEVIATION)
    compared = np.clip(0.5 + (mean - logs) / (2 * _LARGEST_Z_SCORE * spread), 0, 1)
    return np.where(others, compared, 1.0)


def _smallest_angles(spectra: Spectra, others: Spectra) -> Float64:
    products = _products(spectra, others)
    squares = np.einsum("iajb,iajc->ijbc", products, products)
    largest: Float64 = np.linalg.eigvalsh(squares.astype(np.float64))[..., -1]
    angles: Float64 = np.arccos(np.sqrt(np.clip(largest, 0, 1)))
    return angles


FORMULAS: Mapping[str, Formula] = {PAPER: _paper, MISSED_ENERGY: _missed_energy}
