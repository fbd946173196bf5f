"""Label noise of RCC-PFL (section III): a share of a client's labels moves to another task."""

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
    """Return one client's labels with a share `rate` of them mapped to one wrong label.

    The wrong label is drawn uniformly from the unintended tasks. Samples are drawn without
    replacement and never among those that carry the wrong label already, so that the number of
    labels that change is exactly `round(rate * n)`. Only where fewer samples than that carry
    another label are all of those changed.

    Parameters
    ----------
    labels : NDArray[np.int64], shape (n,)
        The client's true labels; left as they are.
    task : Sequence[int]
        The labels of the client's own task.
    unintended : Sequence[int]
        The labels of all other tasks.
    kind : str
        `none`; `class-independent`: samples are drawn uniformly over all of them;
        `class-dependent`: all are drawn from one label of the task, chosen at random, and where it
        has too few, the rest from another label of the task, and so on.
    rate : float
        The share of noisy labels, in [0, 1).
    """
    noisy = labels.copy()
    count = round(rate * len(labels))
    if kind == "none" or count == 0 or not len(unintended):
        return noisy
    wrong = rng.choice(np.asarray(unintended, dtype=np.int64))
    order = rng.permutation(len(labels))
    order = order[labels[order] != wrong]
    if kind == "class-dependent":
        # A stable sort by each label's random rank draws one label empty before the next; what
        # does not belong to the task comes last.
        rank = np.full(int(max(labels.max(), *task)) + 1, len(task))
        rank[rng.permutation(np.asarray(task))] = np.arange(len(task))
        order = order[np.argsort(rank[labels[order]], kind="stable")]
    noisy[order[:count]] = wrong
    return noisy
