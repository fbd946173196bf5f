"""Federations without a liar, usual and hard ones: who is odd in them is accused wrongly.

Their clients see one task or several, have many images or few, and some differ by nature: in how
their digits were drawn, or in the part of a photograph that they see. `benchmarks.odd_clients`
counts who is odd.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_sample_images

from benchmarks.clustering_grid import KINDS, all_features
from clients.features.hog import hog
from clients.pre_round.spectrum import Spectrum, leading_spectrum
from experiments.shifted_digits import STYLES, styled
from fl_core.data.datasets import load_dataset
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import simulate_federation
from fl_core.partitions import partition

MOST_EIGENVECTORS = 20
DATASETS = ("mnist-5k", "mnist", "fashion-mnist", "cifar10")
STYLED, PHOTOGRAPHS = "styles", "photographs"
SIZES = (10, 25, 60, 100)
TASKS = (1, 2, 3, 5, 8)
FEWEST_IMAGES = 5
AREAS = ((2, 5), (4, 6), (5, 10))  # rows and columns of either photograph; a client sees one
PATCH = 28  # pixels across

Features = NDArray[np.float32]


class Kind(NamedTuple):
    """What a federation's clients have: of `few` of them, a share, a tenth of it is taken."""

    data: str
    clients: int
    tasks: int
    partition: partition.Spread
    few: float = 0.0


def kinds(data: str) -> list[Kind]:
    """Return the kinds of federation that are made of these data."""
    if data == PHOTOGRAPHS:
        return [Kind(data, 2 * rows * columns, 2, "quantity") for rows, columns in AREAS]
    if data == STYLED:
        every = product(SIZES, (1, 2, 5), (0.0, 0.2))
        return [Kind(data, size, tasks, "equal", few) for size, tasks, few in every]
    found = [Kind(data, size, tasks, kind) for size, tasks, kind in product(SIZES, TASKS, KINDS)]
    for size, tasks in product(SIZES, (1, 3)):
        found += [Kind(data, size, tasks, "label", few) for few in (0.1, 0.4)]
        found.append(Kind(data, size, tasks, "power-law"))
    return found


def spectra_of(kind: Kind, seed: int) -> list[Spectrum]:
    """Return everybody's spectrum in a federation."""
    rng = np.random.default_rng([seed, kind.clients, kind.tasks])
    parts = list(_parts(kind, seed, rng))
    for client in rng.choice(kind.clients, round(kind.few * kind.clients), replace=False):
        count = len(parts[client])
        kept = rng.permutation(count)[: max(FEWEST_IMAGES, count // 10)]
        parts[client] = parts[client][kept]
    return [leading_spectrum(own, MOST_EIGENVECTORS) for own in parts]


def _parts(kind: Kind, seed: int, rng: np.random.Generator) -> Iterator[Features] | list[Features]:
    """Return each client's features."""
    if kind.data == PHOTOGRAPHS:
        return _areas(kind.clients // 2, rng)
    if kind.data == STYLED:
        return _styles(kind, seed, rng)
    made = simulate_federation(
        FederationSettings(
            dataset=kind.data,
            num_clients=kind.clients,
            num_tasks=kind.tasks,
            partition=kind.partition,
            min_samples=FEWEST_IMAGES,
            seed=seed,
        )
    )
    rows = all_features(made.dataset, "hog")
    return [rows[own] for own in made.partition.train]


def _styles(kind: Kind, seed: int, rng: np.random.Generator) -> Iterator[Features]:
    """Yield digits of mnist-5k, in one of so many styles at each client."""
    images = load_dataset("mnist-5k", seed=seed).train_images
    styles = rng.permutation(np.arange(kind.clients) % kind.tasks)
    parts = np.array_split(rng.permutation(len(images)), kind.clients)
    for style, own in zip(styles.tolist(), parts, strict=True):
        drawn = styled(images[torch.from_numpy(own)].numpy(), STYLES[style], rng)
        yield hog(torch.from_numpy(drawn)).numpy()


def _areas(count: int, rng: np.random.Generator) -> Iterator[Features]:
    """Yield patches, 20 to 200 of them, from one area at each client, of scikit-learn's two."""
    rows, columns = next(grid for grid in AREAS if grid[0] * grid[1] == count)
    for photograph in load_sample_images().images:
        height, width = photograph.shape[0] // rows, photograph.shape[1] // columns
        for row, column in product(range(rows), range(columns)):
            number = round(20 * 10 ** rng.random())
            tops = row * height + rng.integers(height - PATCH, size=number)
            lefts = column * width + rng.integers(width - PATCH, size=number)
            yield _features(photograph, tops.tolist(), lefts.tolist())


def _features(photograph: NDArray[np.uint8], tops: Sequence[int], lefts: Sequence[int]) -> Features:
    corners = zip(tops, lefts, strict=True)
    patches = [photograph[top : top + PATCH, left : left + PATCH] for top, left in corners]
    features: Features = hog(torch.from_numpy(np.stack(patches).transpose(0, 3, 1, 2))).numpy()
    return features
