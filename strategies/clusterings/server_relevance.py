"""Relevance at the server, from everybody's eigenpairs: matrix products over blocks of clients.

With k eigenvectors and eigenvalues of each client, G_i ≈ V_i Λ_i V_iᵀ, so all that a client would
answer to the others' eigenvectors follows from the products V_iᵀ V_j. The formulas are those of
`clients.signatures.spectrum`. Labels never enter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_core.relevance import (
    MISSED_ENERGY,
    PAPER,
    eigenvalue_agreement,
    relative_scores,
)

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

# Of a missed energy in float32: up to 1.4e-6 was seen of a client's own eigenvectors, which miss
# nothing, and no less than 3e-4 of another's.
_ROUNDING = 1e-5
# Numbers in a block of products V_iᵀ V_j: 128 MB of float32.
_BLOCK = 32_000_000


@dataclass(frozen=True, eq=False)
class Spectra:
    """The leading eigenpairs of K clients, those of clients with fewer than k filled with zeros.

    Attributes
    ----------
    vectors : NDArray[np.float32], shape (K, k, d)
        Rows are eigenvectors, by descending eigenvalue.
    values : NDArray[np.float64], shape (K, k)
        Eigenvalues.
    widths : NDArray[np.int64], shape (K,)
        How many each client has.
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
        widths = np.array([own.shape[1] for own in vectors])
        joined = np.zeros((len(vectors), int(widths.max()), len(vectors[0])), np.float32)
        filled = np.zeros(joined.shape[:2])
        for client, (own, eigenvalues) in enumerate(zip(vectors, values, strict=True)):
            joined[client, : own.shape[1]] = own.T
            halved = np.frexp(eigenvalues[0])[1] // 2
            filled[client, : own.shape[1]] = np.ldexp(eigenvalues, -2 * halved)
        return cls(joined, filled, widths)

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


def _paper(own: Spectra, others: Spectra) -> Float64:
    """Compare λ̂ = ‖G_i v‖ = ‖Λ_i V_iᵀ v‖ with λ."""
    scaled = Spectra(own.vectors * own.values[..., None].astype(np.float32), own.values, own.widths)
    products = _products(scaled, others)
    estimated = np.sqrt(np.einsum("iajb,iajb->ijb", products, products)).astype(np.float64)
    shared = np.minimum(own.widths[:, None], others.widths[None, :])
    count = estimated.shape[-1]
    values = np.pad(own.values, ((0, 0), (0, max(0, count - own.values.shape[1]))))[:, None, :count]
    return eigenvalue_agreement(values, estimated, np.minimum(shared, count))


def _missed_energy(own: Spectra, others: Spectra) -> Float64:
    """Compare what j's eigenvectors miss of the energy that as many directions can capture."""
    return relative_scores(1 - _captured(own, others), _ROUNDING)


def _captured(own: Spectra, others: Spectra) -> Float64:
    roots = np.sqrt(own.values)[..., None].astype(np.float32)
    products = _products(Spectra(own.vectors * roots, own.values, own.widths), others)
    energies = np.einsum("iajb,iajb->ij", products, products).astype(np.float64)
    most = own.leading(others.vectors.shape[1]).values.sum(axis=1, keepdims=True)
    captured: Float64 = energies / most
    return captured


def _smallest_angles(own: Spectra, others: Spectra) -> Float64:
    products = _products(own, others)
    squares = np.einsum("iajb,iajc->ijbc", products, products)
    largest: Float64 = np.linalg.eigvalsh(squares.astype(np.float64))[..., -1]
    angles: Float64 = np.arccos(np.sqrt(np.clip(largest, 0, 1)))
    return angles


FORMULAS: dict[str, Formula] = {PAPER: _paper, MISSED_ENERGY: _missed_energy}
