"""Are the clients that are grouped wrongly those in doubt? `python -m benchmarks.certainty`.

docs/measured/grouping.md has a part of what this prints. Federations of 25 clients with few images,
whose clusters are partly wrong; each way to draw resamples says how sure it is of each client. No
model is trained and no message is sent: the clients' and the server's functions are called
directly.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.harness import CLIENTS, all_features, relevance_matrix
from benchmarks.writing import markdown, write
from clients.signatures.spectrum import leading_spectrum
from fl_app.group.folders import part
from fl_core.partitions.federation import simulate_federation
from fl_core.partitions.settings import FederationSettings
from fl_core.relevance import MISSED_ENERGY, PAPER, USUAL_EIGENVECTORS
from strategies.clusterings.agglomeration import NumClusters
from strategies.clusterings.certainty import DOUBTFUL, certainty
from strategies.clusterings.relevance_groups import group_by_relevance

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Rng = np.random.Generator
Draw = Callable[[Rng], Int64]

RESAMPLES = 30
IMAGES = (6, 20, 40)
FEDERATIONS: tuple[dict[str, Any], ...] = (
    {"dataset": "mnist-5k", "num_tasks": 3},
    {"dataset": "mnist-5k", "num_tasks": 5},
    {"dataset": "mnist-5k", "num_tasks": 3, "minority": 0.3},
    {"dataset": "fashion-mnist", "num_tasks": 3, "minority": 0.2},
)
ALIKE: dict[str, Any] = {"dataset": "mnist-5k", "num_tasks": 1, "minority": 0.0}
BINS = (0.0, 0.5, 0.7, 0.9, 0.99)


class Sites(NamedTuple):
    """The features of each client's images, (n, d), and the clients' true tasks."""

    features: list[Float32]
    tasks: Int64


def sites(images: int, seed: int, **options: Any) -> Sites:
    """Return clients that have so many images each."""
    made = simulate_federation(FederationSettings(num_clients=CLIENTS, seed=seed, **options))
    rows = all_features(made.dataset, "hog")
    rng = np.random.default_rng([seed, images])
    drawn = [rng.choice(own, min(images, len(own)), replace=False) for own in made.partition.train]
    return Sites([rows[own] for own in drawn], np.array(made.partition.client_tasks))


def ways(
    features: Sequence[Float32], formula: str, number: NumClusters
) -> tuple[Int64, dict[str, Draw]]:
    """Return the clusters, and from each way to draw a resample to a function that draws one."""
    k = USUAL_EIGENVECTORS[formula]

    def of_images(drawn: Sequence[Float32]) -> Int64:
        spectra = [leading_spectrum(own, k) for own in drawn]
        return group_by_relevance(relevance_matrix(formula, spectra, k), number).labels

    def images(rng: Rng) -> Int64:
        """Draw them with replacement, as Efron does."""
        return of_images([own[rng.integers(len(own), size=len(own))] for own in features])

    def four_fifths(rng: Rng) -> Int64:
        """Leave a fifth of the images out, as `fedkin group` does."""
        return of_images([part(own, rng) for own in features])

    return of_images(features), {
        "images, a fifth left out": four_fifths,
        "images, with replacement": images,
    }


def misplaced(labels: Int64, tasks: Int64) -> NDArray[np.bool_]:
    """Return who is in a cluster in which most have another task, shape (K,)."""
    table = np.zeros((int(labels.max()) + 1, int(tasks.max()) + 1))
    np.add.at(table, (labels, tasks), 1)
    return np.asarray(table.argmax(axis=1)[labels] != tasks, np.bool_)


class Cell(NamedTuple):
    """Federations of one kind, and how they are grouped."""

    options: dict[str, Any]
    images: int
    formula: str
    known: str
    seeds: int
    resamples: int


def cells(seeds: int, resamples: int) -> list[Cell]:
    """Return all; alike clients are one cluster, which is sure if their number is given."""
    return [
        Cell(options, images, formula, known, seeds, resamples)
        for options, images, formula, known in product(
            (*FEDERATIONS, ALIKE), IMAGES, (PAPER, MISSED_ENERGY), ("given", "chosen")
        )
        if options is not ALIKE or known == "chosen"
    ]


def measure(cell: Cell) -> list[dict[str, Any]]:
    """Return a row for each way to draw resamples."""
    options, images, formula, known, seeds, resamples = cell
    sure: dict[str, list[Float64]] = {}
    wrong: list[NDArray[np.bool_]] = []
    for seed in range(seeds):
        own = sites(images, seed, **options)
        number: NumClusters = options["num_tasks"] if known == "given" else "elbow"
        labels, draws = ways(own.features, formula, number)
        wrong.append(misplaced(labels, own.tasks))
        for way, draw in draws.items():
            rng = np.random.default_rng([seed, images])
            drawn = [draw(rng) for _ in range(resamples)]
            sure.setdefault(way, []).append(certainty(labels, drawn).of_client)
    is_wrong = np.concatenate(wrong)
    return [
        {
            **options,
            "images": images,
            "relevance": formula,
            "number": known,
            "way": way,
            "wrong": is_wrong.tolist(),
            "certainty": np.round(np.concatenate(found), 3).tolist(),
        }
        for way, found in sure.items()
    ]


def summarised(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each way and relevance, over all federations that have tasks."""
    found = []
    mixed = [row for row in rows if row["num_tasks"] > 1]
    for way, formula in product(dict.fromkeys(r["way"] for r in rows), (PAPER, MISSED_ENERGY)):
        own = [row for row in mixed if (row["way"], row["relevance"]) == (way, formula)]
        alike = [
            value
            for row in rows
            if (row["way"], row["relevance"]) == (way, formula) and row["num_tasks"] == 1
            for value in row["certainty"]
        ]
        wrong = np.concatenate([row["wrong"] for row in own]).astype(bool)
        sure = np.concatenate([row["certainty"] for row in own])
        edges = (*BINS, 1.01)
        bins = {}
        for low, high in pairwise(edges):
            inside = (sure >= low) & (sure < high)
            if inside.any():
                bins[f"{low:g}"] = {
                    "clients": int(inside.sum()),
                    "right": round(float(1 - wrong[inside].mean()), 3),
                }
        found.append(
            {
                "way": way,
                "relevance": formula,
                "clients": len(wrong),
                "wrong": int(wrong.sum()),
                "auc": round(float(roc_auc_score(wrong, 1 - sure)), 3),
                "wrong-in-doubt": round(float((sure[wrong] < DOUBTFUL).mean()), 3),
                "right-in-doubt": round(float((sure[~wrong] < DOUBTFUL).mean()), 3),
                "alike-in-doubt": round(float((np.array(alike) < DOUBTFUL).mean()), 3),
                "right-by-certainty": bins,
            }
        )
    return found


