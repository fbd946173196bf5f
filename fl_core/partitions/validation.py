"""Hold out validation samples, on which a client compares models and no client trains."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STREAM = 0x7A11D
"""The random stream of all validation samples."""


class ValidationSplit(NamedTuple):
    """Masks of a client's samples, shape (n,)."""

    train: NDArray[np.bool_]
    validation: NDArray[np.bool_]


def split_validation(
    labels: NDArray[Any], share: float, rng: np.random.Generator | None = None, fold: int = 0
) -> ValidationSplit:
    """Hold out a share, in [0, 1), of samples; `labels`, (n,), are classes, or float numbers.

    They are drawn whatever their class: with the same share of each, gains of local models would
    look too small where samples are few. Of two samples, one trains and one validates.

    Without `rng`, samples are in order of time within a class: the last ones of each validate, and
    the one before them, next to both, is not used if others train. Counts are rounded so that their
    sum is right to half a sample, too.

    In each `fold` other samples validate, if `rng` is as it was for the first one, 0. In order of
    time none do after it: a model that was trained on later ones would not be judged fairly.
    """
    is_one_class = rng is not None or labels.dtype.kind == "f"
    classes = np.zeros(len(labels)) if is_one_class else labels
    _, numbered, counts = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.arange(len(labels)) if rng is None else rng.permutation(len(labels))
    by_class = order[np.argsort(numbered[order], kind="stable")]
    ends = np.cumsum(counts)
    sizes = np.diff(np.rint(share * ends), prepend=0).astype(np.int64)
    if share and len(labels) > 1:
        if not sizes.any():
            sizes[np.argmax(counts)] = 1
        if (sizes == counts).all():
            sizes[np.argmax(counts)] -= 1
    validation = np.zeros(len(labels), dtype=np.bool_)
    between = np.zeros(len(labels), dtype=np.bool_)
    for end, count, of_class in zip(ends, sizes, counts, strict=True):
        validation[by_class[end - count : end]] = True
        if rng is None and count and of_class - count > 1:
            between[by_class[end - count - 1]] = True
    train = ~validation & ~between
    if fold:
        validation[:] = False
    if fold and rng is not None and len(labels) > 1:  # there is one class
        counted = np.rint(share * len(labels) * np.array([fold, fold + 1])).astype(np.int64)
        first, last = len(labels) - np.maximum(counted, sizes.sum())
        validation[order[last:first]] = True
        train = ~validation
    return ValidationSplit(train, validation)


def split_clients(
    samples: Sequence[NDArray[np.int64]],
    labels: Sequence[NDArray[Any]],
    share: float,
    draws: Sequence[np.random.Generator | None],
    fold: int = 0,
) -> list[ValidationSplit]:
    """Split each client's samples by `split_validation`, where several clients may share one.

    `samples` are the indices of each client's samples. A sample that one client validates on trains
    no other client, and no client's first training sample validates: each client still trains.
    """
    parts = [
        split_validation(values, share, draw, fold)
        for values, draw in zip(labels, draws, strict=True)
    ]
    clients = list(zip(samples, parts, strict=True))
    count = 1 + max((int(indices.max()) for indices in samples if len(indices)), default=0)
    is_spared, is_held_out = np.zeros((2, count), dtype=np.bool_)
    for indices, part in clients:
        is_spared[indices[part.train][:1]] = True
    for indices, part in clients:
        is_held_out[indices[part.validation & ~is_spared[indices]]] = True
    return [
        ValidationSplit(part.train & ~is_held_out[indices], part.validation & is_held_out[indices])
        for indices, part in clients
    ]
