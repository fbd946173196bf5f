"""Whether a paper's claim holds by our numbers, and how much the seeds can say of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri, stdtrit

from experiments.cells import current_cells
from experiments.claims import Claim
from experiments.experiment_file import Experiment
from fl_app.sweeps.measures import ROUNDING, kind_of, measure
from fl_app.sweeps.store import Cell

FEWEST = 3
"""Seeds of an interval of a mean; fewer are called runs."""
FEWEST_OF_SPREAD = 5
"""Seeds of a test of standard deviations: five tell 1 from 3.1, three only 1 from 6.2."""
ABOVE_CHANCE = 1.5
"""How many times the accuracy of guessing a yardstick has at least."""
_TAIL = 0.975  # of a 95 % interval
_RUNS = {1: "one run", 2: "two runs"}

Numbers = Mapping[int, float]
"""A number of each seed that has one, by the seed, ascending."""
Word = Literal["holds", "partly", "undecided", "does not hold", "not judged"]


class Place(NamedTuple):
    """Where a number stands."""

    measure: str
    row: str
    column: str
    method: str


Measured = Mapping[Place, Numbers]
"""Only of what was run."""


def measured_of(experiment: Experiment, cells: Sequence[Cell]) -> Measured:
    """Return the numbers of all measures that are shown or claimed."""
    claimed = [name for claim in experiment.claims for name in claim.measures]
    wanted = dict.fromkeys([*experiment.measures, *claimed])
    found: dict[Place, dict[int, float]] = {}
    for cell in current_cells(experiment, cells):
        for method, kept in cell["methods"].items():
            for name in wanted:
                value = measure(name, kept)
                if not math.isnan(value):
                    place = Place(name, cell["row"], cell["column"], method)
                    found.setdefault(place, {})[int(cell["seed"])] = value
    return found


def as_array(numbers: Numbers) -> NDArray[np.float64]:
    """Return the number of each seed, ascending."""
    return np.array(list(numbers.values()))


def half_interval(values: NDArray[np.float64]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t."""
    count = len(values)
    return float(stdtrit(count - 1, _TAIL) * values.std(ddof=1) / math.sqrt(count))


class Judged(NamedTuple):
    """What becomes of a claim in a cell.

    Attributes
    ----------
    word : str
        "partly": in some of the seeds; "undecided": some of the 95 % interval is on either side.
    seeds : int
        How many say so.
    why : str
        Why it is not judged, or in how many seeds it holds; else empty.
    """

    word: Word
    seeds: int
    why: str = ""


def judge_cell(claim: Claim, lefts: Sequence[Numbers], rights: Sequence[Numbers]) -> Judged:
    """Judge a claim by the numbers of left's methods and of right's, if those are methods.

    Two are compared seed by seed, over the seeds that all have: these count from 0 everywhere.
    """
    fewest = min(map(len, (*lefts, *rights)))
    others = rights or [dict.fromkeys(lefts[0], float(claim.right))]
    pairs = [(left, right) for left in lefts for right in others]
    if claim.statistic == "std":
        if fewest < FEWEST_OF_SPREAD:
            return Judged("not judged", fewest, "too few seeds for a standard deviation")
        return Judged(_word(claim.is_of_all(*_spreads(*pair)) for pair in pairs), fewest)
    seeds = sorted(set.intersection(*(set(one) for pair in pairs for one in pair)))
    if claim.statistic == "each seed":
        met = sum(
            all(claim.is_of_all(a[seed] - b[seed], a[seed] - b[seed]) for a, b in pairs)
            for seed in seeds
        )
        word: Word = "holds" if met == len(seeds) else "partly" if met else "does not hold"
        return Judged(word, len(seeds), f"in {met} of {len(seeds)} seeds")
    differences = [np.array([a[seed] - b[seed] for seed in seeds]) for a, b in pairs]
    return Judged(_word(claim.is_of_all(*_interval(one)) for one in differences), len(seeds))


def _word(answers: Iterable[bool | None]) -> Word:
    """Return what becomes of a claim that must hold for all pairs; None is undecided."""
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
    """Return the sample variance; 0 where all that differs is how a computer rounds."""
    deviation = float(values.std(ddof=1))
    return deviation**2 if deviation > ROUNDING * abs(values.mean()) else 0.0


