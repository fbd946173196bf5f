"""Verdicts on the claims of papers, by our numbers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from experiments.cells import current_cells
from experiments.claims import Claim
from experiments.experiment_file import Experiment
from fl_app.results.statistics import half_interval
from fl_app.sweeps.measures import ROUNDING, measure, measure_of
from fl_app.sweeps.store import Cell

FEWEST = 3
"""Seeds of an interval of a mean; fewer are called runs."""
FEWEST_OF_SPREAD = 5
"""Seeds of a test of standard deviations: five tell 1 from 3.1, three only 1 from 6.2."""
ABOVE_CHANCE = 1.5
"""The least accuracy of a compared method, as a multiple of that of guessing."""
_TAIL = 0.975  # of a 95 % interval
_RUNS = {1: "one run", 2: "two runs"}

Numbers = Mapping[int, float]
"""A number of each seed that has one, by the seed, ascending."""
Word = Literal["holds", "partly", "undecided", "does not hold", "not judged"]


class TableEntry(NamedTuple):
    """The measure, cell and method of a number."""

    measure: str
    row: str
    column: str
    method: str


Measured = Mapping[TableEntry, Numbers]
"""Only of what was run."""


def measured_of(experiment: Experiment, cells: Sequence[Cell]) -> Measured:
    """Return the numbers of all measures that are shown or claimed."""
    claimed = [name for claim in experiment.claims for name in claim.measures]
    shown = dict.fromkeys([*experiment.measures, *claimed])
    found: dict[TableEntry, dict[int, float]] = {}
    for cell in current_cells(experiment, cells):
        for method, stored in cell["methods"].items():
            for name in shown:
                value = measure(name, stored)
                if not math.isnan(value):
                    place = TableEntry(name, cell["row"], cell["column"], method)
                    found.setdefault(place, {})[int(cell["seed"])] = value
    return found


def as_array(numbers: Numbers) -> NDArray[np.float64]:
    """Return the number of each seed, ascending."""
    return np.array(list(numbers.values()))


class CellVerdict(NamedTuple):
    """The verdict on a claim in a cell."""

    word: Word  # "partly": in some seeds; "undecided": the 95 % interval is on both sides
    seeds: int  # that were compared
    why: str = ""  # it is not judged, or in how many seeds it holds


def judge_cell(claim: Claim, lefts: Sequence[Numbers], rights: Sequence[Numbers]) -> CellVerdict:
    """Judge a claim by the numbers of left's methods and of right's, if those are methods.

    Two are compared seed by seed, over the seeds that all have: these count from 0 everywhere.
    """
    fewest = min(map(len, (*lefts, *rights)))
    others = rights or [dict.fromkeys(lefts[0], float(claim.right))]
    pairs = [(left, right) for left in lefts for right in others]
    if claim.statistic == "std":
        if fewest < FEWEST_OF_SPREAD:
            return CellVerdict("not judged", fewest, "too few seeds for a standard deviation")
        return CellVerdict(_word(claim.is_of_all(*_spreads(*pair)) for pair in pairs), fewest)
    seeds = sorted(set.intersection(*(set(one) for pair in pairs for one in pair)))
    if claim.statistic == "each seed":
        held = sum(
            all(claim.is_of_all(a[seed] - b[seed], a[seed] - b[seed]) for a, b in pairs)
            for seed in seeds
        )
        word: Word = "holds" if held == len(seeds) else "partly" if held else "does not hold"
        return CellVerdict(word, len(seeds), f"in {held} of {len(seeds)} seeds")
    differences = [np.array([a[seed] - b[seed] for seed in seeds]) for a, b in pairs]
    return CellVerdict(_word(claim.is_of_all(*_interval(one)) for one in differences), len(seeds))


def _word(answers: Iterable[bool | None]) -> Word:
    """Return the verdict on a claim that must hold for all pairs; None is undecided."""
    found = set(answers)
    return "does not hold" if False in found else "undecided" if None in found else "holds"


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean; of fewer seeds than it takes, the mean alone."""
    mean, half = float(values.mean()), half_interval(values) if len(values) >= FEWEST else 0.0
    return mean - half, mean + half


def _spreads(left: Numbers, right: Numbers) -> tuple[float, float]:
    """Return the 95 % interval of the logarithm of left's variance over right's, by an F-test."""
    variances = [_variance(as_array(one)) for one in (left, right)]
    if not any(variances):
        return -math.inf, math.inf
    with np.errstate(divide="ignore"):  # one that never varies
        ratio = np.log(variances[0]) - np.log(variances[1])
    bounds = np.log(fdtri(len(left) - 1, len(right) - 1, [_TAIL, 1 - _TAIL]))
    return float(ratio - bounds[0]), float(ratio - bounds[1])


