"""Tasks in a run configuration: text with their labels, or their numbers of clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from fl_core.options import COUNT, NotAllowedError, Rule
from fl_core.partitions.partition import Tasks, parse_tasks

_RANDOM = "random:"
_STREAM = 0x7A5C5


def are_random(tasks: str) -> bool:
    """Return whether tasks are drawn, as in `"random:5"`."""
    return tasks.startswith(_RANDOM)


def random_tasks(text: str, num_classes: int, seed: int) -> Tasks:
    """Draw disjoint tasks of so many labels each; the last has the rest (FLT, scenario 4).

    Examples
    --------
    >>> [len(task) for task in random_tasks("random:5", 47, seed=0)]
    [5, 5, 5, 5, 5, 5, 5, 5, 5, 2]
    """
    labels = np.random.default_rng([seed, _STREAM]).permutation(num_classes)
    size = _size(text)
    parts = np.split(labels, range(size, num_classes, size))
    return tuple(tuple(sorted(part.tolist())) for part in parts)


def parse_counts(text: str) -> tuple[int, ...]:
    """Read numbers such as `"5,3,2"`; an empty text has none."""
    return tuple(int(count) for count in text.split(",")) if text else ()


def _size(text: str) -> int:
    return int(COUNT.read("the number of labels in tasks", text.removeprefix(_RANDOM)))


def _tasks(value: Any) -> str:
    text = str(value)
    if are_random(text):
        _size(text)
    elif text:
        parse_tasks(text)
    return text


def _counts(value: Any) -> str:
    try:
        counts = parse_counts(str(value))
    except ValueError:
        raise NotAllowedError from None
    if min(counts, default=1) < 1:
        raise NotAllowedError
    return str(value)


TASKS = Rule("label sets of different labels, random:N, or nothing", _tasks)
CLIENTS_PER_TASK = Rule("numbers of at least 1 by commas, or nothing", _counts)
