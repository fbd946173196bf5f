"""Which relevance finds the true tasks in every cell? docs/comparing-clients.md has the table.

The paper's formula and missed energy on the same simulated federations, data set × partition ×
number of tasks: how many of them each formula gets wrong when one thing is changed.
`python -m benchmarks.relevance_search`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.harness import KINDS, ari, relevance_matrix, spectra_of, with_eigenvectors
from benchmarks.writing import markdown
from clients.signatures.spectrum import Spectrum
from fl_core.partitions.settings import Spread
from fl_core.relevance import MISSED_ENERGY as MISSED
from fl_core.relevance import PAPER, USUAL_EIGENVECTORS, Spectra, relevances
from strategies.clusterings.agglomeration import agglomerate, average_relevance

Float64 = NDArray[np.float64]
# From all clients' spectra to r, shape (K, K), row i what client i answers.
Formula = Callable[[Sequence[Spectrum]], Float64]

DATASETS = ("mnist", "fashion-mnist", "cifar10", "mnist-5k")
MOST_EIGENVECTORS = 20
MISSED_ENERGY = "missed energy"
AS_ABOVE, COMPLETE = "as above", "complete linkage"
UNSEEN_SEEDS = range(10, 17)  # no formula was chosen while looking at these
LONELY = "one client in each task but one"


class Cell(NamedTuple):
    """One federation."""

    dataset: str
    partition: Spread
    num_tasks: int
    seed: int
    min_samples: int = 20
    clients: int = 25
    minority: float = 0.05
    features: str = "hog"


def cells(datasets: Iterable[str], seeds: Iterable[int], features: str = "hog") -> list[Cell]:
    """Return the table's cells: mnist-5k also with clients of a handful of images."""
    return [
        Cell(dataset, partition, tasks, seed, min_samples, features=features)
        for dataset, seed, partition in product(datasets, seeds, KINDS)
        for min_samples in ((20, 1) if dataset == "mnist-5k" else (20,))
        for tasks in (2, 3, 5)
    ]


def spectra_and_tasks(cell: Cell) -> tuple[list[Spectrum], NDArray[np.int64]]:
    """Return every client's spectrum, 20 eigenpairs, and the true tasks, shape (K,)."""
    made = harness.federation(
        cell.dataset,
        cell.num_tasks,
        cell.seed,
        num_clients=cell.clients,
        partition=cell.partition,
        minority=cell.minority,
        min_samples=cell.min_samples,
    )
    return spectra_of(made, MOST_EIGENVECTORS, cell.features), made.partition.client_tasks


def at_server(name: str, count: int, rank: int) -> Formula:
    """Return a formula with `count` eigenvectors of each client and `rank` of its eigenpairs."""

    def formula(shared: Sequence[Spectrum]) -> Float64:
        sent = with_eigenvectors(shared, rank)
        spectra = Spectra.of([s.eigenvectors for s in sent], [s.eigenvalues for s in sent])
        return relevances(name, spectra, spectra, count).astype(np.float64)

    return formula


FORMULAS: dict[str, Formula] = {
    "paper": partial(relevance_matrix, PAPER, count=USUAL_EIGENVECTORS[PAPER]),
    MISSED_ENERGY: partial(relevance_matrix, MISSED, count=USUAL_EIGENVECTORS[MISSED]),
    **{f"k = {k}": partial(relevance_matrix, MISSED, count=k) for k in (3, 10, 20)},
    "paper, rank 20": at_server(PAPER, 20, 20),
    "missed energy, rank 20": at_server(MISSED, 5, 20),
    "rank 10": at_server(MISSED, 5, 10),
    "rank 5": at_server(MISSED, 5, 5),
}


def adjusted_rand(similarity: Float64, tasks: NDArray[np.int64], linkage: str = "average") -> float:
    """Return the adjusted Rand index of the clusters, their number given, and the tasks."""
    found = agglomerate(similarity, len(np.unique(tasks)), linkage).labels
    return ari(tasks, found)


def adjusted_rands(cell: Cell, formulas: dict[str, Formula]) -> dict[str, float]:
    """Return each formula's adjusted Rand index on one federation, average linkage."""
    spectra, tasks = spectra_and_tasks(cell)
    return {
        name: adjusted_rand(average_relevance(formula(spectra)), tasks)
        for name, formula in formulas.items()
    }


def changes(grid: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells as they are, and changed one thing at a time."""
    first = [cell for cell in grid if cell.seed == min(one.seed for one in grid)]
    seeds = f"seeds {min(UNSEEN_SEEDS)} to {max(UNSEEN_SEEDS)}"
    return {
        AS_ABOVE: list(grid),
        COMPLETE: list(grid),
        LONELY: list(grid),
        "10 clients": [cell._replace(clients=10) for cell in grid],
        "50 clients": [cell._replace(clients=50) for cell in grid],
        seeds: [cell._replace(seed=seed) for cell in first for seed in UNSEEN_SEEDS],
        "100 clients, one seed": [  # mnist-5k is too small
            cell._replace(clients=100) for cell in first if cell.dataset != "mnist-5k"
        ],
    }


def failed(changed: tuple[str, Cell]) -> dict[str, bool]:
    """Return whether the clusters of each formula are not exactly the tasks."""
    change, cell = changed
    spectra, tasks = spectra_and_tasks(cell)
    if change == LONELY:
        some = lonely(tasks)
        spectra, tasks = [spectra[i] for i in some], tasks[some]
    linkage = "complete" if change == COMPLETE else "average"
    return {
        name: adjusted_rand(average_relevance(formula(spectra)), tasks, linkage) < 1
        for name, formula in FORMULAS.items()
    }


def lonely(tasks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all clients of task 0 and one client of every other task."""
    _, one_of_each = np.unique(tasks, return_index=True)
    return np.union1d(np.flatnonzero(tasks == 0), one_of_each)


def measure(
    numbers: harness.Numbers, datasets: list[str], features: str, seeds: int, workers: int
) -> Iterator[str]:
    """Yield the table."""
    lines = []
    for change, changed in changes(cells(datasets, range(seeds), features)).items():
        found = list(harness.walk(failed, [(change, cell) for cell in changed], workers))
        counts = [sum(one[name] for one in found) for name in FORMULAS]
        lines.append([change, len(found), *counts])
    yield markdown(["changed", "federations", *FORMULAS], lines)


if __name__ == "__main__":
    options: dict[str, Any] = {"datasets": DATASETS, "features": "hog", "seeds": 3}
    harness.command(__doc__, "", measure, lambda _: {}, **options, workers=os.cpu_count() or 1)
