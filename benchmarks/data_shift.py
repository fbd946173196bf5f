"""Which changes of a client's images are flags? `python -m benchmarks.data_shift` prints the table.

The share of clients, %, whose δ is above FLT's default threshold once their images have changed in
the way that the column names. Each has a class mix of its own, by Dirichlet(2).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray

from clients.pre_round.shift import data_shift, image_sketch
from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.partitions.partition import default_tasks
from strategies.clusterings.flt import SignatureClustering

DATASETS = ("mnist", "fashion-mnist", "cifar10")
SIZES = (30, 100, 400, 2400)
TASKS = (2, 5)


def changes(
    dataset: Dataset, num_tasks: int, size: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """Return the training images that a client holds, and those that it holds after each change."""
    tasks = default_tasks(dataset.name, num_tasks, dataset.num_classes)
    labels = dataset.train_labels.numpy()
    mine, others = (tasks[t] for t in rng.choice(num_tasks, 2, replace=False))
    mixes = {task: rng.dirichlet([2] * len(task)) for task in (mine, others)}

    def draw(task: tuple[int, ...], count: int) -> NDArray[np.int64]:
        counts = rng.multinomial(count, mixes[task])
        of_class = (np.flatnonzero(labels == label) for label in task)
        drawn = [rng.choice(places, n) for places, n in zip(of_class, counts, strict=True)]
        return rng.permutation(np.concatenate(drawn))

    own, other = draw(mine, size), draw(others, size)
    tenth, third, half = size // 10, 3 * size // 10, size // 2
    return own, {
        "one more": np.append(own, draw(mine, 1)),
        "10 % others of the task": np.append(own[tenth:], draw(mine, tenth)),
        "30 % more of the task": np.append(own, draw(mine, third)),
        "all others of the task": draw(mine, size),
        "half another task's": np.append(own[half:], other[:half]),
        "all another task's": other,
    }


def flagged(dataset: Dataset, size: int, clients: int) -> dict[str, float]:
    """Return the share of clients of `size` images that each change flags, in percent."""
    flags, rng = Counter[str](), np.random.default_rng(size)
    for _, num_tasks in product(range(clients), TASKS):
        own, after = changes(dataset, num_tasks, size, rng)
        known = image_sketch(dataset.train_images[torch.from_numpy(own)])
        for change, images in after.items():
            shift = data_shift(known, image_sketch(dataset.train_images[torch.from_numpy(images)]))
            flags[change] += shift > SignatureClustering.change_threshold
    return {change: 100 * flags[change] / clients / len(TASKS) for change in after}


def main() -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=40)
    clients = parser.parse_args().clients
    for number, (name, size) in enumerate(product(DATASETS, SIZES)):
        found = flagged(load_dataset(name, download=False), size, clients)
        if not number:
            print(f"| images | {' | '.join(found)} |\n|{' --- |' * (1 + len(found))}")
        cells = " | ".join(f"{share:.0f}" for share in found.values())
        print(f"| {name}, {size} | {cells} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
