"""What labels should count in `class-energy`, where they are wrong and where they are the tasks.

Prints the table of docs/relevance.md: the lowest adjusted Rand index of three seeds, by weight.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import adjusted_rand_score

from clients.features.hog import hog
from clients.pre_round.labelled_spectrum import (
    LabelledSpectrum,
    class_energy_relevance,
    labelled_spectrum,
)
from clients.settings import CHOSEN_EIGENVECTORS
from fl_app.config.run_config import parse_config
from fl_app.launch.flower_app import read_defaults
from fl_core.federation.federation import simulate_federation
from fl_core.wire import protocol
from strategies.clusterings.grouping import agglomerate, average_relevance

ROOT = Path(__file__).parents[1]
WEIGHTS = (0.0, 0.1, 0.3, 1.0, 10.0)
_NOISY = {"noise": "class-dependent"}
_CONCEPT = {"shift": "concept"}
SCENARIOS: dict[str, tuple[dict[str, Any], int]] = {
    "labels right": ({"num-tasks": 3}, 25),
    "a quarter wrong": ({"num-tasks": 3, **_NOISY}, 25),
    "45 % wrong": ({"num-tasks": 3, **_NOISY, "noise-rate": 0.45}, 25),
    "45 % wrong, two tasks": ({"num-tasks": 2, **_NOISY, "noise-rate": 0.45}, 25),
    "40 % wrong, five tasks": ({"num-tasks": 5, **_NOISY, "noise-rate": 0.4}, 25),
    "40 % wrong at random": (
        {"num-tasks": 2, "noise": "class-independent", "noise-rate": 0.4},
        25,
    ),
    "concept shift, two tasks, 10 clients": ({"num-tasks": 2, **_CONCEPT}, 10),
    "concept shift": ({"num-tasks": 3, **_CONCEPT}, 25),
    "concept shift, five tasks": ({"num-tasks": 5, **_CONCEPT}, 25),
    "concept shift, 30 % of other tasks": ({"num-tasks": 3, **_CONCEPT, "minority": 0.3}, 25),
    "concept shift, classes skewed": ({"num-tasks": 3, **_CONCEPT, "dirichlet-alpha": 0.5}, 25),
}


class Cell(NamedTuple):
    """One federation of mnist-5k.

    Attributes
    ----------
    options : tuple of pairs
        Run-config keys and values.
    num_clients, seed : int
    """

    options: tuple[tuple[str, Any], ...]
    num_clients: int
    seed: int


Data = tuple[np.ndarray, np.ndarray, LabelledSpectrum]


@lru_cache(maxsize=1)
def clients_of(cell: Cell) -> tuple[list[int], list[Data]]:
    """Return the tasks, and each client's features, labels and spectrum."""
    config = parse_config(
        {**read_defaults(ROOT), **dict(cell.options), "num-clients": cell.num_clients}
    )
    federation = simulate_federation(config.federation_settings(cell.num_clients, cell.seed))
    found = []
    for client in range(cell.num_clients):
        images, labels = federation.training_data(client)
        features = hog(images).numpy()
        count = CHOSEN_EIGENVECTORS[protocol.CLASS_ENERGY]
        spectrum = labelled_spectrum(features, labels.numpy(), count)
        found.append((features, labels.numpy(), spectrum))
    return federation.tasks_at(0).tolist(), found


def adjusted_rand(cell: Cell, weight: float) -> float:
    """Return how well the tasks are found, their number given."""
    tasks, clients = clients_of(cell)
    spectra = [spectrum for _, _, spectrum in clients]
    relevances = [
        class_energy_relevance(
            features,
            labels,
            own.image_energy,
            own.class_energy,
            [s.eigenvectors for s in spectra],
            [s.classes for s in spectra],
            weight,
        )
        for features, labels, own in clients
    ]
    similarity = average_relevance(np.array(relevances))
    return float(adjusted_rand_score(tasks, agglomerate(similarity, len(set(tasks))).labels))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    print(f"| mnist-5k | {' | '.join(f'w = {weight:g}' for weight in WEIGHTS)} |")
    print("| --- " * (len(WEIGHTS) + 1) + "|")
    for name, (options, clients) in SCENARIOS.items():
        cells = [Cell(tuple(options.items()), clients, seed) for seed in range(seeds)]
        found = [[adjusted_rand(cell, weight) for weight in WEIGHTS] for cell in cells]
        print(
            f"| {name} | {' | '.join(f'{low:.2f}' for low in np.min(found, axis=0))} |", flush=True
        )


if __name__ == "__main__":
    main()
