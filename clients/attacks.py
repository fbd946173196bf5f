"""What a malicious client sends instead of the truth: pure functions over arrays.

FedHC's abstract claims robustness against malicious clients, but the paper names no attack. These
are the usual ones: `sign-flip`, `scaled-update`, `zero-model` and `label-flip` corrupt the rounds,
`random-signature` corrupts the queries of one-shot clustering.
"""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.messages.protocol import is_variance

Labels = TypeVar("Labels", torch.Tensor, NDArray[np.int64])


def corrupt_update(
    attack: str,
    received: Mapping[str, NDArray[np.generic]],
    trained: Mapping[str, NDArray[np.generic]],
    scale: float,
) -> dict[str, NDArray[np.generic]]:
    """Return the model that a malicious client sends after its training; integers are as trained.

    `sign-flip`: received − (trained − received), the update backwards (after Li et al., RSA, 2019);
    `scaled-update`: received + scale·(trained − received) (Bagdasaryan et al., How to backdoor
    federated learning, 2020); `zero-model`: zeros. Other attacks leave the model as it is.
    """
    if attack == "zero-model":
        return {n: np.zeros_like(a) if a.dtype.kind == "f" else a for n, a in trained.items()}
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

    Variances end at 0: an answer with negative ones would be refused, and be no attack.
    """
    if after.dtype.kind != "f":
        return after
    start = before.astype(np.float64)
    moved: NDArray[np.generic] = start + factor * (after.astype(np.float64) - start)
    if is_variance(name):
        moved = np.maximum(moved, 0)
    return moved.astype(after.dtype)


def flip_labels(labels: Labels, num_classes: int) -> Labels:
    """Return labels, int64 (n,), with y become C − 1 − y (Fang et al., USENIX Security 2020)."""
    return num_classes - 1 - labels


def random_basis(shape: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return k orthonormal columns that span a uniformly drawn subspace, float32 (d, k).

    They replace eigenvectors (RCC-PFL, Procedure 1).
    """
    # A Gaussian has no preferred direction, so neither has the space that its columns span.
    basis, _ = np.linalg.qr(rng.standard_normal(shape))
    return np.ascontiguousarray(basis, dtype=np.float32)


def random_centroids(
    shape: tuple[int, ...], like: NDArray[np.floating], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return Gaussian centroids of the true ones' mean and standard deviation, float32.

    They replace FLT's centroids (Algorithm 2); `like` are the true ones, of any shape.
    """
    return rng.normal(like.mean(), like.std(), shape).astype(np.float32)
