"""Models and updates as vectors, for the clusterings that compare them.

Vectors are float32; products are summed in float64, in blocks that fit memory.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays
from fl_core.models.layers import layer_of

Vector = NDArray[np.float32]
Float64 = NDArray[np.float64]

RUNNING_STATISTICS = ("running_mean", "running_var")
"""Ends of the names of what normalising layers count: no training step moves them."""

_BLOCK = 2**21  # numbers of all vectors that are looked at together: 16 MiB
_LEAST_SHARE = 1e-6  # of the longest direction: what is shorter is rounding


def trained_names(model: NDArrays) -> list[str]:
    """Return the names of the floating-point arrays, without running statistics."""
    return [
        name
        for name, array in model.items()
        if np.issubdtype(array.dtype, np.floating) and not name.endswith(RUNNING_STATISTICS)
    ]


def model_vector(
    model: NDArrays, origin: NDArrays | None = None, layer: Collection[str] | None = None
) -> Vector:
    """Return a model's parameters, or a `layer`'s, minus those of `origin`: one float32 vector."""
    names = trained_names(model) if layer is None else layer
    vector = np.empty(sum(model[name].size for name in names), np.float32)
    start = 0
    for name in names:
        part = vector[start : start + model[name].size]
        before = 0 if origin is None else origin[name].ravel()
        np.subtract(model[name].ravel(), before, out=part, casting="same_kind")
        start += len(part)
    return vector


def last_layer(model: NDArrays) -> list[str]:
    """Return the names of the last layer's parameters."""
    names = trained_names(model)
    return [name for name in names if layer_of(name) == layer_of(names[-1])]


def inner_products(vectors: Sequence[Vector], others: Sequence[Vector] | None = None) -> Float64:
    """Return the inner products of n vectors with K others, or each other, shape (n, K)."""
    columns = vectors if others is None else others
    products = np.zeros((len(vectors), len(columns)))
    width = max(1, _BLOCK // (len(vectors) + len(columns)))
    for start in range(0, len(vectors[0]), width):
        rows, right = (
            np.stack([one[start : start + width] for one in each]).astype(np.float64)
            for each in (vectors, columns)
        )
        products += rows @ right.T
    return products


def coordinates(products: Float64) -> Float64:
    """Return n vectors along their principal directions, longest first, shape (n, n).

    `products` are their inner products; the sign of a column is arbitrary. Rows have the distances
    and angles of the vectors; equal vectors have equal rows.
    """
    squares, directions = np.linalg.eigh(products)
    lengths = np.sqrt(np.maximum(squares[::-1], 0))
    lengths[lengths < _LEAST_SHARE * lengths[0]] = 0
    unit = 1e-3 * _LEAST_SHARE * (lengths[0] or 1)
    along: Float64 = np.rint(directions[:, ::-1] * lengths / unit) * unit + 0.0  # no −0
    return along


def cosine_similarities(products: Float64) -> Float64:
    """Return cos(v_i, v_j), shape (n, n), in [−1, 1], of inner products; 0 for a zero vector."""
    lengths = np.sqrt(products.diagonal())
    both = np.outer(lengths, lengths)
    cosines = np.divide(products, both, out=np.zeros_like(products), where=both > 0)
    similarities: Float64 = np.clip(cosines, -1, 1)
    return similarities
