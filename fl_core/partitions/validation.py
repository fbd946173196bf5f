"""The part of a client's training samples on which it compares models, and nobody trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STREAM = 0x7A11D
"""Of random numbers: whoever draws a validation part draws it from this one."""


class Parts(NamedTuple):
    """Which of a client's samples are for what, bool, shape (n,)."""

    train: NDArray[np.bool_]
    validation: NDArray[np.bool_]


def split_validation(
    labels: NDArray[Any], share: float, rng: np.random.Generator | None = None
) -> Parts:
    """Keep a share of a client's samples of each class from training, to compare models on.

    Counts are rounded so that all of them together are right to half a sample, too. Of two samples
    or more, one trains and, for a share that is not 0, one validates.

    Parameters
    ----------
    labels : NDArray, shape (n,)
        As the client knows them: classes; numbers, float, are of one class.
    share : float
        In [0, 1).
    rng : Generator, optional
        Draws them. Without it samples are in order of time within a class: the last ones validate,
        and the one before them, which is next to both, is for neither if others train.
    """
    classes = np.zeros(len(labels)) if labels.dtype.kind == "f" else labels
    _, numbered, counts = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.arange(len(labels)) if rng is None else rng.permutation(len(labels))
    by_class = order[np.argsort(numbered[order], kind="stable")]
    ends = np.cumsum(counts)
    wanted = np.diff(np.rint(share * ends), prepend=0).astype(np.int64)
    if share and len(labels) > 1:
        if not wanted.any():
            wanted[np.argmax(counts)] = 1
        if (wanted == counts).all():
            wanted[np.argmax(counts)] -= 1
    validation = np.zeros(len(labels), dtype=np.bool_)
    between = np.zeros(len(labels), dtype=np.bool_)
    for end, count, of_class in zip(ends, wanted, counts, strict=True):
        validation[by_class[end - count : end]] = True
        if rng is None and count and of_class - count > 1:
            between[by_class[end - count - 1]] = True
    return Parts(~validation & ~between, validation)


def split_all(
    held: Sequence[NDArray[np.int64]],
    labels: Sequence[NDArray[Any]],
    share: float,
    draws: Sequence[np.random.Generator | None],
) -> list[Parts]:
    """Split each client's samples, of which several may hold one: then nobody trains on it.

    A sample that one client keeps is taken out of what the others train on: those of other tasks,
    which clients have beside their own, are copies. So that each still trains, on its first sample
    nobody else validates.

    Parameters
    ----------
    held : sequence of NDArray
        Indices of each client's samples.
    labels, share, draws
        As `split_validation` has them, of each client.
    """
    parts = [split_validation(own, share, draw) for own, draw in zip(labels, draws, strict=True)]
    clients = list(zip(held, parts, strict=True))
    count = 1 + max((int(own.max()) for own in held if len(own)), default=0)
    is_spared, is_kept = np.zeros((2, count), dtype=np.bool_)
    for own, part in clients:
        is_spared[own[part.train][:1]] = True
    for own, part in clients:
        is_kept[own[part.validation & ~is_spared[own]]] = True
    return [
        Parts(part.train & ~is_kept[own], part.validation & is_kept[own]) for own, part in clients
    ]
