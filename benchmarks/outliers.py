"""What clients that lie in the pre-round do to others: results/README.md has the tables.

In federations of 25 clients, some lie; then outliers are counted in a thousand federations in which
no client lies, usual and hard ones. No model is trained and no message is sent.
`python -m benchmarks.outliers`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.harness import CLIENTS, KINDS, all_features, ari, gram_of, relevance_matrix
from benchmarks.writing import markdown
from clients.attacks import random_basis
from clients.signatures.spectrum import Spectrum, leading_spectrum, spectrum_of_gram
from fl_core.partitions.settings import Spread
from fl_core.relevance import MISSED_ENERGY, PAPER, USUAL_EIGENVECTORS, Spectra, relevances
from strategies.clusterings.agglomeration import NumClusters, agglomerate, average_relevance
from strategies.clusterings.at_server import RANK, group_by_eigenpairs
from strategies.clusterings.outliers import group_without_outliers, strangers
from strategies.clusterings.relevance_groups import RelevanceGroups

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Row = dict[str, Any]
Ways = tuple[Callable[[NumClusters], RelevanceGroups], Callable[[NumClusters], Int64]]

MOST_EIGENVECTORS = 20
_WAYS = list(product(("clients", "server"), (PAPER, MISSED_ENERGY)))
NULL_DIMENSIONS = 60  # in which all clients together have least energy

# What a liar shares, and the scores that it sends; "computed": those of what it shares.
LIES: dict[str, tuple[str, float | str]] = {
    "null space, scores 0": ("null", 0.0),
    "null space, scores 1": ("null", 1.0),
    "null space, random scores": ("null", "random"),
    "random, random scores": ("random", "random"),
    "random, scores 0": ("random", 0.0),
    "random, scores 1": ("random", 1.0),
    "true, scores 0": ("true", 0.0),
    "true, scores 1": ("true", 1.0),
    "true, random scores": ("true", "random"),
    "another client's": ("copied", "computed"),
    "all clients' together": ("common", "computed"),
    "all clients' together, scores 1": ("common", 1.0),
}

HONEST_DATASETS = ("mnist-5k", "mnist", "fashion-mnist", "cifar10")
HONEST_SIZES = (10, 25, 60, 100)
HONEST_TASKS = (1, 2, 3, 5, 8)
FEWEST_IMAGES = 5


class Kind(NamedTuple):
    """An honest federation; a share of its clients, `few`, has a tenth of its images left."""

    data: str
    clients: int
    tasks: int
    partition: Spread
    few: float = 0.0


def kinds(data: str) -> list[Kind]:
    """Return the kinds of honest federation that are made of these data."""
    found = [Kind(data, *one) for one in product(HONEST_SIZES, HONEST_TASKS, KINDS)]
    for size, tasks in product(HONEST_SIZES, (1, 3)):
        found += [Kind(data, size, tasks, "label", few) for few in (0.1, 0.4)]
        found.append(Kind(data, size, tasks, "power-law"))
    return found


def honest_spectra(kind: Kind, seed: int) -> list[Spectrum]:
    """Return the spectra of an honest federation's clients."""
    rng = np.random.default_rng([seed, kind.clients, kind.tasks])
    how = {"num_clients": kind.clients, "partition": kind.partition, "min_samples": FEWEST_IMAGES}
    made = harness.federation(kind.data, kind.tasks, seed, **how)
    rows = all_features(made.dataset)
    parts = [rows[one] for one in made.partition.train]
    for client in rng.choice(kind.clients, round(kind.few * kind.clients), replace=False):
        count = len(parts[client])
        left = rng.permutation(count)[: max(FEWEST_IMAGES, count // 10)]
        parts[client] = parts[client][left]
    return [leading_spectrum(one, MOST_EIGENVECTORS) for one in parts]


@lru_cache(maxsize=5)
def federation(dataset: str, num_tasks: int, seed: int) -> tuple[list[Spectrum], Int64]:
    """Return the spectra of 25 clients, and their tasks."""
    made = harness.federation(dataset, num_tasks, seed)
    return harness.spectra_of(made, MOST_EIGENVECTORS), np.array(made.partition.client_tasks)


def with_lies(
    spectra: Sequence[Spectrum], liars: Sequence[int], shares: str, rng: np.random.Generator
) -> list[Spectrum]:
    """Return what all clients share when liars share something else."""
    gram = np.mean([gram_of(one) for one in spectra], axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(gram)
    shared = list(spectra)
    for liar in liars:
        true = spectra[liar]
        if shares == "copied":
            others = np.setdiff1d(np.arange(len(spectra)), liars)
            shared[liar] = spectra[int(rng.choice(others))]
        elif shares == "common":
            shared[liar] = spectrum_of_gram(np.asarray(gram, np.float32), MOST_EIGENVECTORS)
        elif shares != "true":
            basis = random_basis(true.eigenvectors.shape, rng)
            if shares == "null":
                drawn = rng.standard_normal((NULL_DIMENSIONS, MOST_EIGENVECTORS))
                basis = np.linalg.qr(vectors[:, :NULL_DIMENSIONS] @ drawn)[0].astype(np.float32)
            shared[liar] = replace(true, eigenvectors=basis)
    return shared


def groupings(
    formula: str,
    place: str,
    shared: Sequence[Spectrum],
    liars: Sequence[int],
    scores: float | str,
    rng: np.random.Generator,
) -> Ways:
    """Return how clients are grouped by this project, and by agglomeration alone."""
    k = USUAL_EIGENVECTORS[formula]
    if place == "server":
        rank = max(k, RANK)
        pairs = Spectra.of(
            [one.eigenvectors[:, :rank] for one in shared],
            [one.eigenvalues[:rank] for one in shared],
        )
        table = relevances(formula, pairs, pairs, k).astype(np.float64)
        here = partial(
            group_by_eigenpairs,
            *(pairs, k),
            formula=formula,
            separate=True,
            rng=np.random.default_rng(0),
        )
    else:
        table = relevance_matrix(formula, shared, k)
        for liar in liars:
            if scores != "computed":
                table[liar] = rng.random(len(shared)) if scores == "random" else scores
        vectors = Spectra.of_vectors([one.eigenvectors[:, :k] for one in shared])
        kinds = strangers(vectors, np.random.default_rng(0))
        here = partial(group_without_outliers, table, kinds)
    return here, lambda number: agglomerate(average_relevance(table), number).labels


class Cell(NamedTuple):
    """Federations of several seeds with so many liars."""

    dataset: str
    num_tasks: int
    seeds: int
    place: str
    formula: str
    lie: str
    num_liars: int


def measure(cell: Cell) -> list[Row]:
    """Return a row for each way to know the number of clusters: mean ARI of honest clients."""
    found: dict[tuple[str, str], list[float]] = {}
    numbers: dict[str, NumClusters] = {"given": cell.num_tasks, "chosen": "elbow"}
    shares, scores = LIES[cell.lie]
    for seed in range(cell.seeds):
        spectra, tasks = federation(cell.dataset, cell.num_tasks, seed)
        rng = np.random.default_rng([seed, cell.num_liars])
        liars = rng.choice(CLIENTS, cell.num_liars, replace=False).tolist()
        honest = np.setdiff1d(np.arange(CLIENTS), liars)
        shared = with_lies(spectra, liars, shares, rng)
        here, plain = groupings(cell.formula, cell.place, shared, liars, scores, rng)
        for known, number in numbers.items():
            for name, labels in (("ari", here(number).labels), ("plain", plain(number))):
                found.setdefault((known, name), []).append(ari(tasks[honest], labels[honest]))
    where = {
        "place": cell.place,
        "relevance": cell.formula,
        "lie": cell.lie,
        "liars": cell.num_liars,
    }
    return [
        {**where, "number": known}
        | {name: round(float(np.mean(found[known, name])), 3) for name in ("ari", "plain")}
        for known in numbers
    ]


def without_liars(found: Mapping[str, Any], seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Count outliers in honest federations that `found` lacks, and yield the counts so far.

    For each place and formula: in how many federations there are any, and how many clients are.
    Whether the number of clusters is given makes no difference to that.
    """
    rows = {_kind(row): row for row in found.get("rows", [])}
    done = [tuple(block) for block in found.get("done", [])]
    for data, seed in product(HONEST_DATASETS, seeds):
        if (data, seed) in done:
            continue
        for kind in kinds(data):
            row = rows.setdefault(kind, {**kind._asdict(), "federations": 0, "outliers": {}})
            row["federations"] += 1
            spectra = honest_spectra(kind, seed)
            for place, formula in _WAYS:
                rng = np.random.default_rng(0)
                here, _ = groupings(formula, place, spectra, [], "computed", rng)
                if outliers := here(kind.tasks).outliers:
                    some, accused = row["outliers"].get(f"{place} {formula}", (0, 0))
                    row["outliers"][f"{place} {formula}"] = [some + 1, accused + len(outliers)]
        done.append((data, seed))
        yield {"done": done, "rows": list(rows.values())}


def _kind(row: Mapping[str, Any]) -> Kind:
    return Kind(*(row[name] for name in Kind._fields))


def honest_table(rows: Sequence[Row]) -> str:
    """Return how many federations have an outlier, and how many clients are, by kind."""
    ways = [" ".join(way) for way in _WAYS]
    heads = ["data", "tasks", "federations", "clients", *(way.replace(" ", ", ") for way in ways)]
    sums: dict[tuple[str, str], Int64] = {}
    for row in rows:
        kind = _kind(row)
        outliers = [count for way in ways for count in row["outliers"].get(way, (0, 0))]
        counts = np.array([row["federations"], row["federations"] * kind.clients, *outliers])
        for data in (kind.data, "all"):
            key = (data, "one" if kind.tasks == 1 else "two and more")
            sums[key] = sums.get(key, 0) + counts
    lines = []
    for key, (federations, clients, *outliers) in sorted(
        sums.items(), key=lambda one: one[0][0] == "all"
    ):
        if key[0] == "all" or any(outliers):
            pairs = zip(outliers[::2], outliers[1::2], strict=True)
            cells = [f"{some} ({accused})" for some, accused in pairs]
            lines.append((*key, federations, f"{clients:,}", *cells))
    return markdown(heads, lines)


def lies_table(rows: Sequence[Row]) -> str:
    """Return the lowest over the numbers of liars, and that by agglomeration alone in brackets."""
    cells: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        lie = row["lie"].partition(",")[0] if row["place"] == "server" else row["lie"]
        by_column = cells.setdefault((row["place"], lie), {})
        column = f"{row['relevance']}, {row['number']}"
        by_column.setdefault(column, []).append((row["ari"], row["plain"]))
    heads = list(next(iter(cells.values())))
    lines = []
    for key, by_column in cells.items():
        lowest = (map(min, zip(*by_column[head], strict=True)) for head in heads)
        lines.append((*key, *(f"{here:.2f} ({plain:.2f})" for here, plain in lowest)))
    return markdown(("compared at", "lie", *heads), lines)


def measure_all(
    numbers: harness.Numbers,
    dataset: str,
    num_tasks: int,
    liars: list[int],
    seeds: int,
    honest_seeds: list[int],
    workers: int,
) -> Iterator[str]:
    """Count in honest federations that are not there yet, then let clients lie."""
    for counted in without_liars(numbers.get("without-liars", {}), honest_seeds):
        numbers["without-liars"] = counted
        yield f"{counted['done'][-1]} is the last of the honest federations"
    cells = [
        Cell(dataset, num_tasks, seeds, place, formula, lie, count)
        for (place, formula), (lie, (shares, scores)), count in product(_WAYS, LIES.items(), liars)
        # A server that compares eigenpairs asks for no scores.
        if place == "clients" or (shares != "true" and scores in (0.0, "computed"))
    ]
    rows = [row for found in harness.walk(measure, cells, workers) for row in found]
    numbers |= {"dataset": dataset, "tasks": num_tasks, "seeds": seeds, "rows": rows}
    yield f"{len(rows)} lies"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the tables of results/README.md."""
    return {
        "honest federations": honest_table(numbers["without-liars"]["rows"]),
        "lies": lies_table(numbers["rows"]),
    }


if __name__ == "__main__":
    options: dict[str, Any] = {"dataset": "mnist", "num_tasks": 3, "liars": [1, 2, 3, 4, 5]}
    options |= {"seeds": 5, "honest_seeds": [200, 201, 202, 203], "workers": os.cpu_count() or 1}
    harness.command(__doc__, "outliers", measure_all, tables, **options)
