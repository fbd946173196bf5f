"""What a malicious client sends instead of the truth: pure functions over arrays.

FedHC's abstract claims that it "enhances robustness against malicious clients by isolating them
within smaller clusters, limiting their influence on the global model", but the paper names no
attack and measures none. These are the usual ones: `sign-flip`, `scaled-update`, `zero-model` and
`label-flip` spoil the rounds, `random-signature` spoils the pre-round that one-shot clustering
rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.messages.arrays import is_variance

Labels = TypeVar("Labels", torch.Tensor, NDArray[np.int64])


def spoil_update(
    attack: str,
    received: Mapping[str, NDArray[np.generic]],
    trained: Mapping[str, NDArray[np.generic]],
    scale: float,
) -> dict[str, NDArray[np.generic]]:
    """Return the model that a malicious client sends after its training.

    `sign-flip`: received − (trained − received), the update backwards (after Li et al., RSA, 2019);
    `scaled-update`: received + scale·(trained − received), the update blown up (Bagdasaryan et
    al., How to backdoor federated learning, 2020); `zero-model`: zeros. The other attacks leave the
    model as it was trained. FedHC compares directions: in one round a flipped sign is as far away
    as can be, and a scaled update (scale > 0) points where it pointed.

    Parameters
    ----------
    received, trained : mapping of str to NDArray
        The model before and after training: the same names, shapes and types.
    scale : float
        Used by `scaled-update` only.

    Returns
    -------
    dict of str to NDArray
        New arrays for parameters and buffers of floats, computed in float64 and returned in their
        own type; integers, such as BatchNorm's counters, as trained. In `trained`'s order.
    """
    if attack == "zero-model":
        return {n: np.zeros_like(a) if _is_float(a) else a for n, a in trained.items()}
    factors = {"sign-flip": -1.0, "scaled-update": scale}
    if attack not in factors:
        return dict(trained)
    return {
        name: _moved(name, received[name], after, factors[attack])
        for name, after in trained.items()
    }


def _moved(
    name: str, before: NDArray[np.generic], after: NDArray[np.generic], factor: float
) -> NDArray[np.generic]:
    """Return before + factor·(after − before) in `after`'s type; integers as they are.

    Variances end at 0: an answer with negative ones would be refused, and attack nobody.
    """
    if not _is_float(after):
        return after
    start = before.astype(np.float64)
    moved: NDArray[np.generic] = start + factor * (after.astype(np.float64) - start)
    if is_variance(name):
        moved = np.maximum(moved, 0)
    return moved.astype(after.dtype)


def _is_float(array: NDArray[np.generic]) -> bool:
    return np.issubdtype(array.dtype, np.floating)


def flip_labels(labels: Labels, num_classes: int) -> Labels:
    """Return labels, int64 (n,), with y become C − 1 − y (Fang et al., USENIX Security 2020).

    The client trains on them as if they were right; flipped twice they are what they were.
    """
    return num_classes - 1 - labels


def random_basis(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return k orthonormal columns that span a uniformly drawn subspace, float32 (d, k).

    They stand for eigenvectors (RCC-PFL, Procedure 1): well-formed, and saying nothing about the
    client's data.
    """
    # A Gaussian has no preferred direction, so neither has the space that its columns span.
    basis, _ = np.linalg.qr(rng.standard_normal(shape))
    return np.ascontiguousarray(basis, dtype=np.float32)


def random_centroids(
    shape: tuple[int, ...], like: NDArray[np.floating], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return Gaussian centroids of the true ones' overall mean and standard deviation, float32.

    They stand for FLT's centroids (Algorithm 2): of plausible size, which no check of ranges
    finds, but their place says nothing, since mean and deviation run over all entries at once.

    Parameters
    ----------
    shape : tuple of int
        Of the answer; k and e in FLT.
    like : NDArray[np.floating]
        The true centroids, of any shape, at least one entry.
    """
    return rng.normal(like.mean(), like.std(), shape).astype(np.float32)
