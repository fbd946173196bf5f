"""Which γ relates the right clients? docs/methods.md has the table.

FLT's signatures, an encoder pre-trained on mnist-5k, no fine-tuning: how many of the federations
fall into exactly their true tasks. No model is trained. `python -m benchmarks.graph_threshold`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.writing import markdown
from clients.signatures.autoencoder import encode
from clients.signatures.pretraining import pretrained_autoencoder
from clients.signatures.signature import signature
from fl_core.data.dataset import Dataset
from fl_core.partitions.settings import Spread
from strategies.clusterings.signatures import (
    closest_distances,
    embed_signatures,
    group_graph,
    relatedness_graph,
)

THRESHOLDS = (0.2, 0.3, 0.4, 1.0)


class Group(NamedTuple):
    """Federations that are counted together."""

    dataset: str
    num_clients: int
    partitions: tuple[Spread, ...]
    tasks: tuple[int, ...]
    minority: float


GROUPS = (
    Group("mnist-5k", 25, ("label", "quantity"), (2, 3, 5), 0.05),
    Group("mnist", 25, ("label", "quantity"), (2, 3, 5), 0.05),
    Group("mnist", 100, ("equal",), (5,), 0.0),  # FLT's scenario 1
)


@lru_cache(maxsize=1)
def all_embeddings(dataset: Dataset) -> NDArray[np.float32]:
    """Return the embeddings of all training images; the process caches the last ones.

    Which images mnist-5k trains on depends on the seed, so the data set is given, not its name.
    """
    return encode(pretrained_autoencoder("mnist-5k", 1), dataset.train_samples)


def count(group: Group, seeds: int) -> tuple[int, dict[float, int]]:
    """Return the number of federations, and how many are grouped exactly with each γ."""
    number, right = 0, dict.fromkeys(THRESHOLDS, 0)
    how = {"num_clients": group.num_clients, "minority": group.minority}
    for seed, partition, tasks in product(range(seeds), group.partitions, group.tasks):
        made = harness.federation(group.dataset, tasks, seed, partition=partition, **how)
        embeddings = all_embeddings(made.dataset)
        signatures = [signature(embeddings[indices], 5, seed) for indices in made.partition.train]
        distances = closest_distances(embed_signatures(signatures, seed))
        number += 1
        for threshold in THRESHOLDS:
            labels = group_graph(relatedness_graph(distances, threshold), tasks).labels
            right[threshold] += harness.ari(made.partition.client_tasks, labels) == 1
    return number, right


def measure(numbers: harness.Numbers, seeds: int) -> Iterator[str]:
    """Count in each group of federations."""
    harness.one_thread()
    numbers["rows"] = []
    for group in GROUPS:
        number, right = count(group, seeds)
        label = f"{group.dataset}, {group.num_clients} clients, {' and '.join(group.partitions)}"
        numbers["rows"].append([label, number, *right.values()])
        yield f"{label}: {number} federations"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the counts as Markdown."""
    names = [f"γ = {threshold:g}" for threshold in THRESHOLDS]
    return {"grouped exactly": markdown(["federations", "how many", *names], numbers["rows"])}


if __name__ == "__main__":
    harness.command(__doc__, "", measure, tables, seeds=3)
