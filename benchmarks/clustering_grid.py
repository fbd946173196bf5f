"""Does one-shot clustering find the true tasks? `make grid` prints the grid.

Every cell is the adjusted Rand index of RCC-PFL's clusters against the true tasks, the lowest of
several seeds, for 25 clients on all training images: data set × partition × number of tasks × label
noise. The clients' functions are called directly: no model is trained.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from benchmarks.writing import markdown as table
from clients.features.compute import feature_map
from clients.pre_round.spectrum import Spectrum, leading_spectrum
from fl_app.group.images import scores_of
from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.data.folders import cache_dir
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import simulate_federation
from fl_core.partitions.partition import Spread
from fl_core.relevance import PAPER
from strategies.clusterings.relevance_groups import group_by_relevance

CLIENTS = 25
KINDS: tuple[Spread, ...] = ("label", "quantity")
NOISES = [
    (noise, rate) for noise in ("class-independent", "class-dependent") for rate in (0.0, 0.25, 0.5)
]


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
def all_features(dataset: Dataset, features: str) -> NDArray[np.float32]:
    """Return the features of every training image; the process keeps the last ones.

    The data set is the federation's own, not its name: which images mnist-5k trains on depends on
    the seed.
    """
    return feature_map(features, cache_dir=cache_dir())(dataset.train_images).numpy()


@lru_cache(maxsize=1)
def table_of_relevances(
    dataset: Dataset, features: str, num_eigenvectors: int, images: tuple[bytes, ...]
) -> NDArray[np.float64]:
    """Return r(i, j) of the clients that hold these images: indices, int64, as bytes.

    Labels are no argument, so that cells which differ in their noise alone share it. Feature maps
    work image by image, so a client's features are rows of the data set's.
    """
    rows = all_features(dataset, features)
    spectra = [leading_spectrum(rows[np.frombuffer(i, np.int64)], num_eigenvectors) for i in images]
    return said(PAPER, spectra, num_eigenvectors)


def with_eigenvectors(spectra: Sequence[Spectrum], count: int) -> list[Spectrum]:
    """Return the spectra as if only `count` eigenvectors had been asked for."""
    return [
        replace(s, eigenvalues=s.eigenvalues[:count], eigenvectors=s.eigenvectors[:, :count])
        for s in spectra
    ]


def said(formula: str, spectra: Sequence[Spectrum], count: int) -> NDArray[np.float64]:
    """Return r, shape (K, K), with `count` eigenvectors of each client; row i is client i's."""
    few = with_eigenvectors(spectra, count)
    return np.array([scores_of(formula, s, [one.eigenvectors for one in few]) for s in few])


def score(cell: Cell) -> Score:
    """Cluster one federation and compare with its tasks."""
    federation = simulate_federation(
        FederationSettings(
            dataset=cell.dataset,
            num_clients=CLIENTS,
            num_tasks=cell.num_tasks,
            partition=cell.partition,
            noise=cell.noise,
            noise_rate=cell.rate,
            seed=cell.seed,
        )
    )
    partition = federation.partition
    images = tuple(indices.tobytes() for indices in partition.train)
    found = table_of_relevances(federation.dataset, cell.features, cell.num_eigenvectors, images)
    given = group_by_relevance(found, cell.num_tasks).labels
    auto = group_by_relevance(found, "elbow").labels
    return Score(
        float(adjusted_rand_score(partition.client_tasks, given)),
        float(adjusted_rand_score(partition.client_tasks, auto)),
        int(auto.max()) + 1,
    )


def _start_worker() -> None:
    torch.set_num_threads(1)
    threadpool_limits(1)


def grid(
    dataset: str, features: str, num_eigenvectors: int, seeds: int, workers: int
) -> dict[Cell, Score]:
    """Return the score of every cell of one data set and feature map."""
    scores: dict[Cell, Score] = {}
    for seed in range(seeds):
        cells = [
            Cell(dataset, features, num_eigenvectors, partition, tasks, noise, rate, seed)
            for partition, tasks, (noise, rate) in product(KINDS, (2, 3, 5), NOISES)
        ]
        # Before the fork: the workers share its pages.
        all_features(load_dataset(dataset, seed=seed), features)
        with multiprocessing.get_context("fork").Pool(workers, _start_worker) as pool:
            found = pool.map(score, cells, chunksize=len(NOISES))
        scores |= zip(cells, found, strict=True)
    return scores


def markdown(scores: dict[Cell, Score], title: str) -> str:
    """Return a table of the lowest score over seeds, by partition and tasks × noise."""
    heads = ["partition", "tasks"]
    heads += [f"{noise.removeprefix('class-')} {rate:.0%}" for noise, rate in NOISES]
    heads += ["number chosen: ARI (clusters)"]
    rows = []
    for partition, tasks in product(KINDS, (2, 3, 5)):
        mine = {c: s for c, s in scores.items() if (c.partition, c.num_tasks) == (partition, tasks)}
        by_noise = [
            min(s.given for c, s in mine.items() if (c.noise, c.rate) == noise) for noise in NOISES
        ]
        chosen = "/".join(str(n) for n in sorted({s.chosen for s in mine.values()}))
        auto = min(s.auto for s in mine.values())
        cells = [partition, str(tasks), *(f"{s:.2f}" for s in by_noise), f"{auto:.2f} ({chosen})"]
        rows.append(cells)
    return f"### {title}\n\n{table(heads, rows)}\n"


def main() -> None:
    """Print one Markdown table for each data set and feature map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--grids",
        default="mnist:hog:20,fashion-mnist:hog:20,cifar10:hog:20,"
        "cifar10:efficientnet-lite0:20,cifar10:efficientnet-lite0:30",
        help="DATASET:FEATURES:EIGENVECTORS by commas",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    for name in options.grids.split(","):
        dataset, features, eigenvectors = name.split(":")
        started = time.perf_counter()
        scores = grid(dataset, features, int(eigenvectors), options.seeds, options.workers)
        title = (
            f"{dataset}, {features} features, {eigenvectors} eigenvectors: lowest ARI of "
            f"{options.seeds} seeds "
            f"({time.perf_counter() - started:.0f} s)"
        )
        print(markdown(scores, title), flush=True)


if __name__ == "__main__":
    main()
