"""What clients answer in a spectral pre-round: read, and refused where it cannot be right."""

from __future__ import annotations

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol

Eigenvectors = NDArray[np.float32]
"""Shape (d, at most k)."""

DIMENSIONS = "its features have {} dimensions"
"""A client's features, with braces for their number."""

_LEAST_SHARE = 1e-30  # of the largest eigenvalue


def read_eigenvectors(content: RecordDict, k: int, dimension: int | None) -> Eigenvectors:
    """Return a client's eigenvectors, or raise a ValueError."""
    vectors = protocol.array_in(content, protocol.EIGENVECTORS)
    if vectors.ndim != 2 or not 1 <= vectors.shape[1] <= k:
        raise ValueError(f"its eigenvectors have shape {vectors.shape}, not (d, 1 to {k})")
    if vectors.dtype.kind != "f" or not np.isfinite(vectors).all():
        raise ValueError("its eigenvectors are not all finite numbers")
    if dimension is not None and len(vectors) != dimension:
        raise ValueError(f"{DIMENSIONS.format(len(vectors))}, the others' {dimension}")
    products = vectors.astype(np.float64).T @ vectors
    if not np.allclose(products, np.eye(len(products)), atol=1e-3):
        raise ValueError("its eigenvectors are not orthonormal")
    return np.ascontiguousarray(vectors, np.float32)


def read_eigenvalues(content: RecordDict) -> NDArray[np.float64]:
    """Return a client's eigenvalues, shape (k_j,), or raise a ValueError."""
    values = protocol.array_in(content, protocol.EIGENVALUES)
    count = protocol.array_in(content, protocol.EIGENVECTORS).shape[1]
    if values.shape != (count,) or values.dtype not in (np.float32, np.float64):
        said = f"{values.dtype} of shape {values.shape}"
        raise ValueError(f"its eigenvalues are {said}, not float32 of shape ({count},)")
    # What is smaller than float32 can tell from nothing is left out by clients.
    within = np.isfinite(values) & (values > _LEAST_SHARE * values.max())
    if not within.all() or (np.diff(values) > 0).any():
        raise ValueError("its eigenvalues are not finite, positive and descending")
    return values.astype(np.float64)


def read_relevances(content: RecordDict, count: int) -> list[float]:
    """Return how relevant a client finds `count` others, or raise a ValueError."""
    scores = protocol.numbers(content, protocol.RELEVANCES)
    if len(scores) != count:
        raise ValueError(f"its answer does not hold {count} relevances")
    if not all(0 <= score <= 1 + 1e-6 for score in scores):  # NaN fails as well
        raise ValueError("its relevances are not all numbers in [0, 1]")
    return scores
