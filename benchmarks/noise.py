"""What noise on the shared eigenvectors and scores costs, and what it hides: docs/privacy.md.

For each data set, partition and seed, once per client: features and spectrum. Then, for each sigma,
the adjusted Rand index of the clusters, and how well a server that has public images of the same
kind tells from the eigenvectors which classes a client holds. The clients' functions are called
directly: no model is trained.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from threadpoolctl import threadpool_limits

from clients.features import feature_map
from clients.privacy import noisy_eigenvectors, noisy_relevances
from clients.settings import USUAL_EIGENVECTORS
from clients.spectrum import RELEVANCES, Spectrum, gram_matrix, leading_spectrum
from fl_app.report.pictures.figure import keep_spines, label_axes, legend_below, new_figure, save
from fl_app.report.pictures.style import GRID, SMALL_SIZE, task_colour
from fl_core.datasets import Dataset
from fl_core.federation import Federation, simulate_federation
from fl_core.files import replacing
from fl_core.partition import Kind, default_tasks
from fl_core.settings import FederationSettings
from strategies.grouping import agglomerate, average_relevance

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

DATASETS = "mnist-5k,mnist,fashion-mnist,cifar10"
CLIENTS, TASKS, SEEDS = 25, 3, 5
KINDS: tuple[Kind, ...] = ("label", "quantity")
SIGMAS = (0, 0.01, 0.025, 0.05, 0.1, 0.14, 0.2, 0.28, 0.4, 0.57, 0.8, 1.1, 1.6, 2.3, 3.2, 6.4, 12.8)
# Of the formulas that compare a Gram matrix with eigenvectors, at the clients.
EIGENVECTORS = {name: USUAL_EIGENVECTORS[name] for name in RELEVANCES}
MEASURES = ("both", "eigenvectors", "scores", "auc", "most-common")


class Client(NamedTuple):
    """What one client knows, and what is true of it."""

    spectrum: Spectrum
    task: int
    counts: NDArray[np.int64]


def federation(dataset: str, partition: Kind, seed: int) -> Federation:
    """Return 25 clients of three tasks, clean labels: labels never enter."""
    return simulate_federation(
        FederationSettings(
            dataset=dataset,
            data_dir="",
            num_clients=CLIENTS,
            num_tasks=TASKS,
            tasks="",
            partition=partition,
            dirichlet_alpha=2.0,
            minority=0.05,
            min_samples=20,
            noise="none",
            noise_rate=0.0,
            seed=seed,
        )
    )


@lru_cache(maxsize=1)
def hog_features(dataset: Dataset) -> tuple[Float32, Float32]:
    """Return the HoG features of all training and all test images."""
    features = feature_map("hog")
    return features(dataset.train_images).numpy(), features(dataset.test_images).numpy()


def clients_of(simulated: Federation, num_eigenvectors: int) -> list[Client]:
    """Return every client with its spectrum."""
    rows, _ = hog_features(simulated.dataset)
    partition = simulated.partition
    return [
        Client(leading_spectrum(rows[own], num_eigenvectors), int(task), counts)
        for own, task, counts in zip(
            partition.train,
            partition.client_tasks,
            simulated.label_counts(noisy=False),
            strict=True,
        )
    ]


def public_grams(dataset: Dataset) -> Float64:
    """Return the Gram matrix of each class of the test images, which no client trains on."""
    _, rows = hog_features(dataset)
    labels = dataset.test_labels.numpy()
    return np.array([gram_matrix(rows[labels == c]) for c in range(dataset.num_classes)], float)


def adjusted_rand(
    clients: Sequence[Client],
    shared: Sequence[Float32],
    relevance: str,
    sigma: float,
    rng: np.random.Generator,
) -> float:
    """Return the adjusted Rand index when these eigenvectors are shared and scores have noise σ."""
    scores = [
        noisy_relevances(
            RELEVANCES[relevance](own.spectrum.gram, own.spectrum.eigenvalues, shared), sigma, rng
        )
        for own in clients
    ]
    found = agglomerate(average_relevance(np.array(scores)), TASKS).labels
    return float(adjusted_rand_score([own.task for own in clients], found))


def guess_classes(shared: Sequence[Float32], grams: Float64) -> Float64:
    """Return how strongly each client's eigenvectors speak for each class, shape (K, C).

    The share of a class's public energy that a client's eigenvectors capture, compared with the
    other clients: standard deviations above their mean, class by class.

    Parameters
    ----------
    shared : sequence of NDArray[np.float32], shapes (d, k_i)
        What the server was sent.
    grams : NDArray[np.float64], shape (C, d, d)
        Of the server's public images, class by class.
    """
    captured = np.array(
        [
            np.einsum("dk,cde,ek->c", own, grams, own, optimize=True)
            for own in (vectors.astype(np.float64) for vectors in shared)
        ]
    ) / np.trace(grams, axis1=1, axis2=2)
    evidence: Float64 = (captured - captured.mean(axis=0)) / captured.std(axis=0)
    return evidence


def guessed(
    clients: Sequence[Client], evidence: Float64, tasks: Sequence[Sequence[int]]
) -> tuple[float, float]:
    """Return how good the guesses are: mean AUC over clients, and share of top guesses right.

    AUC: the chance that a class of the client's own task is ranked above one of another task's.
    Top guess: the class with the strongest evidence is the one of which the client has most images.
    """
    classes = evidence.shape[1]
    aucs = [
        roc_auc_score(np.isin(range(classes), tasks[own.task]), row)
        for own, row in zip(clients, evidence, strict=True)
    ]
    right = [
        row.argmax() == own.counts.argmax() for own, row in zip(clients, evidence, strict=True)
    ]
    return float(np.mean(aucs)), float(np.mean(right))


def measure(dataset: str, partition: Kind, seed: int) -> list[dict[str, Any]]:
    """Return what was measured on one federation: one row for each relevance and sigma."""
    simulated = federation(dataset, partition, seed)
    grams = public_grams(simulated.dataset)
    tasks = default_tasks(dataset, TASKS, simulated.dataset.num_classes)
    rows: list[dict[str, Any]] = []
    for relevance, count in EIGENVECTORS.items():
        clients = clients_of(simulated, count)
        true = [own.spectrum.eigenvectors for own in clients]
        for step, sigma in enumerate(SIGMAS):
            rng = np.random.default_rng([seed, step])
            shared = [noisy_eigenvectors(vectors, sigma, rng) for vectors in true]
            auc, most_common = guessed(clients, guess_classes(shared, grams), tasks)
            rows.append(
                {
                    "partition": partition,
                    "relevance": relevance,
                    "sigma": sigma,
                    "both": adjusted_rand(clients, shared, relevance, sigma, rng),
                    "eigenvectors": adjusted_rand(clients, shared, relevance, 0, rng),
                    "scores": adjusted_rand(clients, true, relevance, sigma, rng),
                    "auc": auc,
                    "most-common": most_common,
                }
            )
    return rows


def over_seeds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the rows of several seeds together: a list of numbers where there was one."""
    keys = ("partition", "relevance", "sigma")
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        entry = found.setdefault(
            key, {**dict(zip(keys, key, strict=True)), **{name: [] for name in MEASURES}}
        )
        for name in MEASURES:
            entry[name].append(round(row[name], 4))
    return list(found.values())


