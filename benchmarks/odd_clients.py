"""What clients that lie in the pre-round do to the others: `python -m benchmarks.odd_clients`.

docs/measured/robustness.md has the tables. In each federation of 25 clients, some lie, one after
the other of `LIES`; the number in a cell is the honest clients' ARI with their tasks, the mean and
the lowest over seeds. Before that, honest clients that are found odd are counted in a thousand
federations without a liar. No model is trained, and no message is sent: the clients' and the
server's functions are called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks import honest_federations as honest
from benchmarks.harness import CLIENTS, ari, gram_of, relevance_matrix, spectra_of
from benchmarks.honest_federations import MOST_EIGENVECTORS
from benchmarks.writing import markdown as in_markdown
from clients.attacks import random_basis
from clients.signatures.spectrum import Spectrum, spectrum_of_gram
from fl_core.relevance import MISSED_ENERGY, PAPER, USUAL_EIGENVECTORS, Spectra, relevances
from strategies.clusterings.agglomeration import NumClusters, agglomerate, average_relevance
from strategies.clusterings.outliers import strangers_by_vectors
from strategies.clusterings.relevance_groups import (
    RelevanceGroups,
    group_by_eigenpairs,
    group_by_relevance,
)
from strategies.clusterings.spectral import RANK

Float64 = NDArray[np.float64]
Grouped = Callable[[NumClusters], RelevanceGroups]
Plain = Callable[[NumClusters], NDArray[np.int64]]

_WAYS = list(product(("clients", "server"), (PAPER, MISSED_ENERGY)))

NULL_DIMENSIONS = 60  # in which all clients together have least energy

# What a liar shares, and what it says of everybody: "own": the truth, by what it shares.
Lie = tuple[str, float | str]
LIES: dict[str, Lie] = {
    "null space, scores 0": ("null", 0.0),
    "null space, scores 1": ("null", 1.0),
    "null space, random scores": ("null", "random"),
    "random, random scores": ("random", "random"),
    "random, scores 0": ("random", 0.0),
    "random, scores 1": ("random", 1.0),
    "true, scores 0": ("true", 0.0),
    "true, scores 1": ("true", 1.0),
    "true, random scores": ("true", "random"),
    "another client's": ("copied", "own"),
    "everybody's together": ("common", "own"),
    "everybody's together, scores 1": ("common", 1.0),
}


def federation(
    dataset: str, num_tasks: int, seed: int, **options: Any
) -> tuple[list[Spectrum], NDArray[np.int64]]:
    """Return everybody's spectrum and task."""
    made = harness.federation(dataset, num_tasks, seed, **options)
    return spectra_of(made, MOST_EIGENVECTORS), np.array(made.partition.client_tasks)


def lied(
    spectra: Sequence[Spectrum], liars: Sequence[int], shares: str, rng: np.random.Generator
) -> list[Spectrum]:
    """Return what everybody shares when liars share something else."""
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


def said_by(
    formula: str,
    shared: Sequence[Spectrum],
    liars: Sequence[int],
    scores: float | str,
    rng: np.random.Generator,
) -> Float64:
    """Return r, shape (K, K), row i what client i says."""
    found = relevance_matrix(formula, shared, USUAL_EIGENVECTORS[formula])
    for liar in liars:
        if scores == "random":
            found[liar] = rng.random(len(shared))
        elif scores != "own":
            found[liar] = scores
    return found


def at_server(formula: str, shared: Sequence[Spectrum]) -> tuple[Spectra, int]:
    """Return the eigenpairs that are sent, and how many eigenvectors are compared."""
    k = USUAL_EIGENVECTORS[formula]
    rank = max(k, RANK)
    sent = [(one.eigenvectors[:, :rank], one.eigenvalues[:rank]) for one in shared]
    return Spectra.of([vectors for vectors, _ in sent], [values for _, values in sent]), k


def groupings(
    formula: str,
    place: str,
    shared: Sequence[Spectrum],
    liars: Sequence[int],
    scores: float | str,
    rng: np.random.Generator,
) -> tuple[Grouped, Plain]:
    """Return how clients are grouped by this project, and by agglomeration alone."""
    if place == "server":
        everybody, k = at_server(formula, shared)
        found = relevances(formula, everybody, everybody, k)
        return (
            lambda number: group_by_eigenpairs(everybody, formula, k, number),
            lambda number: agglomerate(average_relevance(found), number).labels,
        )
    table = said_by(formula, shared, liars, scores, rng)
    vectors = [one.eigenvectors[:, : USUAL_EIGENVECTORS[formula]] for one in shared]
    strange = strangers_by_vectors(vectors, np.random.default_rng(0))
    return (
        lambda number: group_by_relevance(table, number, strange=strange),
        lambda number: agglomerate(average_relevance(table), number).labels,
    )


