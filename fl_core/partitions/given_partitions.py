"""The partition of data that come in partitions already made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fl_core.data.given_partition import GivenPartition
from fl_core.partitions.partition import Partition


def given_partition(train_labels: NDArray[np.int64], held: GivenPartition) -> Partition:
    """Return who holds what; a task's labels are those that its clients have for training.

    Where tasks are not known, all clients have one. `train_labels` are int64, shape (n,).
    """
    tasks = [0] * len(held.train) if held.tasks is None else held.tasks
    names, numbered = np.unique(tasks, return_inverse=True)
    train, test = (
        tuple(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
        for sizes in (held.train, held.test)
    )
    labels = [
        np.unique(train_labels[np.concatenate([train[c] for c in np.flatnonzero(numbered == t)])])
        for t in range(len(names))
    ]
    return Partition(
        tuple(tuple(own.tolist()) for own in labels), numbered.astype(np.int64), train, test
    )
