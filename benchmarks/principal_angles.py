"""How is PACFL to be read? results/README.md has the table.

Its paper has two equations, and its authors' code does a third thing. No model is trained.
`python -m benchmarks.principal_angles`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.harness import all_features, ari
from benchmarks.writing import markdown
from clients.signatures.spectrum import leading_spectrum
from fl_core.partitions.federation import Federation
from fl_core.relevance import Spectra, corresponding_angles, smallest_angles
from strategies.clusterings.agglomeration import agglomerate_distances

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Row = dict[str, Any]

DATASETS = ("mnist-5k", "fashion-mnist")
FEATURES = ("raw", "hog")
SEEDS = 3
NUM_VECTORS = 3


def equation_2(clients: Sequence[Float32], _: Sequence[Float32]) -> Float64:
    """Return the smallest principal angles of vectors of all images, in degrees."""
    spectra = Spectra.of_vectors(clients)
    angles = smallest_angles(spectra, spectra, NUM_VECTORS)
    return np.degrees(angles, dtype=np.float64)


def equation_3(clients: Sequence[Float32], _: Sequence[Float32]) -> Float64:
    """Return the sums of the angles of corresponding vectors of all images, in degrees."""
    spectra = Spectra.of_vectors(clients)
    return corresponding_angles(spectra, spectra, NUM_VECTORS)


def authors_code(_: Sequence[Float32], of_classes: Sequence[Float32]) -> Float64:
    """Return the smallest angle between two vectors of any class; signs are arbitrary."""
    cosines = [[np.abs(one.T @ other).max() for other in of_classes] for one in of_classes]
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, 0, 1))), np.float64)


Reading = Callable[[Sequence[Float32], Sequence[Float32]], Float64]
READINGS: Mapping[str, Reading] = {
    "equation 2": equation_2,
    "equation 3": equation_3,
    "authors' code": authors_code,
}


def vectors_of(federation: Federation, features: str) -> tuple[list[Float32], list[Float32]]:
    """Return each client's singular vectors, of all its images, and class by class."""
    rows = all_features(federation.dataset, features)
    labels = federation.dataset.train_labels.numpy()
    whole, by_class = [], []
    for indices in federation.partition.train:
        parts = [rows[indices[labels[indices] == label]] for label in np.unique(labels[indices])]
        whole.append(leading_spectrum(rows[indices], NUM_VECTORS).eigenvectors)
        of_each = [leading_spectrum(part, NUM_VECTORS).eigenvectors for part in parts]
        by_class.append(np.concatenate(of_each, axis=1))
    return whole, by_class


def on_tasks(datasets: Sequence[str]) -> Iterator[Row]:
    """Yield the ARI of each reading with the number of tasks given, seed by seed."""
    for dataset, tasks, minority in product(datasets, (3, 5), (0.05, 0.0)):
        for features, seed in product(FEATURES, range(SEEDS)):
            federation = harness.federation(dataset, tasks, seed, minority=minority)
            whole, by_class = vectors_of(federation, features)
            true = federation.partition.client_tasks
            for reading, angles in READINGS.items():
                labels = agglomerate_distances(angles(whole, by_class), tasks).labels
                where = {"dataset": dataset, "tasks": tasks, "minority": minority}
                found = {"ari": ari(true, labels)}
                yield {**where, "features": features, "seed": seed, "reading": reading, **found}


def tables(measured: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Return the table of results/README.md as Markdown."""
    ways = list(product(READINGS, FEATURES))
    cells: dict[tuple[str, int, float], dict[tuple[str, str], list[float]]] = {}
    for row in measured["tasks"]:
        of_cell = cells.setdefault((row["dataset"], row["tasks"], row["minority"]), {})
        of_cell.setdefault((row["reading"], row["features"]), []).append(row["ari"])
    lines = []
    for (dataset, tasks, minority), found in cells.items():
        others = f"{minority:.0%} of other tasks" if minority else "none of other tasks"
        shown = [f"{min(found[way]):.2f}" for way in ways]
        lines.append((f"{dataset}, {tasks} tasks, {others}", *shown))
    heads = [f"{reading}, {features}" for reading, features in ways]
    return {"tasks": markdown((f"ARI, lowest of {SEEDS} seeds", *heads), lines)}


def measure(numbers: harness.Numbers, datasets: list[str]) -> Iterator[str]:
    """Measure everything."""
    numbers["tasks"] = list(on_tasks(datasets))
    yield f"{len(numbers['tasks'])} rows"


if __name__ == "__main__":
    harness.command(__doc__, "principal-angles", measure, tables, datasets=DATASETS)
