"""Are the clients that are grouped wrongly those in doubt? results/README.md has the table.

Federations of 25 clients with few images and partly wrong clusters. No model is trained and
no message is sent. `python -m benchmarks.certainty`.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks import harness
from benchmarks.harness import all_features, relevance_matrix
from benchmarks.writing import markdown
from clients.signatures.spectrum import leading_spectrum
from fl_app.group.resampling import part
from fl_core.relevance import MISSED_ENERGY, PAPER, USUAL_EIGENVECTORS
from strategies.clusterings.agglomeration import NumClusters
from strategies.clusterings.certainty import DOUBTFUL, certainty
from strategies.clusterings.relevance_groups import group_by_relevance

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

RESAMPLES = 30
IMAGES = (6, 20, 40)
FEDERATIONS: tuple[dict[str, Any], ...] = (
    {"dataset": "mnist-5k", "num_tasks": 3},
    {"dataset": "mnist-5k", "num_tasks": 5},
    {"dataset": "mnist-5k", "num_tasks": 3, "minority": 0.3},
    {"dataset": "fashion-mnist", "num_tasks": 3, "minority": 0.2},
)
SIMILAR: dict[str, Any] = {"dataset": "mnist-5k", "num_tasks": 1, "minority": 0.0}
BINS = (0.0, 0.5, 0.7, 0.9, 0.99, 1.01)
_BINS_SHOWN = {"0": "below 50 %", "0.7": "70 to 90 %", "0.9": "90 to 99 %", "0.99": "99 % and more"}


def features_and_tasks(
    images: int, seed: int, dataset: str, num_tasks: int, **options: Any
) -> tuple[list[Float32], Int64]:
    """Return the features of so many images of each client, (n, d), and the true tasks."""
    made = harness.federation(dataset, num_tasks, seed, **options)
    rows = all_features(made.dataset)
    rng = np.random.default_rng([seed, images])
    drawn = [rng.choice(one, min(images, len(one)), replace=False) for one in made.partition.train]
    return [rows[one] for one in drawn], np.array(made.partition.client_tasks)


def misplaced(labels: Int64, tasks: Int64) -> NDArray[np.bool_]:
    """Return which clients are in a cluster of another task, shape (K,)."""
    table = np.zeros((int(labels.max()) + 1, int(tasks.max()) + 1))
    np.add.at(table, (labels, tasks), 1)
    return np.asarray(table.argmax(axis=1)[labels] != tasks, np.bool_)


class Cell(NamedTuple):
    """A federation, how it is grouped, and how often."""

    options: dict[str, Any]
    images: int
    formula: str
    known: str
    seed: int
    resamples: int


def cells(seeds: int, resamples: int) -> list[Cell]:
    """Return all; similar clients are one cluster, which is certain if their number is given."""
    ways = product(IMAGES, (PAPER, MISSED_ENERGY), ("given", "chosen"), range(seeds))
    return [
        Cell(options, images, formula, known, seed, resamples)
        for options, (images, formula, known, seed) in product((*FEDERATIONS, SIMILAR), ways)
        if options != SIMILAR or known == "chosen"
    ]


def measure(cell: Cell) -> dict[str, Any]:
    """Return which clients are wrong, and how certain each is."""
    features, tasks = features_and_tasks(cell.images, cell.seed, **cell.options)
    number: NumClusters = cell.options["num_tasks"] if cell.known == "given" else "elbow"
    k = USUAL_EIGENVECTORS[cell.formula]

    def grouped(samples: Sequence[Float32]) -> Int64:
        spectra = [leading_spectrum(one, k) for one in samples]
        return group_by_relevance(relevance_matrix(cell.formula, spectra, k), number).labels

    labels = grouped(features)
    rng = np.random.default_rng([cell.seed, cell.images])
    resamples = [grouped([part(one, rng) for one in features]) for _ in range(cell.resamples)]
    return {
        "similar": cell.options == SIMILAR,
        "relevance": cell.formula,
        "wrong": misplaced(labels, tasks),
        "certainty": np.round(certainty(labels, resamples).of_client, 3),
    }


def summarised(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield one row for each relevance, over all federations that have tasks."""
    for formula in (PAPER, MISSED_ENERGY):
        wrong, sure, similar = (
            np.concatenate(
                [r[key] for r in rows if r["relevance"] == formula and r["similar"] == is_similar]
            )
            for key, is_similar in (("wrong", False), ("certainty", False), ("certainty", True))
        )
        bins = {}
        for low, high in pairwise(BINS):
            inside = (sure >= low) & (sure < high)
            if inside.any():
                right = round(float(1 - wrong[inside].mean()), 3)
                bins[f"{low:g}"] = {"clients": int(inside.sum()), "right": right}
        yield {
            "relevance": formula,
            "clients": len(wrong),
            "wrong": int(wrong.sum()),
            "auc": round(float(roc_auc_score(wrong, 1 - sure)), 3),
            "wrong-in-doubt": round(float((sure[wrong] < DOUBTFUL).mean()), 3),
            "right-in-doubt": round(float((sure[~wrong] < DOUBTFUL).mean()), 3),
            "similar-in-doubt": round(float((similar < DOUBTFUL).mean()), 3),
            "right-by-certainty": bins,
        }


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the table of results/README.md, in per cent."""
    doubt = ("wrong in doubt", "right in doubt", "similar in doubt")
    heads = ("relevance", "AUC", *doubt, *_BINS_SHOWN.values())
    rows = []
    for one in numbers["summary"]:
        shares = [one[f"{kind}-in-doubt"] for kind in ("wrong", "right", "similar")]
        shares += [one["right-by-certainty"][least]["right"] for least in _BINS_SHOWN]
        shown = (f"{one['auc']:.2f}", *(f"{100 * share:.0f}" for share in shares))
        rows.append((one["relevance"], *shown))
    return {"certainty": markdown(heads, rows)}


def measure_all(
    numbers: harness.Numbers, seeds: int, resamples: int, workers: int
) -> Iterator[str]:
    """Measure all federations."""
    rows = list(harness.walk(measure, cells(seeds, resamples), workers))
    numbers |= {"seeds": seeds, "resamples": resamples, "summary": list(summarised(rows))}
    yield f"{len(rows)} federations"


if __name__ == "__main__":
    cpus = os.cpu_count() or 1
    options: dict[str, Any] = {"seeds": 2, "resamples": RESAMPLES, "workers": cpus}
    harness.command(__doc__, "certainty", measure_all, tables, **options)
