"""What differential privacy of the pre-round costs, and what it hides: results/README.md.

Adjusted Rand index against ε, and how well a server that has public images of the same kind infers
from the eigenvectors which classes a client holds; then the same index against the number of images
of each client, with and without the projection. No model is trained. `python -m benchmarks.privacy`
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks import harness
from benchmarks.harness import CLIENTS, KINDS, ari, relevance_matrix
from benchmarks.writing import markdown
from clients.features.compute import feature_map
from clients.privacy import PROJECTED, bounded_features, private_gram
from clients.signatures.spectrum import (
    Spectrum,
    gram_matrix,
    leading_spectrum,
    spectrum_of_gram,
)
from fl_core.data.dataset import Dataset
from fl_core.partitions.federation import Federation
from fl_core.partitions.settings import Spread
from fl_core.partitions.tasks import default_tasks
from fl_core.relevance import FORMULAS, MISSED_ENERGY, USUAL_EIGENVECTORS
from strategies.clusterings.agglomeration import agglomerate, average_relevance

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

DATASETS = ("mnist-5k", "mnist", "fashion-mnist", "cifar10")
TASKS, SEEDS = 3, 5
EPSILONS = (0, 16, 8, 4, 2, 1, 0.5, 0.25)  # 0: no noise and no projection
DELTA = 1e-5
SIZES = (50, 100, 200, 400, 800, 1600)
SIZE_EPSILONS = (8, 2, 1, 0.5)
SIZE_SEEDS = 3
# Of the formulas that compare a Gram matrix with eigenvectors, at the clients.
EIGENVECTORS = {name: USUAL_EIGENVECTORS[name] for name in FORMULAS}
MEASURES = ("ari", "auc", "most-common")


class Client(NamedTuple):
    """What one client knows, and what is true of it."""

    spectrum: Spectrum
    task: int
    counts: NDArray[np.int64]


def federation(dataset: str, partition: Spread, seed: int) -> Federation:
    """Return 25 clients of three tasks."""
    return harness.federation(dataset, TASKS, seed, partition=partition)


@lru_cache(maxsize=1)
def hog_features(dataset: Dataset) -> tuple[Float32, Float32]:
    """Return the HoG features of all training and all test images."""
    features = feature_map("hog")
    return features(dataset.train_samples).numpy(), features(dataset.test_samples).numpy()


def clients_of(
    simulated: Federation, num_eigenvectors: int, epsilon: float, rng: np.random.Generator
) -> list[Client]:
    """Return every client with its spectrum, from a Gram matrix with noise unless ε is 0."""
    rows, _ = hog_features(simulated.dataset)
    partition = simulated.partition
    found = []
    for indices, task, counts in zip(
        partition.train, partition.client_tasks, simulated.label_counts(noisy=False), strict=True
    ):
        if epsilon:
            gram = private_gram(bounded_features(rows[indices]), epsilon, DELTA, rng)
            spectrum = spectrum_of_gram(gram, num_eigenvectors)
        else:
            spectrum = leading_spectrum(rows[indices], num_eigenvectors)
        found.append(Client(spectrum, int(task), counts))
    return found


def public_grams(dataset: Dataset, *, projected: bool) -> Float64:
    """Return the Gram matrix of each class of the test images, which no client trains on."""
    _, rows = hog_features(dataset)
    if projected:
        rows = bounded_features(rows).astype(np.float32)
    labels = dataset.test_labels.numpy()
    return np.array([gram_matrix(rows[labels == c]) for c in range(dataset.num_classes)], float)


def ari_of(spectra: Sequence[Spectrum], tasks: Sequence[int], relevance: str) -> float:
    """Return the adjusted Rand index of the clusters of clients, their number given."""
    scores = relevance_matrix(relevance, spectra, EIGENVECTORS[relevance])
    found = agglomerate(average_relevance(scores), TASKS).labels
    return ari(tasks, found)


def guess_classes(shared: Sequence[Float32], grams: Float64) -> Float64:
    """Return how strongly each client's eigenvectors, (d, k), speak for each class: (K, C).

    The share of a class's public energy that a client's eigenvectors capture, compared with the
    other clients: standard deviations above their mean, class by class. `grams`, (C, d, d), are
    those of the server's public images.
    """
    captured = np.array(
        [
            np.einsum("dk,cde,ek->c", basis, grams, basis, optimize=True)
            for basis in (vectors.astype(np.float64) for vectors in shared)
        ]
    ) / np.trace(grams, axis1=1, axis2=2)
    evidence: Float64 = (captured - captured.mean(axis=0)) / captured.std(axis=0)
    return evidence


def guessed(
    clients: Sequence[Client], evidence: Float64, tasks: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """Return how good the guesses are: mean AUC over clients, and share of top guesses right.

    AUC: the chance that a class of the client's task is ranked above one of another task's.
    Top guess: the class with the strongest evidence is the one of which the client has most images.
    """
    classes = evidence.shape[1]
    pairs = list(zip(clients, evidence, strict=True))
    aucs = [
        roc_auc_score(np.isin(range(classes), tasks[client.task]), row) for client, row in pairs
    ]
    right = [row.argmax() == client.counts.argmax() for client, row in pairs]
    return float(np.mean(aucs)), float(np.mean(right))


def measure(dataset: str, partition: Spread, seed: int) -> list[dict[str, Any]]:
    """Return what was measured on one federation: one row for each relevance and ε."""
    simulated = federation(dataset, partition, seed)
    grams = {
        projected: public_grams(simulated.dataset, projected=projected)
        for projected in (False, True)
    }
    tasks = default_tasks(dataset, TASKS, simulated.dataset.num_classes)
    rows: list[dict[str, Any]] = []
    for (relevance, count), epsilon in product(EIGENVECTORS.items(), EPSILONS):
        rng = np.random.default_rng([seed, int(100 * epsilon)])
        clients = clients_of(simulated, count, epsilon, rng)
        shared = [client.spectrum.eigenvectors for client in clients]
        evidence = guess_classes(shared, grams[bool(epsilon)])
        auc, most_common = guessed(clients, evidence, tasks)
        named = {"partition": partition, "relevance": relevance, "epsilon": epsilon}
        spectra = [client.spectrum for client in clients]
        found = ari_of(spectra, [client.task for client in clients], relevance)
        rows.append({**named, "ari": found, "auc": auc, "most-common": most_common})
    return rows


def measure_sizes(seed: int) -> list[dict[str, Any]]:
    """Return the ARI of clients with equally many images of MNIST, by missed energy."""
    simulated = federation("mnist", "equal", seed)
    every, _ = hog_features(simulated.dataset)
    tasks = simulated.partition.client_tasks.tolist()
    projected = bounded_features(every)
    lengths = np.linalg.norm(every, axis=1, keepdims=True)
    whole = np.divide(every, lengths, where=lengths > 0, out=np.zeros_like(every)).astype(float)
    rows = []
    for (name, features), size, epsilon in product(
        {"projected": projected, "whole": whole}.items(), SIZES, SIZE_EPSILONS
    ):
        rng = np.random.default_rng([seed, size, int(100 * epsilon)])
        spectra = []
        for indices in simulated.partition.train:
            few = features[rng.choice(indices, size, replace=False)]
            gram = private_gram(few, epsilon, DELTA, rng)
            spectra.append(spectrum_of_gram(gram, EIGENVECTORS[MISSED_ENERGY]))
        ari = ari_of(spectra, tasks, MISSED_ENERGY)
        rows.append({"features": name, "images": size, "epsilon": epsilon, "ari": ari})
    return rows


def over_seeds(
    rows: Sequence[Mapping[str, Any]], keys: Sequence[str], measures: Sequence[str]
) -> list[dict[str, Any]]:
    """Put the rows of several seeds together: a list of numbers where there was one."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        empty = {**dict(zip(keys, key, strict=True)), **{name: [] for name in measures}}
        entry = found.setdefault(key, empty)
        for name in measures:
            entry[name].append(round(row[name], 4))
    return list(found.values())