_SHOWN = "images, a fifth left out"
_SURE = {"0": "below 50 %", "0.7": "70 to 90 %", "0.9": "90 to 99 %", "0.99": "99 % and more"}


def table(measured: dict[str, Any]) -> str:
    """Return what is in use of what was tried, in per cent, as Markdown."""
    doubt = ("wrong in doubt", "right in doubt", "alike in doubt")
    heads = ("relevance", "AUC", *doubt, *_SURE.values())
    rows = []
    for one in measured["summary"]:
        if one["way"] == _SHOWN:
            shares = [one[f"{kind}-in-doubt"] for kind in ("wrong", "right", "alike")]
            shares += [one["right-by-certainty"][least]["right"] for least in _SURE]
            cells = (f"{one['auc']:.2f}", *(f"{100 * share:.0f}" for share in shares))
            rows.append((one["relevance"], *cells))
    return markdown(heads, rows)


def main() -> None:
    """Measure, print the summary, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.workers) as pool:
        found = pool.map(measure, cells(options.seeds, options.resamples))
        rows = [row for own in found for row in own]
    summary = summarised(rows)
    for one in summary:
        print(json.dumps(one))
    if options.output is not None:
        by_cell = [
            {
                **{key: row[key] for key in row if key not in ("wrong", "certainty")},
                "wrong": int(np.sum(row["wrong"])),
                "in-doubt": int(np.sum(np.array(row["certainty"]) < DOUBTFUL)),
            }
            for row in rows
        ]
        asked = {"resamples": options.resamples, "seeds": options.seeds}
        write({**asked, "summary": summary, "cells": by_cell}, options.output)


if __name__ == "__main__":
    main()
