"""Concept shift: the same samples have other labels in each task."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset, Groups
from fl_core.partitions.tasks import Tasks

_STREAM = 0xC0CE7


def shift_concept(base: Dataset, num_tasks: int, seed: int) -> Dataset:
    """Return `base`, a data set without groups, with other labels in each of `num_tasks` tasks.

    The training samples of each class are split evenly between the tasks; each test sample occurs
    once for each task. The groups are task·C + class.
    """
    rng = np.random.default_rng([seed, _STREAM])
    classes = base.train_labels.numpy()
    label_of = permutations(base.num_classes, num_tasks, rng)
    tasks = np.empty_like(classes)
    for label in range(base.num_classes):
        samples = rng.permutation(np.flatnonzero(classes == label))
        tasks[samples] = np.sort(np.arange(len(samples)) % num_tasks)
    test_classes = np.tile(base.test_labels.numpy(), num_tasks)
    test_tasks = np.repeat(np.arange(num_tasks), len(base.test_labels))
    names = base.class_names
    groups = Groups(
        torch.from_numpy(tasks * base.num_classes + classes),
        torch.from_numpy(test_tasks * base.num_classes + test_classes),
        tuple(f"{names[c]} as {names[label]}" for task in label_of for c, label in enumerate(task)),
    )
    return replace(
        base,
        train_labels=torch.from_numpy(label_of[tasks, classes]),
        test_samples=torch.cat([base.test_samples] * num_tasks),
        test_labels=torch.from_numpy(label_of[test_tasks, test_classes]),
        groups=groups,
    )


def concept_tasks(num_classes: int, num_tasks: int) -> Tasks:
    """Return the tasks over the groups of `shift_concept`: all classes in each."""
    return tuple(tuple(range(t * num_classes, (t + 1) * num_classes)) for t in range(num_tasks))


def permutations(num_classes: int, num_tasks: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the label π_t(y) of each class y in each task t, shape (num_tasks, num_classes).

    π_0 is the identity, and no two tasks agree on any class: each turns one random cycle of all
    classes by another number of steps.
    """
    if not 1 <= num_tasks <= num_classes:
        raise ValueError(
            f'num-tasks is {num_tasks}, but shift is "concept", where each task has another label '
            f"for each of {num_classes} classes: choose 1 to {num_classes}."
        )
    cycle = rng.permutation(num_classes)
    steps = np.append(0, 1 + rng.permutation(num_classes - 1)[: num_tasks - 1])
    label_of = np.empty((num_tasks, num_classes), np.int64)
    for labels, step in zip(label_of, steps, strict=True):
        labels[cycle] = np.roll(cycle, -step)
    return label_of
