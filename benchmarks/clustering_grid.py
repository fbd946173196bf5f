"""Does one-shot clustering find the true tasks? docs/results.md has the grid: `make grid`.

Every cell is the adjusted Rand index of RCC-PFL's clusters against the true tasks, the lowest of
several seeds, for 25 clients on all training images: data set × partition × number of tasks × label
noise. The clients' functions are called directly: no model is trained.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.harness import KINDS, all_features, ari, relevance_matrix
from benchmarks.writing import markdown as table
from clients.signatures.spectrum import leading_spectrum
from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.partitions.partition import Spread
from fl_core.relevance import PAPER
from strategies.clusterings.relevance_groups import group_by_relevance

NOISES = [
    (noise, rate) for noise in ("class-independent", "class-dependent") for rate in (0.0, 0.25, 0.5)
]
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
    noise: str
    rate: float
    seed: int


class Score(NamedTuple):
    """Agreement with the true tasks, when their number is given and when it is chosen."""

    given: float
    auto: float
    chosen: int


@lru_cache(maxsize=1)
def table_of_relevances(
    dataset: Dataset, features: str, num_eigenvectors: int, images: tuple[bytes, ...]
) -> NDArray[np.float64]:
    """Return r(i, j) of the clients that hold these images: indices, int64, as bytes.

    Labels are no argument, so that cells which differ in their noise alone share it.
    """
    rows = all_features(dataset, features)
    spectra = [leading_spectrum(rows[np.frombuffer(i, np.int64)], num_eigenvectors) for i in images]
    return relevance_matrix(PAPER, spectra, num_eigenvectors)


def score(cell: Cell) -> Score:
    """Cluster one federation and compare with its tasks."""
    how = {"partition": cell.partition, "noise": cell.noise, "noise_rate": cell.rate}
    federation = harness.federation(cell.dataset, cell.num_tasks, cell.seed, **how)
    images = tuple(indices.tobytes() for indices in federation.partition.train)
    found = table_of_relevances(federation.dataset, cell.features, cell.num_eigenvectors, images)
    tasks = federation.partition.client_tasks
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
            Cell(dataset, features, num_eigenvectors, partition, tasks, noise, rate, seed)
            for partition, tasks, (noise, rate) in product(KINDS, TASKS, NOISES)
        ]
        # Before the fork: the workers share its pages.
        all_features(load_dataset(dataset, seed=seed), features)
        with multiprocessing.get_context("fork").Pool(workers, harness.one_thread) as pool:
            scores |= zip(cells, pool.map(score, cells, chunksize=len(NOISES)), strict=True)
    return scores


def markdown(scores: dict[Cell, Score], title: str) -> str:
    """Return a table of the lowest score over seeds, by partition and tasks × noise."""
    heads = ["partition", "tasks"]
    heads += [f"{noise.removeprefix('class-')} {rate:.0%}" for noise, rate in NOISES]
    heads += ["number chosen: ARI (clusters)"]
    rows = []
    for partition, tasks in product(KINDS, TASKS):
        mine = {c: s for c, s in scores.items() if (c.partition, c.num_tasks) == (partition, tasks)}
        by_noise = [
            min(s.given for c, s in mine.items() if (c.noise, c.rate) == noise) for noise in NOISES
        ]
        chosen = "/".join(str(n) for n in sorted({s.chosen for s in mine.values()}))
        auto = min(s.auto for s in mine.values())
        cells = [partition, str(tasks), *(f"{s:.2f}" for s in by_noise), f"{auto:.2f} ({chosen})"]
        rows.append(cells)
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
