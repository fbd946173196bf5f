"""Label noise of RCC-PFL (section III): some labels become one of another task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NOISES = ("none", "class-independent", "class-dependent")


def add_label_noise(
    labels: NDArray[np.int64],
    task: Sequence[int],
    unintended: Sequence[int],
    kind: str,
    rate: float,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return one client's labels, (n,), with a share `rate` of them replaced by one wrong label.

    The wrong label is drawn uniformly from `unintended`, the labels of all other tasks. Samples are
    drawn without replacement among those with another label, so that exactly `round(rate * n)`
    labels change, or all of those if they are fewer. With `class-independent` noise, samples are
    drawn uniformly; with `class-dependent`, from one random label of the client's `task`, the rest
    from a second one, and so on.
    """
    noisy = labels.copy()
    count = round(rate * len(labels))
    if kind == "none" or count == 0 or not len(unintended):
        return noisy
    wrong = rng.choice(np.asarray(unintended, dtype=np.int64))
    order = rng.permutation(len(labels))
    order = order[labels[order] != wrong]
    if kind == "class-dependent":
        # A stable sort by each label's random rank draws all of one label before the next; labels
        # that are not of the task come last.
        rank = np.full(int(max(labels.max(), *task)) + 1, len(task))
        rank[rng.permutation(np.asarray(task))] = np.arange(len(task))
        order = order[np.argsort(rank[labels[order]], kind="stable")]
    noisy[order[:count]] = wrong
    return noisy
