"""Does a new client find its cluster, or that none fits? results/README.md has the table.

Each client in turn is new to the clusters of all others (their true tasks), and each client of a
task is new to those of the other tasks. No model is trained and no message is sent.
`python -m benchmarks.placing`.
"""

import os
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.certainty import FEDERATIONS, features_and_tasks
from benchmarks.writing import markdown
from clients.signatures.spectrum import leading_spectrum
from fl_app.group.placement import place
from fl_app.results.spectra import SpectraCard, StoredSpectra
from fl_core.relevance import MISSED_ENERGY, USUAL_EIGENVECTORS

IMAGES = (10, 40)
SHARES = ("right", "fits", "rejected")


def measure(cell: tuple[dict[str, Any], int, int]) -> dict[str, Any]:
    """Return the shares of clients of a federation that are placed as they should be."""
    options, images, seeds = cell
    k = USUAL_EIGENVECTORS[MISSED_ENERGY]
    known: dict[str, list[bool]] = {name: [] for name in SHARES}
    for seed in range(seeds):
        all_features, tasks = features_and_tasks(images, seed, **options)
        vectors = [leading_spectrum(one, k).eigenvectors for one in all_features]
        for client, features in enumerate(all_features):
            others = np.flatnonzero(np.arange(len(tasks)) != client)
            of_other_tasks = np.flatnonzero(tasks != tasks[client])
            home, abroad = (
                place(features, _spectra(seed, k, tasks, vectors, clients), resamples=0)
                for clients in (others, of_other_tasks)
            )
            known["right"].append(home.cluster == tasks[client])
            known["fits"].append(home.fits)
            known["rejected"].append(not abroad.fits)
    shares = {name: round(float(np.mean(values)), 3) for name, values in known.items()}
    return {**options, "images": images, "relevance": MISSED_ENERGY, **shares}


def _spectra(seed: int, k: int, tasks: Any, vectors: Any, clients: Any) -> StoredSpectra:
    settings = ("rcc-pfl", seed, "hog", MISSED_ENERGY, k, (1, 28, 28), False)
    card = SpectraCard(*settings, names=tuple(map(str, clients)))
    return StoredSpectra(card, tasks[clients], [vectors[client] for client in clients])


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the table of results/README.md."""
    heads = ["federation", *(f"{count} images: {name}" for count in IMAGES for name in SHARES)]
    rows: dict[str, list[str]] = {}
    for cell in numbers["cells"]:
        if cell["relevance"] == MISSED_ENERGY:
            minority = f", minority {cell['minority']}" if "minority" in cell else ""
            name = f"{cell['dataset']}, {cell['num_tasks']} tasks{minority}"
            rows.setdefault(name, []).extend(f"{cell[share]:.2f}" for share in SHARES)
    return {"placing": markdown(heads, ((name, *shares) for name, shares in rows.items()))}


def measure_all(numbers: harness.Numbers, seeds: int, workers: int) -> Iterator[str]:
    """Measure all federations."""
    cells = [(options, images, seeds) for options, images in product(FEDERATIONS, IMAGES)]
    numbers |= {"seeds": seeds, "cells": list(harness.walk(measure, cells, workers))}
    yield f"{len(cells)} cells"


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    harness.command(__doc__, "placing", measure_all, tables, seeds=2, workers=cpus)
