"""Models and updates as vectors, for the clusterings that compare them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays
from fl_core.models.layers import layer_of
from strategies.rounds.round_state import Update

Float64 = NDArray[np.float64]


def flatten(model: NDArrays) -> Float64:
    """Return all floating-point arrays of a model as one vector, float64."""
    floats = [a.ravel() for a in model.values() if np.issubdtype(a.dtype, np.floating)]
    return np.concatenate(floats).astype(np.float64)


def update_vector(
    update: Update, reference: NDArrays | None = None, layer: Collection[str] | None = None
) -> Float64:
    """Return g = w − w_trained, float64: w is `reference`, by default the model received.

    With `layer`, of the arrays of these names only.
    """
    before, after = update.received if reference is None else reference, update.arrays
    if layer is not None:
        before, after = ({name: model[name] for name in layer} for model in (before, after))
    return flatten(before) - flatten(after)


def last_layer(model: NDArrays) -> list[str]:
    """Return the names of the last layer's floating-point arrays.

    Examples
    --------
    >>> last_layer(dict.fromkeys(["hidden.weight", "output.weight", "output.bias"], np.ones(1)))
    ['output.weight', 'output.bias']
    """
    real = [name for name, a in model.items() if np.issubdtype(a.dtype, np.floating)]
    return [name for name in real if layer_of(name) == layer_of(real[-1])]


def directions(vectors: Float64) -> Float64:
    """Return rows scaled to unit length, shape (n, p); a zero row stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Float64 = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def cosine_similarities(vectors: Float64) -> Float64:
    """Return cos(v_i, v_j), shape (n, n), in [−1, 1]; 0 for a zero vector."""
    units = directions(vectors)
    similarities: Float64 = np.clip(units @ units.T, -1, 1)
    return similarities


def direction_distances(similarities: Float64) -> Float64:
    """Return ‖u_i − u_j‖ = √(2(1 − cos)) of unit vectors, shape (n, n), for Ward's method."""
    distances: Float64 = np.sqrt(2 * (1 - similarities))
    return distances
