"""Concept shift: labels that mean different things to different clients, over the same samples."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset, Groups
from fl_core.partitions.partition import Tasks

_STREAM = 0xC0CE7


def concept_shifted(base: Dataset, num_tasks: int, seed: int) -> Dataset:
    """Return `base` with the labels that its classes have in each of `num_tasks` tasks.

    The training samples of each class are split evenly between the tasks, so that all of them see
    the same kind of samples; each test sample is there once for each task. The groups are
    task·C + class, and `concept_tasks` are the tasks over them. `base` has no groups of its own.

    Raises
    ------
    ValueError
        As `permutations` does.
    """
    rng = np.random.default_rng([seed, _STREAM])
    classes = base.train_labels.numpy()
    label_of = permutations(base.num_classes, num_tasks, rng)
    tasks = np.empty_like(classes)
    for one in range(base.num_classes):
        images = rng.permutation(np.flatnonzero(classes == one))
        tasks[images] = np.sort(np.arange(len(images)) % num_tasks)
    test_classes = np.tile(base.test_labels.numpy(), num_tasks)
    test_tasks = np.repeat(np.arange(num_tasks), len(base.test_labels))
    names = base.class_names
    return Dataset(
        base.name,
        base.train_samples,
        torch.from_numpy(label_of[tasks, classes]),
        torch.cat([base.test_samples] * num_tasks),
        torch.from_numpy(label_of[test_tasks, test_classes]),
        names,
        Groups(
            torch.from_numpy(tasks * base.num_classes + classes),
            torch.from_numpy(test_tasks * base.num_classes + test_classes),
            tuple(
                f"{names[c]} as {names[label]}" for own in label_of for c, label in enumerate(own)
            ),
        ),
    )


def concept_tasks(num_classes: int, num_tasks: int) -> Tasks:
    """Return the tasks over the groups of `concept_shifted`: all classes in each."""
    groups = np.arange(num_tasks * num_classes).reshape(num_tasks, num_classes)
    return tuple(tuple(own) for own in groups.tolist())


def permutations(num_classes: int, num_tasks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the label π_t(y) of each class y in each task t, shape (num_tasks, num_classes).

    π_0 is the identity, and no two tasks agree on any class: each turns one random cycle of all
    classes by a number of steps of its own.

    Raises
    ------
    ValueError
        If there are more tasks than classes: some would have to agree.
    """
    if not 1 <= num_tasks <= num_classes:
        raise ValueError(
            f'num-tasks is {num_tasks}, but shift is "concept" and there are {num_classes} '
            f"classes, which so many tasks cannot all name differently: choose 1 to {num_classes}."
        )
    cycle = rng.permutation(num_classes)
    steps = np.append(0, 1 + rng.permutation(num_classes - 1)[: num_tasks - 1])
    label_of = np.empty((num_tasks, num_classes), np.int64)
    for own, step in zip(label_of, steps, strict=True):
        own[cycle] = np.roll(cycle, -step)
    return label_of