def raw_pixels_resemblance(seed: int = 0) -> float:
    """Return the mean cosine of a client's first eigenvector of raw pixels and its mean image."""
    simulated = federation("mnist-5k", "label", seed)
    rows = feature_map("raw")(simulated.dataset.train_samples).numpy()
    cosines = []
    for indices in simulated.partition.train:
        mean = rows[indices].mean(axis=0)
        first = leading_spectrum(rows[indices], 1).eigenvectors[:, 0]
        cosines.append(abs(float(first @ mean)) / float(np.linalg.norm(mean)))
    return round(float(np.mean(cosines)), 4)


def numbers(measured: Mapping[str, Any], dataset: str, relevance: str) -> dict[float, Any]:
    """Return, for each ε, all numbers of both partitions and all seeds, measure by measure."""
    found: dict[float, dict[str, list[float]]] = {}
    for row in measured["measured"][dataset]:
        if row["relevance"] == relevance:
            entry = found.setdefault(row["epsilon"], {name: [] for name in MEASURES})
            for name in MEASURES:
                entry[name] += row[name]
    return found


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/privacy.md and results/README.md in Markdown, by name."""
    columns = list(product(measured["measured"], EIGENVECTORS))
    found = {column: numbers(measured, *column) for column in columns}
    heads = ["ε", *(f"{dataset}, {relevance}" for dataset, relevance in columns)]

    def table(cell: Any) -> str:
        lines = []
        for epsilon in measured["epsilons"]:
            shown = f"{epsilon:g}" if epsilon else "no noise"
            lines.append([shown, *(cell(found[c][epsilon]) for c in columns)])
        return markdown(heads, lines)

    sizes = []
    by_cell = {(r["features"], r["images"], r["epsilon"]): r["ari"] for r in measured["sizes"]}
    for size in SIZES:
        cells = [
            " / ".join(f"{np.mean(by_cell[kind, size, e]):.2f}" for kind in ("projected", "whole"))
            for e in SIZE_EPSILONS
        ]
        sizes.append([f"{size:,}", *cells])
    return {
        "ari": table(lambda e: f"{np.mean(e['ari']):.2f} ({min(e['ari']):.2f})"),
        "guess": table(lambda e: f"{np.mean(e['auc']):.2f} / {np.mean(e['most-common']):.0%}"),
        "sizes": markdown(["images each", *(f"ε = {e:g}" for e in SIZE_EPSILONS)], sizes),
    }


def measure_all(numbers: harness.Numbers, datasets: list[str]) -> Iterator[str]:
    """Measure what is not there yet."""
    harness.one_thread()
    found = numbers.setdefault("measured", {})
    for dataset in (one for one in datasets if one not in found):
        cells = list(product(range(SEEDS), KINDS))
        rows = [row for seed, partition in cells for row in measure(dataset, partition, seed)]
        found[dataset] = over_seeds(rows, ("partition", "relevance", "epsilon"), MEASURES)
        yield dataset
    if "sizes" not in numbers:
        rows = [row for seed in range(SIZE_SEEDS) for row in measure_sizes(seed)]
        numbers["sizes"] = over_seeds(rows, ("features", "images", "epsilon"), ("ari",))
        numbers["raw-pixels-cosine"] = raw_pixels_resemblance()
        yield "numbers of images"


def header() -> harness.Numbers:
    """Return the settings that the numbers depend on."""
    found: harness.Numbers = {"clients": CLIENTS, "tasks": TASKS, "seeds": SEEDS}
    return found | {"delta": DELTA, "dimensions": PROJECTED, "epsilons": EPSILONS}


if __name__ == "__main__":
    harness.command(__doc__, "privacy", measure_all, tables, header(), datasets=DATASETS)
