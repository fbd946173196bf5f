"""Which γ relates the right clients? `python -m benchmarks.graph_threshold` prints the table.

FLT's signatures, an encoder pre-trained on mnist-5k, no fine-tuning: how many of the federations
fall into exactly their true tasks. No model is trained.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from clients.pre_round.autoencoder import encode
from clients.pre_round.pretraining import pretrained_autoencoder
from clients.pre_round.signature import signature
from fl_core.data.dataset import Dataset
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import simulate_federation
from fl_core.partitions.partition import Spread
from strategies.clusterings.grouping import NumClusters
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


def federations(group: Group, seeds: int) -> Iterator[FederationSettings]:
    """Yield the settings of a group's federations, those of one seed after one another."""
    for seed, partition, tasks in product(range(seeds), group.partitions, group.tasks):
        yield FederationSettings(
            dataset=group.dataset,
            num_clients=group.num_clients,
            num_tasks=tasks,
            partition=partition,
            minority=group.minority,
            seed=seed,
        )


@lru_cache(maxsize=1)
def all_embeddings(dataset: Dataset) -> NDArray[np.float32]:
    """Return the embeddings of every training image; the process keeps the last ones.

    The data set is the federation's own: which images mnist-5k trains on depends on the seed.
    """
    return encode(pretrained_autoencoder("mnist-5k", 1), dataset.train_images)


def count(group: Group, seeds: int) -> tuple[int, Counter[tuple[float, str]]]:
    """Return the number of federations, and how many each γ and way of counting group exactly."""
    number, right = 0, Counter[tuple[float, str]]()
    for settings in federations(group, seeds):
        federation = simulate_federation(settings)
        partition, embeddings = federation.partition, all_embeddings(federation.dataset)
        signatures = [signature(embeddings[own], 5, settings.seed) for own in partition.train]
        distances = closest_distances(embed_signatures(signatures, settings.seed))
        number += 1
        for threshold in THRESHOLDS:
            graph = relatedness_graph(distances, threshold)
            ways: dict[str, NumClusters] = {"given": len(partition.tasks), "chosen": "elbow"}
            for way, wanted in ways.items():
                labels = group_graph(graph, wanted).labels
                right[threshold, way] += adjusted_rand_score(partition.client_tasks, labels) == 1
    return number, right


def main() -> int:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    started = time.perf_counter()
    columns = list(product(THRESHOLDS, ("given", "chosen")))
    names = [f"γ = {threshold:g}, number {way}" for threshold, way in columns]
    print(f"| federations | how many | {' | '.join(names)} |\n|{' --- |' * (2 + len(names))}")
    for group in GROUPS:
        number, right = count(group, seeds)
        cells = " | ".join(str(right[column]) for column in columns)
        label = f"{group.dataset}, {group.num_clients} clients, {' and '.join(group.partitions)}"
        print(f"| {label} | {number} | {cells} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