def _variance(values: NDArray[np.float64]) -> float:
    """Return the sample variance; 0 if values differ by rounding alone."""
    deviation = float(values.std(ddof=1))
    return deviation**2 if deviation > ROUNDING * abs(values.mean()) else 0.0


class ClaimVerdict(NamedTuple):
    """The verdict on a claim in all of its cells."""

    judged: Mapping[tuple[str, str], CellVerdict]  # by row and column, where all was run
    num_cells: int  # that the claim is about
    published: tuple[int, int] | None  # cells where the paper's numbers confirm it, of how many

    @property
    def word(self) -> Word | None:
        """Return the verdict over all cells; None if none was run."""
        words = {one.word for one in self.judged.values()} - {"not judged"}
        if not words:
            return "not judged" if self.judged else None
        if words & {"holds", "partly"}:
            return "holds" if words == {"holds"} else "partly"
        return "undecided" if words == {"undecided"} else "does not hold"

    @property
    def seeds(self) -> int:
        """Return the least number of seeds of a judged cell."""
        return min(
            (one.seeds for one in self.judged.values() if one.word != "not judged"), default=0
        )

    @property
    def held(self) -> str:
        """Return the number of cells where the claim holds; empty if it is not judged."""
        count = sum(one.word == "holds" for one in self.judged.values())
        return f"{count} of {self.num_cells}" if self.word not in (None, "not judged") else ""

    @property
    def exceptions(self) -> list[str]:
        """Return the other verdicts, with their cells."""
        cells: dict[str, list[str]] = {}
        covered = {"holds", self.word} - {"partly", "not judged"}  # of those, there is more to say
        for cell, (word, _, why) in self.judged.items():
            if word not in covered:
                said = {"partly": why, "not judged": f"{word}, {why}"}.get(word, word)
                cells.setdefault(said, []).append(", ".join(cell))
        return [f"{said}: {'; '.join(found)}" for said, found in cells.items()]

    def __str__(self) -> str:
        """Return the verdict in a few words."""
        if self.word is None:
            return "not run yet"
        so_far = " so far" if len(self.judged) < self.num_cells else ""
        runs = f" ({_RUNS[self.seeds]})" if self.seeds in _RUNS else ""
        return f"{self.word}{so_far}{runs}"


def judge(experiment: Experiment, claim: Claim, measured: Measured) -> ClaimVerdict:
    """Judge a claim in each of its cells, by our numbers and by the paper's."""
    judged, stated, num_cells = {}, [], 0
    # What a paper has published of standard deviations, one number is above another or is not.
    of_means, which = replace(claim, statistic="mean"), 1 if claim.statistic == "std" else 0
    for row in experiment.rows:
        for column in experiment.columns:
            if not claim.is_of(row, column):
                continue
            num_cells += 1
            pairs = list(places_of(claim, row, column))
            lefts = list(dict.fromkeys(left for left, _ in pairs))
            places = [*lefts, *dict.fromkeys(right for _, right in pairs if right)]
            found = [measured.get(place, {}) for place in places]
            if set.intersection(*map(set, found)):
                judged[row, column] = _near_chance(experiment, places, found) or judge_cell(
                    claim, found[: len(lefts)], found[len(lefts) :]
                )
            published = [(experiment.stated(*place) or (None, None))[which] for place in places]
            numbers = [{0: number} for number in published if number is not None]
            if len(numbers) == len(places):
                theirs = judge_cell(of_means, numbers[: len(lefts)], numbers[len(lefts) :])
                stated.append(theirs.word == "holds")
    return ClaimVerdict(judged, num_cells, (sum(stated), len(stated)) if stated else None)


def places_of(
    claim: Claim, row: str, column: str
) -> Iterator[tuple[TableEntry, TableEntry | None]]:
    """Yield the entries of each pair of methods; None if the right side is a number."""
    left, right = claim.measures
    there = (claim.against.get("row", row), claim.against.get("column", column))
    for one in claim.lefts:
        for other in claim.rights or [""]:
            entry = TableEntry(right, *there, other) if other else None
            yield TableEntry(left, row, column, one), entry


def _near_chance(
    experiment: Experiment, places: Sequence[TableEntry], found: Sequence[Numbers]
) -> CellVerdict | None:
    """Return the verdict that a method is at chance, if an accuracy is hardly above guessing."""
    for place, numbers in zip(places, found, strict=True):
        mean = as_array(numbers).mean()
        # Balanced, in a task or after a round, too.
        is_accuracy = "accuracy" in measure_of(place.measure).words
        if is_accuracy and mean < ABOVE_CHANCE * experiment.chance:
            return CellVerdict("not judged", len(numbers), f"{place.method} is at chance")
    return None
