"""An experiment's page: the paper's numbers and ours, what holds, and how it was made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_app.reproduce.cells import Cell
from fl_app.reproduce.experiment import Claim, Experiment
from fl_app.reproduce.measures import in_words, measure, shown


class Place(NamedTuple):
    """Where a number stands."""

    measure: str
    row: str
    column: str
    method: str


Measured = Mapping[Place, NDArray[np.float64]]
"""The number of each seed; only of what was run."""


def measured_of(experiment: Experiment, cells: Sequence[Cell]) -> Measured:
    """Return the numbers of all measures that are shown or claimed, seeds ascending."""
    claimed = [measure for claim in experiment.claims for measure in claim.measures]
    wanted = dict.fromkeys([*experiment.measures, *claimed])
    found: dict[Place, list[float]] = {}
    for cell in sorted(cells, key=lambda cell: int(cell["seed"])):
        if cell["row"] in experiment.rows and cell["column"] in experiment.columns:
            for method, kept in cell["methods"].items():
                for name in wanted:
                    place = Place(name, cell["row"], cell["column"], method)
                    found.setdefault(place, []).append(measure(name, kept))
    return {place: np.array(values) for place, values in found.items()}


def page(experiment: Experiment, cells: Sequence[Cell]) -> str:
    """Return the page as Markdown."""
    command = f"fedkin reproduce {experiment.name}" + (" --quick" if experiment.small else "")
    measured = measured_of(experiment, cells)
    seeds = len({cell["seed"] for cell in cells})
    wanted = len(experiment.rows) * len(experiment.columns) * len(experiment.runs()) * seeds
    lines = [f"# {experiment.title}", "", experiment.source, ""]
    lines += [f"{experiment.note}", ""] if experiment.note else []
    lines += [f"`{command}` wrote this page, and [the raw numbers]({experiment.name}.json)."]
    if experiment.small:
        lines += ["", "**A small version (`--quick`): these numbers say nothing of the paper's.**"]
    if len(cells) < wanted:
        lines += ["", f"Not finished: {len(cells)} of {wanted} simulations so far."]
    for row in experiment.rows:
        lines += ["", f"## {row}", *_tables(experiment, row, measured)]
    if experiment.picture != "none":
        lines += ["", f"![{experiment.title}]({experiment.name}.png)"]
    if experiment.claims:
        lines += ["", "## What holds", "", *_verdicts(experiment.claims, measured)]
    if differences := list(_differences(experiment, measured)):
        lines += ["", "## Where it differs from the paper by more than its standard deviation", ""]
        lines += differences
    lines += ["", "## How it was made", "", *_making(experiment, cells)]
    return "\n".join(lines) + "\n"


def _tables(experiment: Experiment, row: str, measured: Measured) -> list[str]:
    """Return a table of each measure, or one of all where there is only one column."""
    if not any(place.row == row for place in measured):
        return ["", "Not run yet."]
    columns, measures = tuple(experiment.columns), tuple(experiment.measures)
    tables = [measures] if len(columns) == 1 else [(name,) for name in measures]
    lines = []
    for names in tables:
        pairs = [(name, column) for name in names for column in columns]
        lines += ["", *_table(experiment, row, pairs, measured)]
    return lines


def _table(
    experiment: Experiment, row: str, pairs: Sequence[tuple[str, str]], measured: Measured
) -> list[str]:
    one_measure = len({name for name, _ in pairs}) == 1
    heads, shares = [in_words(pairs[0][0]) if one_measure else ""], []
    for name, column in pairs:
        published = bool(experiment.published.get(name, {}).get(row, {}).get(column))
        shares.append(published)
        head = column if one_measure else in_words(name)
        heads += [f"{head}: paper", "ours", "difference"] if published else [head]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for method in experiment.methods():
        cells = [method]
        for (name, column), published in zip(pairs, shares, strict=True):
            place = Place(name, row, column, method)
            cells += _compared(experiment, place, measured.get(place), published=published)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _compared(
    experiment: Experiment, place: Place, ours: NDArray[np.float64] | None, *, published: bool
) -> list[str]:
    number = "–" if ours is None or np.isnan(ours).all() else _with_spread(place.measure, ours)
    if not published:
        return [number]
    stated = experiment.stated(*place)
    if stated is None:
        return ["–", number, "–"]
    paper = shown(place.measure, *stated)
    if number == "–" or ours is None:
        return [paper, number, "–"]
    difference = shown(place.measure, float(ours.mean()) - stated[0], sign=True)
    return [paper, number, f"**{difference}**" if _differs(stated, ours) else difference]


def _with_spread(name: str, ours: NDArray[np.float64]) -> str:
    return shown(name, float(ours.mean()), float(ours.std(ddof=1)) if len(ours) > 1 else None)


def _differs(stated: tuple[float, float | None], ours: NDArray[np.float64]) -> bool:
    return stated[1] is not None and abs(float(ours.mean()) - stated[0]) > stated[1]


def _differences(experiment: Experiment, measured: Measured) -> Iterator[str]:
    """Yield a line for each explanation, with the cells that it covers, and one for the others."""
    far = [
        place
        for place, ours in measured.items()
        if (stated := experiment.stated(*place)) is not None and _differs(stated, ours)
    ]
    for one in experiment.explanations:
        covered = [place for place in far if one.covers(*place[1:])]
        far = [place for place in far if place not in covered]
        if covered:
            yield f"- {one.text} ({_listed(covered)}.)"
    if far:
        yield f"- Not explained by an experiment: {_listed(far)}."


def _listed(places: Sequence[Place]) -> str:
    of_cell: dict[str, list[str]] = {}
    for place in places:
        of_cell.setdefault(f"{place.row}, {place.column}", []).append(place.method)
    return "; ".join(f"{cell}: {', '.join(methods)}" for cell, methods in of_cell.items())


def judge(claim: Claim, measured: Measured) -> dict[tuple[str, str], bool]:
    """Return whether a claim holds, by row and column, where all that it names was run."""
    judged = {}
    for row, column in dict.fromkeys((place.row, place.column) for place in measured):
        if claim.is_of(row, column):
            own, other = claim.measures
            there = (claim.against.get("row", row), claim.against.get("column", column))
            lefts = [measured.get(Place(own, row, column, name)) for name in claim.lefts]
            rights = [measured.get(Place(other, *there, name)) for name in claim.rights]
            numbers = [_over_seeds(claim, values) for values in (*lefts, *rights)]
            if not any(map(math.isnan, numbers)):
                judged[row, column] = claim.holds(numbers[: len(lefts)], numbers[len(lefts) :])
    return judged


def _over_seeds(claim: Claim, ours: NDArray[np.float64] | None) -> float:
    """Return the statistic that a claim compares; NaN if it is not known."""
    if ours is None:
        return math.nan
    if claim.statistic == "std":
        return float(ours.std(ddof=1)) if len(ours) > 1 else math.nan
    return float(ours.mean())


def verdict(judged: Mapping[tuple[str, str], bool]) -> str:
    """Return it in a word or two."""
    if not judged:
        return "could not be tried here"
    if all(judged.values()):
        return "holds"
    return "partly" if any(judged.values()) else "does not hold"


def _verdicts(claims: Sequence[Claim], measured: Measured) -> list[str]:
    lines = []
    for claim in claims:
        judged = judge(claim, measured)
        failed = [f"{row}, {column}" for (row, column), holds in judged.items() if not holds]
        counted = f", in {len(judged) - len(failed)} of {len(judged)} cells" if judged else ""
        exceptions = f"; not in {'; '.join(failed)}" if failed and len(judged) > 1 else ""
        lines.append(f"- {claim.says}: **{verdict(judged)}**{counted}{exceptions}.")
    return lines


def hours(cells: Sequence[Cell]) -> float:
    """Return how long the simulations took, one after the other."""
    return sum(float(cell["seconds"]) for cell in cells) / 3600


def _making(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    seeds = len({cell["seed"] for cell in cells})
    small = experiment.quick if experiment.small else {}
    lines = [f"{len(cells)} simulations, {seeds} seeds, {hours(cells):.1f} hours in all.", ""]
    lines += ["```", _options({**experiment.options, **small}), "```", ""]
    lines += ["| row, column or variant | its own options |", "| --- | --- |"]
    for group in (experiment.rows, experiment.columns, experiment.variants):
        lines += [f"| {name} | `{_options(own)}` |" for name, own in group.items() if own]
    if len({cell["code"] for cell in cells if not cell["variant"]}) > 1:
        lines += ["", "The cells were made by different versions of the code."]
    for made in dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in cell["versions"].items()) for cell in cells
    ):
        lines += ["", f"Made with {made}."]
    return lines


def _options(options: Mapping[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in options.items())
