"""Federations without a liar, usual and hard ones: who is odd in them is accused wrongly.

Their clients see one task or several, and have many images or few. `benchmarks.odd_clients` counts
who is odd, for docs/measured/robustness.md.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.harness import KINDS, all_features
from clients.signatures.spectrum import Spectrum, leading_spectrum
from fl_core.partitions import partition

MOST_EIGENVECTORS = 20
DATASETS = ("mnist-5k", "mnist", "fashion-mnist", "cifar10")
SIZES = (10, 25, 60, 100)
TASKS = (1, 2, 3, 5, 8)
FEWEST_IMAGES = 5


class Kind(NamedTuple):
    """What a federation's clients have: of `few` of them, a share, a tenth of it is taken."""

    data: str
    clients: int
    tasks: int
    partition: partition.Spread
    few: float = 0.0


def kinds(data: str) -> list[Kind]:
    """Return the kinds of federation that are made of these data."""
    found = [Kind(data, size, tasks, kind) for size, tasks, kind in product(SIZES, TASKS, KINDS)]
    for size, tasks in product(SIZES, (1, 3)):
        found += [Kind(data, size, tasks, "label", few) for few in (0.1, 0.4)]
        found.append(Kind(data, size, tasks, "power-law"))
    return found


def spectra_of(kind: Kind, seed: int) -> list[Spectrum]:
    """Return everybody's spectrum in a federation."""
    rng = np.random.default_rng([seed, kind.clients, kind.tasks])
    how = {"num_clients": kind.clients, "partition": kind.partition, "min_samples": FEWEST_IMAGES}
    made = harness.federation(kind.data, kind.tasks, seed, **how)
    rows = all_features(made.dataset)
    parts = [rows[own] for own in made.partition.train]
    for client in rng.choice(kind.clients, round(kind.few * kind.clients), replace=False):
        count = len(parts[client])
        kept = rng.permutation(count)[: max(FEWEST_IMAGES, count // 10)]
        parts[client] = parts[client][kept]
    return [leading_spectrum(own, MOST_EIGENVECTORS) for own in parts]
