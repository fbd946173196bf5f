"""Does one-shot clustering find the true tasks? docs/results.md has the grid: `make grid`.

Every cell is the adjusted Rand index of RCC-PFL's clusters against the true tasks, the lowest of
several seeds, for 25 clients on all training images: data set × partition × number of tasks. No
model is trained, and labels do not matter.
"""

import os
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from benchmarks import harness
from benchmarks.harness import KINDS, all_features, ari, relevance_matrix, spectra_of
from benchmarks.writing import markdown as table
from fl_core.data.datasets import load_dataset
from fl_core.partitions.settings import Spread
from fl_core.relevance import PAPER
from strategies.clusterings.relevance_groups import group_by_relevance

TASKS = (2, 3, 5)
GRIDS = (
    *("mnist:hog:20", "fashion-mnist:hog:20", "cifar10:hog:20"),
    *("cifar10:efficientnet-lite0:20", "cifar10:efficientnet-lite0:30"),
)


class Cell(NamedTuple):
    """One cell of the grid, for one seed."""

    dataset: str
    features: str
    num_eigenvectors: int
    partition: Spread
    num_tasks: int
    seed: int


class Score(NamedTuple):
    """ARI with the true tasks, when their number is given and when it is chosen."""

    given: float
    auto: float
    chosen: int


def score(cell: Cell) -> Score:
    """Cluster one federation and compare with its tasks."""
    made = harness.federation(cell.dataset, cell.num_tasks, cell.seed, partition=cell.partition)
    spectra = spectra_of(made, cell.num_eigenvectors, cell.features)
    found = relevance_matrix(PAPER, spectra, cell.num_eigenvectors)
    tasks = made.partition.client_tasks
    given = group_by_relevance(found, cell.num_tasks).labels
    auto = group_by_relevance(found, "elbow").labels
    return Score(ari(tasks, given), ari(tasks, auto), int(auto.max()) + 1)


def grid(
    dataset: str, features: str, num_eigenvectors: int, seeds: int, workers: int
) -> dict[Cell, Score]:
    """Return the score of every cell of one data set and feature map."""
    scores: dict[Cell, Score] = {}
    for seed in range(seeds):
        cells = [
            Cell(dataset, features, num_eigenvectors, partition, tasks, seed)
            for partition, tasks in product(KINDS, TASKS)
        ]
        # Before the fork: the workers share its pages.
        all_features(load_dataset(dataset, seed=seed), features)
        scores |= zip(cells, harness.walk(score, cells, workers), strict=True)
    return scores


def markdown(scores: dict[Cell, Score], title: str) -> str:
    """Return a table of the lowest score over seeds, by partition and tasks."""
    heads = ["partition", "tasks", "number given: ARI", "number chosen: ARI (clusters)"]
    rows = []
    for partition, tasks in product(KINDS, TASKS):
        found = [s for c, s in scores.items() if (c.partition, c.num_tasks) == (partition, tasks)]
        given, auto = min(one.given for one in found), min(one.auto for one in found)
        chosen = "/".join(str(n) for n in sorted({one.chosen for one in found}))
        rows.append([partition, str(tasks), f"{given:.2f}", f"{auto:.2f} ({chosen})"])
    return f"### {title}\n\n{table(heads, rows)}\n"


def measure(numbers: harness.Numbers, grids: list[str], seeds: int, workers: int) -> Iterator[str]:
    """Yield a Markdown table for each data set and feature map."""
    for name in grids:
        dataset, features, count = name.split(":")
        scores = grid(dataset, features, int(count), seeds, workers)
        title = f"{dataset}, {features} features, {count} eigenvectors: lowest ARI of {seeds} seeds"
        yield markdown(scores, title)


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(__doc__, "", measure, lambda _: {}, grids=GRIDS, seeds=3, workers=cpus)
