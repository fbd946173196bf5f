"""Grouping 25 to 100,000 clients at the server: `python -m benchmarks.many_clients`.

Each client has a few images of its task, drawn with replacement from a data set's training images,
and a share of others; its eigenpairs are computed here by what it would call. Seconds and the
peak of memory are those of the server's part alone: from everybody's eigenpairs to clusters.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from benchmarks.clustering_grid import all_features
from benchmarks.peak import Peak
from benchmarks.writing import write
from clients.pre_round.spectrum import leading_spectrum
from clients.settings import USUAL_EIGENVECTORS
from fl_core.data.datasets import load_dataset
from fl_core.partitions.partition import default_tasks
from fl_core.wire import protocol
from strategies.clusterings.spectral import RANK, SpectralClustering
from strategies.engine.conversation import Conversation

IMAGES = 60
MINORITY = 0.05


def counts_of(formula: str) -> tuple[int, int]:
    """Return how many eigenvectors are compared at the server, and how many are sent."""
    compared = USUAL_EIGENVECTORS[formula]
    return compared, max(compared, RANK)


def clients_of(
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    tasks: Sequence[Sequence[int]],
    count: int,
    rank: int,
    seed: int,
) -> tuple[dict[int, NDArray[np.float32]], dict[int, NDArray[np.float64]], NDArray[np.int64]]:
    """Return everybody's eigenvectors, (d, k) each, eigenvalues, (k,), and tasks, (K,)."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(count) % len(tasks))
    own = [np.flatnonzero(np.isin(labels, task)) for task in tasks]
    others = round(MINORITY * IMAGES)
    vectors, values = {}, {}
    for client, task in enumerate(truth.tolist()):
        chosen = [rng.choice(own[task], IMAGES - others), rng.integers(len(rows), size=others)]
        spectrum = leading_spectrum(rows[np.concatenate(chosen)], rank)
        vectors[client], values[client] = spectrum.eigenvectors, spectrum.eigenvalues
    return vectors, values, truth


def _resident() -> dict[str, int]:
    return {"here": psutil.Process().memory_info().rss}


def measure(
    spectra: tuple[dict[int, NDArray[np.float32]], dict[int, NDArray[np.float64]]],
    truth: NDArray[np.int64],
    relevance: str,
    landmarks: int | str,
    seed: int,
) -> tuple[dict[str, Any], list[int]]:
    """Group the clients and return what it took and how right it was, and everybody's cluster."""
    count, rank = counts_of(relevance)
    clustering = SpectralClustering(
        int(truth.max()) + 1,
        count,
        relevance=relevance,
        relevance_at="server",
        landmarks=landmarks,
    )
    vectors, values = spectra
    clustering._spectra = {client: own[:, :rank] for client, own in vectors.items()}
    clustering._values = {client: own[:rank] for client, own in values.items()}
    conversation = Conversation(None, {protocol.SEED: seed}, 1)  # type: ignore[arg-type]
    started = time.perf_counter()
    before = _resident()["here"]
    with Peak(_resident, every=0.05) as memory:
        found = clustering._compare(conversation)
    clusters = list(found.of_client.values())
    row = {
        "clients": len(truth),
        "relevance": relevance,
        "compared": len(found.compared),
        "seconds": round(time.perf_counter() - started, 2),
        "gigabytes": round((memory.largest["here"] - before) / 1e9, 2),
        "ari": round(adjusted_rand_score(truth, clusters), 4),
    }
    return row, clusters


def main() -> int:
    """Print a line for each measurement, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument(
        "--landmarks",
        nargs="+",
        default=["auto"],
        help="numbers, or auto; the first is what the others' clusters are compared with",
    )
    parser.add_argument("--relevance", nargs="+", default=["missed-energy"])
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--num-tasks", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    dataset = load_dataset(options.dataset)
    rows = all_features(dataset, "hog")
    labels = dataset.train_labels.numpy()
    tasks = default_tasks(options.dataset, options.num_tasks, dataset.num_classes)
    rank = max(sent for _, sent in map(counts_of, options.relevance))
    done = []
    for count in options.clients:
        for seed in range(options.seeds):
            vectors, values, truth = clients_of(rows, labels, tasks, count, rank, seed)
            for relevance in options.relevance:
                first = None
                for words in options.landmarks:
                    landmarks = words if words == "auto" else int(words)
                    row, clusters = measure((vectors, values), truth, relevance, landmarks, seed)
                    first = first or clusters
                    row["ari_with_first"] = round(adjusted_rand_score(first, clusters), 4)
                    done.append({"dataset": options.dataset, "seed": seed, **row})
                    print(json.dumps(done[-1]), flush=True)
    if options.output:
        write({"rows": done}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
