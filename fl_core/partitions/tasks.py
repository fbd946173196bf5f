"""Tasks: those of the papers, and those that a run configuration names."""

import re
from typing import Any

import numpy as np

from fl_core.data.settings import NUM_ROTATIONS
from fl_core.options import COUNT, NotAllowedError, Rule

Tasks = tuple[tuple[int, ...], ...]
_RANDOM = "random:"
_STREAM = 0x7A5C5

# RCC-PFL, Table I.
_MNIST: dict[int, Tasks] = {
    2: ((0, 2, 4, 6, 8), (1, 3, 5, 7, 9)),
    3: ((0, 2, 4), (6, 8, 1), (3, 5, 7, 9)),
    5: ((0, 2), (4, 6), (8, 1), (3, 5), (7, 9)),
}
_FASHION_MNIST: dict[int, Tasks] = {
    2: ((0, 1, 2, 3, 4, 6), (5, 7, 8, 9)),
    3: ((0, 1, 2), (3, 4, 6), (5, 7, 8, 9)),
    5: ((0, 1), (2, 3), (4, 6), (5, 7), (8, 9)),
}
_CIFAR10: dict[int, Tasks] = {
    2: ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    3: ((0, 1, 8), (9, 2, 3), (4, 5, 6, 7)),
    5: ((0, 1), (8, 9), (2, 3), (4, 5), (6, 7)),
}
PAPER_TASKS: dict[str, dict[int, Tasks]] = {
    "mnist-5k": _MNIST,
    "mnist": _MNIST,
    "fashion-mnist": _FASHION_MNIST,
    "cifar10": _CIFAR10,
}
# IFCA's rotated MNIST (Ghosh et al. 2020): a task is a rotation, and its ten digits are the groups
# rotation·10 + digit (`fl_core.data.datasets.rotate_images`).
ROTATIONS: Tasks = tuple(tuple(range(10 * turn, 10 * turn + 10)) for turn in range(NUM_ROTATIONS))


def parse_tasks(text: str) -> Tasks:
    """Read tasks such as `"0,2,4|6,8,1|3,5,7,9"`; two may share labels: `"0,1,2|2,3,7"`."""
    try:
        tasks = tuple(tuple(int(label) for label in part.split(",")) for part in text.split("|"))
    except ValueError:
        raise ValueError(
            f'tasks is "{text}", which cannot be read: write such as "0,2,4|6,8,1|3,5,7,9".'
        ) from None
    twice = sorted({label for task in tasks for label in task if task.count(label) > 1})
    if twice:
        raise ValueError(f'tasks is "{text}", where label {twice[0]} stands twice in a task.')
    if len({frozenset(task) for task in tasks}) < len(tasks):
        raise ValueError(f'tasks is "{text}", where two tasks have the same labels: leave one out.')
    return tasks


def default_tasks(dataset: str, num_tasks: int, num_classes: int) -> Tasks:
    """Return the paper's tasks for `dataset`, or an even split of the classes in their order."""
    is_rotated = dataset == "rotated-mnist"
    most, what = (NUM_ROTATIONS, "rotations") if is_rotated else (num_classes, "classes")
    if not 1 <= num_tasks <= most:
        raise ValueError(
            f"num-tasks is {num_tasks}, but {dataset} has {most} {what}: choose 1 to {most}."
        )
    if is_rotated:
        return ROTATIONS[:num_tasks]
    paper = PAPER_TASKS.get(dataset, {})
    if num_tasks in paper:
        return paper[num_tasks]
    parts = np.array_split(np.arange(num_classes), num_tasks)
    return tuple(tuple(part.tolist()) for part in parts)


def parse_counts(text: str) -> tuple[int, ...]:
    """Read numbers such as `"5,3,2"`; an empty text has none."""
    return tuple(int(count) for count in text.split(",")) if text else ()


def are_random(tasks: str) -> bool:
    """Return whether tasks are drawn, as in `"random:5"`."""
    return tasks.startswith(_RANDOM)


def random_tasks(text: str, num_classes: int, seed: int) -> Tasks:
    """Draw disjoint tasks of so many labels each; the last has the rest (FLT, scenario 4)."""
    labels = np.random.default_rng([seed, _STREAM]).permutation(num_classes)
    size = _size(text)
    parts = np.split(labels, range(size, num_classes, size))
    return tuple(tuple(sorted(part.tolist())) for part in parts)


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
    if not re.fullmatch(r"([1-9]\d*(,[1-9]\d*)*)?", str(value).replace(" ", "")):
        raise NotAllowedError
    return str(value)


TASKS = Rule("label sets of different labels, random:N, or nothing", _tasks)
CLIENTS_PER_TASK = Rule("numbers of at least 1 by commas, or nothing", _counts)
