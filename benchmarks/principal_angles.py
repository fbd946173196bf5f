"""How is PACFL to be read? Its paper has two equations, and its authors' code does a third thing.

`python -m benchmarks.principal_angles` (FL_DATA_DIR set) prints two of docs/measured/strategies.md:
the adjusted Rand index of this project's tasks, and, where each of 100 clients has images of two
classes (the paper's label skew of 20 %), which share of the pairs of clients within a cluster have
a class in common. No model is trained.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from benchmarks.harness import all_features
from benchmarks.writing import RESULTS, markdown, write
from clients.pre_round.spectrum import leading_spectrum
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import Federation, simulate_federation
from fl_core.relevance import PRINCIPAL_ANGLE
from strategies.clusterings.grouping import agglomerate_distances
from strategies.clusterings.principal_angle import corresponding_angles
from strategies.clusterings.server_relevance import Spectra, relevances

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Row = dict[str, Any]

DATASETS = "mnist-5k,fashion-mnist"
FEATURES = ("raw", "hog")
SEEDS = 3
NUM_VECTORS = 3
PAIRS = "|".join(f"{one},{other}" for one, other in combinations(range(10), 2))
NUM_CLUSTERS = 10


def equation_2(clients: Sequence[Float32], _: Sequence[Float32]) -> Float64:
    """Return the smallest principal angles of vectors of all images, in degrees."""
    spectra = Spectra.of_vectors(clients)
    smallest = relevances(PRINCIPAL_ANGLE, spectra, spectra, NUM_VECTORS)
    return 90 * (1 - smallest.astype(np.float64))


def equation_3(clients: Sequence[Float32], _: Sequence[Float32]) -> Float64:
    """Return the sums of the angles of corresponding vectors of all images, in degrees."""
    spectra = Spectra.of_vectors(clients)
    return corresponding_angles(spectra, spectra, NUM_VECTORS)


def authors_code(_: Sequence[Float32], of_classes: Sequence[Float32]) -> Float64:
    """Return the smallest angle between two vectors, of whatever class of either client.

    Absolute cosines stand for the authors' signed ones, since signs are arbitrary.
    """
    cosines = [[np.abs(own.T @ other).max() for other in of_classes] for own in of_classes]
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, 0, 1))), np.float64)


Reading = Callable[[Sequence[Float32], Sequence[Float32]], Float64]
READINGS: Mapping[str, Reading] = {
    "equation 2": equation_2,
    "equation 3": equation_3,
    "authors' code": authors_code,
}


def vectors_of(
    federation: Federation, features: str
) -> tuple[list[Float32], list[Float32], list[set[int]]]:
    """Return each client's singular vectors, of all its images and class by class, and classes."""
    rows = all_features(federation.dataset, features)
    labels = federation.dataset.train_labels.numpy()
    whole, by_class, classes = [], [], []
    for own in federation.partition.train:
        held = np.unique(labels[own]).tolist()
        parts = [rows[own[labels[own] == label]] for label in held]
        whole.append(leading_spectrum(rows[own], NUM_VECTORS).eigenvectors)
        of_each = [leading_spectrum(part, NUM_VECTORS).eigenvectors for part in parts]
        by_class.append(np.concatenate(of_each, axis=1))
        classes.append(set(held))
    return whole, by_class, classes


def federation_of(dataset: str, seed: int, **options: Any) -> Federation:
    """Return a federation with right labels."""
    given = {"num_clients": 25, "dataset": dataset, "seed": seed, **options}
    return simulate_federation(FederationSettings(**given))


def on_tasks(datasets: Sequence[str]) -> Iterator[Row]:
    """Yield the ARI of each reading with the number of tasks given, seed by seed."""
    for dataset, tasks, minority in product(datasets, (3, 5), (0.05, 0.0)):
        for features, seed in product(FEATURES, range(SEEDS)):
            federation = federation_of(dataset, seed, num_tasks=tasks, minority=minority)
            whole, by_class, _ = vectors_of(federation, features)
            true = federation.partition.client_tasks
            for reading, angles in READINGS.items():
                labels = agglomerate_distances(angles(whole, by_class), tasks).labels
                where = {"dataset": dataset, "tasks": tasks, "minority": minority}
                found = {"ari": float(adjusted_rand_score(true, labels))}
                yield {**where, "features": features, "seed": seed, "reading": reading, **found}


def on_pairs(datasets: Sequence[str]) -> Iterator[Row]:
    """Yield, of clients with two classes each, how alike those of a cluster are, and vice versa."""
    upper = np.triu_indices(100, 1)
    for dataset, features, seed in product(datasets, FEATURES, range(SEEDS)):
        options = {"num_clients": 100, "num_tasks": 45, "tasks": PAIRS, "partition": "equal"}
        federation = federation_of(dataset, seed, minority=0.0, **options)
        whole, by_class, classes = vectors_of(federation, features)
        common = np.array([[len(one & other) for other in classes] for one in classes])[upper]
        for reading, angles in READINGS.items():
            labels = agglomerate_distances(angles(whole, by_class), NUM_CLUSTERS).labels
            together = np.equal.outer(labels, labels)[upper]
            yield {
                **{"dataset": dataset, "features": features, "seed": seed, "reading": reading},
                "one-in-common": float((common[together] > 0).mean()),
                "same-together": float(together[common == 2].mean()),
            }


def tables(measured: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Return both tables as Markdown."""
    heads = [f"{reading}, {features}" for reading, features in product(READINGS, FEATURES)]
    lines = []
    keys = ("dataset", "tasks", "minority")
    for cell in dict.fromkeys(tuple(row[key] for key in keys) for row in measured["tasks"]):
        dataset, tasks, minority = cell
        others = f"{minority:.0%} of other tasks" if minority else "none of other tasks"
        rows = [row for row in measured["tasks"] if tuple(row[key] for key in keys) == cell]
        found = [f"{min(values):.2f}" for values in _values(rows, "ari")]
        lines.append((f"{dataset}, {tasks} tasks, {others}", *found))
    skew = []
    for dataset in dict.fromkeys(row["dataset"] for row in measured["pairs"]):
        rows = [row for row in measured["pairs"] if row["dataset"] == dataset]
        for key, words in (
            ("one-in-common", "of pairs in a cluster, have a class in common"),
            ("same-together", "of pairs with the same two classes, are in a cluster"),
        ):
            found = [f"{np.mean(values):.0%}" for values in _values(rows, key)]
            skew.append((f"{dataset}: {words}", *found))
    return {
        "tasks": markdown((f"ARI, lowest of {SEEDS} seeds", *heads), lines),
        "pairs": markdown((f"{NUM_CLUSTERS} clusters of 100 clients", *heads), skew),
    }


def _values(rows: Sequence[Row], key: str) -> Iterator[list[float]]:
    for reading, features in product(READINGS, FEATURES):
        yield [row[key] for row in rows if (row["reading"], row["features"]) == (reading, features)]


def main() -> None:
    """Measure, write the numbers, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=DATASETS)
    parser.add_argument("--output", type=Path, default=RESULTS / "principal-angles.json.xz")
    options = parser.parse_args()
    datasets = options.datasets.split(",")
    measured = {"tasks": list(on_tasks(datasets)), "pairs": list(on_pairs(datasets))}
    write(measured, options.output)
    print("\n\n".join(tables(measured).values()))


if __name__ == "__main__":
    main()