def raw_pixels_resemblance(seed: int = 0) -> float:
    """Return the mean cosine between a client's first eigenvector of raw pixels and its mean image.

    On mnist-5k: with `features=raw` the eigenvectors are images.
    """
    simulated = federation("mnist-5k", "label", seed)
    rows = feature_map("raw")(simulated.dataset.train_images).numpy()
    cosines = []
    for own in simulated.partition.train:
        mean = rows[own].mean(axis=0)
        first = leading_spectrum(rows[own], 1).eigenvectors[:, 0]
        cosines.append(abs(float(first @ mean)) / float(np.linalg.norm(mean)))
    return round(float(np.mean(cosines)), 4)


def worst_case_epsilon(
    sigma: float, num_eigenvectors: int, dimension: int, clients: int, delta: float = 1e-5
) -> float:
    """Return ε of (ε, δ)-differential privacy that holds whatever the client's images are.

    Any two sets of k unit eigenvectors differ by at most 2√k (Frobenius norm), any two rows of
    scores by at most √K; so, by the Gaussian mechanism, ρ = (4k·d + K)/(2σ²) in zero-concentrated
    differential privacy, and ε = ρ + 2√(ρ ln 1/δ) (Bun and Steinke, 2016).
    """
    rho = (4 * num_eigenvectors * dimension + clients) / (2 * sigma**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def numbers(measured: Mapping[str, Any], dataset: str, relevance: str) -> dict[float, Any]:
    """Return, for each sigma, all numbers of both partitions and all seeds, measure by measure."""
    found: dict[float, dict[str, list[float]]] = {}
    for row in measured["measured"][dataset]:
        if row["relevance"] == relevance:
            entry = found.setdefault(row["sigma"], {name: [] for name in MEASURES})
            for name in MEASURES:
                entry[name] += row[name]
    return found


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of docs/privacy.md in Markdown, by name: every second sigma."""
    columns = list(product(measured["measured"], EIGENVECTORS))
    found = {column: numbers(measured, *column) for column in columns}
    heads = ["σ", *(f"{dataset}, {relevance}" for dataset, relevance in columns)]

    def table(cell: Any) -> str:
        lines = [_row(heads), _row(["---"] * len(heads))]
        for sigma in measured["sigmas"][::2]:
            lines.append(_row([f"{sigma:g}", *(cell(found[c][sigma]) for c in columns)]))
        return "\n".join(lines)

    epsilons = [_row(["σ", "paper, k = 20", "missed-energy, k = 5"]), _row(["---"] * 3)]
    for sigma in (0.1, 1, 10, 100, 1000):
        worst = [worst_case_epsilon(sigma, k, dimension=324, clients=CLIENTS) for k in (20, 5)]
        epsilons.append(_row([f"{sigma:,}", *(f"{epsilon:,.1f}" for epsilon in worst)]))
    return {
        "ari": table(lambda e: f"{np.mean(e['both']):.2f} ({min(e['both']):.2f})"),
        "parts": table(lambda e: f"{np.mean(e['eigenvectors']):.2f} / {np.mean(e['scores']):.2f}"),
        "guess": table(lambda e: f"{np.mean(e['auc']):.2f} / {np.mean(e['most-common']):.0%}"),
        "epsilon": "\n".join(epsilons),
    }


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(measured: Mapping[str, Any], path: Path) -> Path:
    """Draw the adjusted Rand index and the server's guesses against sigma, a line per data set."""
    figure = new_figure("Noise on what clients share", 5.0)
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    handles: dict[str, Any] = {}
    for (column, (relevance, count)), (number, dataset) in product(
        enumerate(EIGENVECTORS.items()), enumerate(measured["measured"])
    ):
        found = numbers(measured, dataset, relevance)
        sigmas = [sigma for sigma in found if sigma]
        for row, name in enumerate(("both", "auc")):
            panel = axes[row, column]
            (handles[dataset],) = panel.plot(
                sigmas,
                [np.mean(found[sigma][name]) for sigma in sigmas],
                color=task_colour(number),
                marker="osD^"[number % 4],
                markersize=3.5,
                lw=1.5,
                label=dataset,
            )
            panel.set_xscale("log")
            panel.grid(color=GRID, lw=0.8)
            keep_spines(panel, "left", "bottom")
        axes[0, column].set_title(
            f"{relevance}, {count} eigenvectors", loc="left", fontsize=SMALL_SIZE
        )
        label_axes(axes[0, column], "", "ARI of the clusters" if not column else "")
        label_axes(
            axes[1, column], "sharing-noise σ", "AUC of guessed classes" if not column else ""
        )
    legend_below(figure, list(handles.values()))
    return save(figure, path)


def _on_one_line(found: re.Match[str]) -> str:
    return " ".join(found[0].split())


def main() -> None:
    """Measure the data sets that the output file does not have yet, write it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=DATASETS, help="names by commas")
    parser.add_argument("--output", type=Path, default=Path("docs/runs/measured/noise.json"))
    parser.add_argument("--picture", type=Path, default=Path("docs/pictures/noise.png"))
    options = parser.parse_args()
    threadpool_limits(1)
    result: dict[str, Any] = {"clients": CLIENTS, "tasks": TASKS, "seeds": SEEDS, "sigmas": SIGMAS}
    result |= {"raw-pixels-cosine": raw_pixels_resemblance(), "measured": {}}
    if options.output.exists():
        result = json.loads(options.output.read_text(encoding="utf-8"))
    for dataset in options.datasets.split(","):
        if dataset in result["measured"]:
            print(f"{dataset}: already in {options.output}", flush=True)
            continue
        started = time.perf_counter()
        rows: list[dict[str, Any]] = []
        for seed, partition in product(range(SEEDS), KINDS):
            rows += measure(dataset, partition, seed)
            seconds = time.perf_counter() - started
            print(f"{dataset}, {partition}, seed {seed}: {seconds:.0f} s so far", flush=True)
        result["measured"][dataset] = over_seeds(rows)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(options.output) as partial:
            text = re.sub(r"\[[^][{}]+\]", _on_one_line, json.dumps(result, indent=1))
            partial.write_text(text + "\n", encoding="utf-8")
    for name, table in tables(result).items():
        print(f"\n{name}\n\n{table}")
    print(f"\n{draw(result, options.picture)}")


if __name__ == "__main__":
    main()