class Verdict(NamedTuple):
    """What became of a claim.

    Attributes
    ----------
    judged : dict of Judged
        By row and column, where all that it names was run.
    asked : int
        Of how many cells it is said.
    published : tuple of int, optional
        In how many cells the paper's own numbers have it so, and in how many they could.
    """

    judged: Mapping[tuple[str, str], Judged]
    asked: int
    published: tuple[int, int] | None

    @property
    def word(self) -> Word | None:
        """Return what becomes of it in all of its cells; None where it was not run."""
        words = {one.word for one in self.judged.values()} - {"not judged"}
        if not words:
            return "not judged" if self.judged else None
        if words & {"holds", "partly"}:
            return "holds" if words == {"holds"} else "partly"
        return "undecided" if words == {"undecided"} else "does not hold"

    @property
    def seeds(self) -> int:
        """Return how many seeds judge it, where there are fewest."""
        return min(
            (one.seeds for one in self.judged.values() if one.word != "not judged"), default=0
        )

    @property
    def held(self) -> str:
        """Return in how many cells it holds, of how many; empty where it is not judged."""
        count = sum(one.word == "holds" for one in self.judged.values())
        return f"{count} of {self.asked}" if self.word not in (None, "not judged") else ""

    @property
    def exceptions(self) -> list[str]:
        """Return how it is, and in which cells, where neither it holds nor its word says so."""
        cells: dict[str, list[str]] = {}
        told = {"holds", self.word} - {"partly", "not judged"}  # of those, there is more to say
        for cell, (word, _, why) in self.judged.items():
            if word not in told:
                said = {"partly": why, "not judged": f"{word}, {why}"}.get(word, word)
                cells.setdefault(said, []).append(", ".join(cell))
        return [f"{said}: {'; '.join(found)}" for said, found in cells.items()]

    def __str__(self) -> str:
        """Return it in a few words."""
        if self.word is None:
            return "not run yet"
        so_far = " so far" if len(self.judged) < self.asked else ""
        runs = f" ({_RUNS[self.seeds]})" if self.seeds in _RUNS else ""
        return f"{self.word}{so_far}{runs}"


def judge(experiment: Experiment, claim: Claim, measured: Measured) -> Verdict:
    """Judge a claim in each cell of which it is said, by our numbers and by the paper's own."""
    judged, stated, asked = {}, [], 0
    # What a paper has published of standard deviations, one number is above another or is not.
    of_means, which = replace(claim, statistic="mean"), 1 if claim.statistic == "std" else 0
    for row in experiment.rows:
        for column in experiment.columns:
            if not claim.is_of(row, column):
                continue
            asked += 1
            lefts, rights = _places(claim, row, column)
            places = [*lefts, *rights]
            found = [measured.get(place, {}) for place in places]
            if set.intersection(*map(set, found)):
                judged[row, column] = _no_yardstick(experiment, places, found) or judge_cell(
                    claim, found[: len(lefts)], found[len(lefts) :]
                )
            published = [(experiment.stated(*place) or (None, None))[which] for place in places]
            numbers = [{0: number} for number in published if number is not None]
            if len(numbers) == len(places):
                own = judge_cell(of_means, numbers[: len(lefts)], numbers[len(lefts) :])
                stated.append(own.word == "holds")
    return Verdict(judged, asked, (sum(stated), len(stated)) if stated else None)


def _places(claim: Claim, row: str, column: str) -> tuple[list[Place], list[Place]]:
    """Return where the numbers of left's methods stand, and those of right's."""
    own, other = claim.measures
    there = (claim.against.get("row", row), claim.against.get("column", column))
    lefts = [Place(own, row, column, name) for name in claim.lefts]
    return lefts, [Place(other, *there, name) for name in claim.rights]


def _no_yardstick(
    experiment: Experiment, places: Sequence[Place], found: Sequence[Numbers]
) -> Judged | None:
    """Return why accuracies say nothing of a claim: one of them is hardly above guessing."""
    for place, numbers in zip(places, found, strict=True):
        mean = as_array(numbers).mean()
        # Balanced, in a task or after a round, too.
        is_accuracy = "accuracy" in kind_of(place.measure).words
        if is_accuracy and mean < ABOVE_CHANCE * experiment.chance:
            return Judged("not judged", len(numbers), f"{place.method} is at chance")
    return None