def measure(
    dataset: str, num_tasks: int, counts: Sequence[int], seeds: int
) -> list[dict[str, Any]]:
    """Return a row for each place, formula, lie, number of liars and way to know M."""
    federations = [federation(dataset, num_tasks, seed) for seed in range(seeds)]
    rows = []
    numbers: dict[str, NumClusters] = {"given": num_tasks, "chosen": "elbow"}
    for (place, formula), lie in product(_WAYS, LIES):
        shares, scores = LIES[lie]
        if place == "server" and (shares == "true" or scores not in (0.0, "own")):
            continue  # nobody is asked for scores
        for count in counts:
            found: dict[tuple[str, str], list[float]] = {}
            for seed, (spectra, tasks) in enumerate(federations):
                rng = np.random.default_rng([seed, count])
                liars = rng.choice(CLIENTS, count, replace=False).tolist()
                honest = np.setdiff1d(np.arange(CLIENTS), liars)
                shared = lied(spectra, liars, shares, rng)
                here, plain = groupings(formula, place, shared, liars, scores, rng)
                for known, number in numbers.items():
                    ways = {"here": here(number).labels, "plain": plain(number)}
                    for name, labels in ways.items():
                        index = ari(tasks[honest], labels[honest])
                        found.setdefault((name, known), []).append(index)
            for known in numbers:
                now, before = found["here", known], found["plain", known]
                rows.append(
                    {
                        "place": place,
                        "relevance": formula,
                        "lie": lie,
                        "liars": count,
                        "number": known,
                        "ari": round(float(np.mean(now)), 3),
                        "lowest": round(min(now), 3),
                        "plain": round(float(np.mean(before)), 3),
                    }
                )
    return rows


def without_liars(found: dict[str, Any], seeds: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Count honest clients that are odd, in federations of each kind, and yield the counts so far.

    For each place and formula where there are any: in how many federations somebody is odd, and
    how many clients are. Whether M is given or chosen makes no difference to that.

    Parameters
    ----------
    found : dict
        What was yielded before, or nothing; what is in it is not counted again.
    """
    rows = {_kind(row): row for row in found.get("rows", [])}
    done = [tuple(block) for block in found.get("done", [])]
    for data, seed in product(honest.DATASETS, seeds):
        if (data, seed) in done:
            continue
        for kind in honest.kinds(data):
            row = rows.setdefault(kind, {**kind._asdict(), "federations": 0, "odd": {}})
            row["federations"] += 1
            spectra = honest.spectra_of(kind, seed)
            for way, (here, _) in zip(_WAYS, _honestly(spectra), strict=True):
                if odd := here(kind.tasks).odd:
                    some, accused = row["odd"].get(" ".join(way), (0, 0))
                    row["odd"][" ".join(way)] = [some + 1, accused + len(odd)]
        done.append((data, seed))
        yield {"done": done, "rows": list(rows.values())}


def _kind(row: Mapping[str, Any]) -> honest.Kind:
    return honest.Kind(*(row[name] for name in honest.Kind._fields))


def honest_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return how many federations have an odd client, and how many clients are, by kind."""
    ways = [" ".join(way) for way in _WAYS]
    heads = ["data", "tasks", "federations", "clients", *(way.replace(" ", ", ") for way in ways)]
    sums: dict[tuple[str, str], NDArray[np.int64]] = {}
    for row in rows:
        kind = _kind(row)
        odd = [count for way in ways for count in row["odd"].get(way, (0, 0))]
        counts = np.array([row["federations"], row["federations"] * kind.clients, *odd])
        for data in (kind.data, "all"):
            key = (data, "one" if kind.tasks == 1 else "two and more")
            sums[key] = sums.get(key, 0) + counts
    sums = dict(sorted(sums.items(), key=lambda item: item[0][0] == "all"))
    lines = []
    for key, (federations, clients, *odd) in sums.items():
        if key[0] != "all" and not any(odd):
            continue
        cells = [f"{some} ({accused})" for some, accused in zip(odd[::2], odd[1::2], strict=True)]
        lines.append((*key, federations, f"{clients:,}", *cells))
    return in_markdown(heads, lines)


def _honestly(spectra: Sequence[Spectrum]) -> Iterator[tuple[Grouped, Plain]]:
    for place, formula in _WAYS:
        rng = np.random.default_rng(0)
        yield groupings(formula, place, spectra, [], "own", rng)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return a table, a row for each lie: here, and by agglomeration alone in brackets.

    Of each, the lowest over the numbers of liars.
    """
    cells: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        lie = row["lie"].partition(",")[0] if row["place"] == "server" else row["lie"]
        column = f"{row['relevance']}, {row['number']}"
        by_column = cells.setdefault((row["place"], lie), {})
        by_column.setdefault(column, []).append((row["ari"], row["plain"]))
    heads = list(next(iter(cells.values())))
    lines = []
    for key, by_column in cells.items():
        lowest = (map(min, zip(*by_column[head], strict=True)) for head in heads)
        shown = [f"{here:.2f} ({plain:.2f})" for here, plain in lowest]
        lines.append((*key, *shown))
    return in_markdown(("compared at", "lie", *heads), lines)


def measure_all(
    numbers: harness.Numbers,
    dataset: str,
    num_tasks: int,
    liars: list[int],
    seeds: int,
    honest_seeds: list[int],
) -> Iterator[str]:
    """Count in honest federations that are not there yet, then let clients lie."""
    for counted in without_liars(numbers.get("without-liars", {}), honest_seeds):
        numbers["without-liars"] = counted
        total = sum(row["federations"] for row in counted["rows"])
        yield f"{total} honest federations, {counted['done'][-1]} the last"
    rows = measure(dataset, num_tasks, liars, seeds)
    numbers |= {"dataset": dataset, "tasks": num_tasks, "seeds": seeds}
    numbers["rows"] = rows
    yield f"{len(rows)} lies"


def tables(numbers: harness.Numbers) -> dict[str, str]:
    """Return the tables of docs/measured/robustness.md."""
    return {
        "honest federations": honest_table(numbers["without-liars"]["rows"]),
        "lies": markdown(numbers["rows"]),
    }


if __name__ == "__main__":
    harness.command(
        __doc__,
        "odd-clients",
        measure_all,
        tables,
        dataset="mnist",
        num_tasks=3,
        liars=[1, 2, 3, 4, 5],
        seeds=5,
        honest_seeds=[200, 201, 202, 203],
    )
