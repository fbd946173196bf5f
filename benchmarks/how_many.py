"""Is the number of groups found, and one group known? `python -m benchmarks.how_many`.

docs/measured/features.md has what this prints. Federations of clients whose tasks are known, one
task or several; each rule that chooses the number, beside the number given, is right where it finds
the tasks (adjusted Rand index above 0.99). No model is trained and no message is sent: the clients'
and the server's functions are called directly. The constants of `strategies.clusterings.how_many`
were chosen on seeds 0 and 1, so other seeds are the fair test.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from benchmarks.harness import KINDS, all_features, relevance_matrix
from benchmarks.writing import markdown, write
from clients.pre_round.spectrum import leading_spectrum
from clients.settings import USUAL_EIGENVECTORS
from fl_core.data.settings import FederationSettings
from fl_core.federation.federation import simulate_federation
from fl_core.partitions.partition import Spread
from fl_core.relevance import MISSED_ENERGY, PAPER
from strategies.clusterings.odd_clients import strangers_by_vectors
from strategies.clusterings.relevance_groups import NumGroups, group_by_relevance

DATASETS = ("mnist-5k", "fashion-mnist", "cifar10")
FORMULAS = (PAPER, MISSED_ENERGY)
RULES = ("given", "elbow", "silhouette", "auto")
USUAL, FEW, MINORITY, UNEQUAL = "usual", "10 to 40 images", "minority 0.2, 0.3", "unequal groups"
LONE = "one client has one image"
MOST_IMAGES = 400
MOST_EIGENVECTORS = 20
RIGHT = 0.99

Features = NDArray[np.float32]


class Kind(NamedTuple):
    """What a federation is: in `what` it differs from usual ones."""

    what: str
    clients: int
    tasks: int
    partition: Spread = "label"
    minority: float = 0.05
    images: int = MOST_IMAGES


def kinds() -> list[Kind]:
    """Return all: of eight tasks there are more than ten clients, of few images fewer."""
    found = [
        Kind(USUAL, clients, tasks, spread)
        for clients, tasks, spread in product((10, 25, 60), (1, 2, 3, 5, 8), KINDS)
        if (clients, tasks) != (10, 8)
    ]
    found += [Kind(USUAL, 100, tasks) for tasks in (1, 2, 3, 5, 8)]
    found += [
        Kind(FEW, clients, tasks, images=images)
        for clients, tasks, images in product((10, 25), (1, 2, 3, 5), (10, 20, 40))
    ]
    found += [
        Kind(MINORITY, clients, tasks, minority=share)
        for clients, tasks, share in product((25, 60), (2, 3, 5), (0.2, 0.3))
    ]
    found += [Kind(UNEQUAL, *sizes) for sizes in product((12, 25, 50), (2, 3, 5))]
    return found + [Kind(LONE, *sizes) for sizes in product((12, 25, 50), (1, 2, 3, 5))]


def sites(dataset: str, kind: Kind, seed: int) -> tuple[list[Features], NDArray[np.int64]]:
    """Return each client's features, and the clients' tasks; −1: one image does not tell it.

    Of unequal groups each has half as many clients as the one before it, two at least.
    """
    made = simulate_federation(
        FederationSettings(
            dataset=dataset,
            num_clients=2 * kind.clients if kind.what == UNEQUAL else kind.clients,
            num_tasks=kind.tasks,
            partition=kind.partition,
            minority=kind.minority,
            min_samples=10,
            seed=seed,
        )
    )
    tasks = np.array(made.partition.client_tasks)
    kept = np.arange(len(tasks))
    if kind.what == UNEQUAL:
        members = [np.flatnonzero(tasks == task) for task in range(kind.tasks)]
        halved = [own[: max(2, len(own) >> place)] for place, own in enumerate(members)]
        kept = np.sort(np.concatenate(halved))
    rows = all_features(made.dataset, "hog")
    rng = np.random.default_rng([seed, kind.clients, kind.tasks, kind.images])
    parts = [np.asarray(made.partition.train[client]) for client in kept]
    drawn = [rng.choice(own, min(len(own), kind.images), replace=False) for own in parts]
    known = tasks[kept]
    if kind.what == LONE:
        drawn[0], known[0] = drawn[0][:1], -1
    return [rows[own] for own in drawn], known


def found_by_rules(parts: Sequence[Features], tasks: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    """Yield, for each relevance, how many groups each rule finds, and whether these are right."""
    full = [leading_spectrum(own, MOST_EIGENVECTORS) for own in parts]
    count, told = _number_of(tasks), tasks >= 0
    for formula in FORMULAS:
        k = USUAL_EIGENVECTORS[formula]
        vectors = [one.eigenvectors[:, :k] for one in full]
        scores = relevance_matrix(formula, full, k)
        strange = strangers_by_vectors(vectors, np.random.default_rng(0))
        row: dict[str, Any] = {"relevance": formula}
        ways: dict[str, NumGroups] = {
            "given": count,
            "elbow": "elbow",
            "silhouette": "silhouette",
            "auto": "auto",
        }
        for way, number in ways.items():
            labels = group_by_relevance(scores, number, formula=formula, strange=strange).labels
            right = bool(adjusted_rand_score(tasks[told], labels[told]) > RIGHT)
            row[way] = {"groups": _number_of(labels[told]), "right": right}
        yield row


def _number_of(labels: NDArray[np.int64]) -> int:
    return len({*labels.tolist()} - {-1})


def measure(dataset: str, kind: Kind, seed: int) -> list[dict[str, Any]]:
    """Return a row for each relevance."""
    with threadpool_limits(1):
        parts, tasks = sites(dataset, kind, seed)
        which = {"dataset": dataset, "seed": seed, **kind._asdict()}
        which["tasks"] = _number_of(tasks)
        return [which | row for row in found_by_rules(parts, tasks)]


def table(content: dict[str, Any]) -> str:
    """Return Markdown: how often each rule is right, by relevance and kind, then by data set."""
    heads = ["relevance", "federations", "several groups", *RULES, "taken for one"]
    heads += ["one group", "known"]
    lines = []
    rows = content["rows"]
    for formula in dict.fromkeys(row["relevance"] for row in rows):
        own = [row for row in rows if row["relevance"] == formula]
        for key in ("what", "dataset"):
            for value in dict.fromkeys(row[key] for row in own):
                these = [row for row in own if row[key] == value]
                lines.append([formula, value, *_cells(these)])
        lines.append([formula, "all", *_cells(own)])
    return markdown(heads, lines)


def _cells(rows: Sequence[dict[str, Any]]) -> list[str]:
    several = [row for row in rows if row["tasks"] > 1]
    one = [row for row in rows if row["tasks"] == 1]
    cells = [str(len(several))]
    cells += [_percent([row[rule]["right"] for row in several]) for rule in RULES]
    cells.append(_percent([row["auto"]["groups"] == 1 for row in several]))
    return [*cells, str(len(one)), _percent([row["auto"]["groups"] == 1 for row in one])]


def _percent(found: Sequence[bool]) -> str:
    return f"{100 * np.mean(found):.0f} %" if found else "·"


def main() -> None:
    """Measure, print the table and write what it is made of."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[20])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    cells = list(product(options.datasets, kinds(), options.seeds))
    cells.sort(key=lambda cell: (cell[0], cell[2]))  # a process keeps the last features
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        found = pool.starmap(measure, cells, chunksize=len(kinds()))
    content = {"seeds": options.seeds, "rows": [row for rows in found for row in rows]}
    print(table(content))
    if options.output is not None:
        write(content, options.output)


if __name__ == "__main__":
    main()
