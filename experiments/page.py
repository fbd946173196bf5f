"""The page of an experiment: numbers of the paper and ours, verdicts and settings."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from experiments.cells import all_cells, current_cells
from experiments.data_files import files_in_words
from experiments.experiment_file import Experiment
from experiments.judging import (
    FEWEST,
    Measured,
    Numbers,
    TableEntry,
    as_array,
    judge,
    measured_of,
)
from fl_app.results.statistics import half_interval
from fl_app.sweeps.measures import format_measure, measure_title
from fl_app.sweeps.store import Cell
from fl_core.options import key_values
from fl_core.text import listed, markdown_line

HOW_JUDGED = (
    "A claim holds in a cell if all of the 95 % interval of its difference, seed by seed, is on "
    "the claim's side; if some is on either side, it is undecided. Of one or two runs, their mean "
    "is judged, which may be chance."
)


def page(experiment: Experiment, cells: Sequence[Cell], numbers: str, path: str = "") -> str:
    """Return the page as Markdown.

    `numbers` is the path from the page to the file of cells; `path` is the experiment's file where
    its name does not say which it is.
    """
    current = current_cells(experiment, cells)
    measured = measured_of(experiment, current)
    files = quote(experiment.name)
    words = ["python", "-m", "experiments", path or experiment.name]
    words += ["--quick"] * experiment.small
    lines = [f"# {experiment.title}", "", experiment.source, ""]
    lines += [f"{experiment.note}", ""] if experiment.note else []
    lines += [f"`{shlex.join(words)}` wrote this page, and [the raw numbers]({quote(numbers)})."]
    if experiment.small:
        lines += ["", "**A small version (`--quick`): these numbers say nothing of the paper's.**"]
    lines += _state(experiment, cells, current)
    lines += ["", _legend(experiment)]
    for row in experiment.rows:
        lines += ["", f"## {row}", *_tables(experiment, row, measured)]
    if experiment.picture != "none":
        lines += ["", f"![{experiment.title}]({files}.png)"]
    if experiment.claims:
        lines += ["", "## What holds", "", *_verdicts(experiment, measured)]
    if differences := list(_differences(experiment, measured)):
        lines += ["", "## Where ours differ from the paper's by more than the ± there", ""]
        lines += differences
    lines += ["", "## How it was made", "", *_making(experiment, current)]
    return "\n".join(lines) + "\n"


def _state(experiment: Experiment, cells: Sequence[Cell], current: Sequence[Cell]) -> list[str]:
    """List the cells that are missing, outdated, or failed, and methods that were left out."""
    begun = max((int(cell["seed"]) for cell in current), default=-1) + 1
    total = len(all_cells(experiment, max(begun, experiment.seeds)))
    said = []
    if len(current) < total:
        said.append(f"Not finished: {len(current)} of {total} simulations so far.")
    counts = Counter(", ".join(filter(None, _place(cell))) for cell in current)
    if fewer := [name for name, count in counts.items() if count < max(counts.values())]:
        seeds = _count(max(counts.values()), "seed")
        said.append(f"{seeds}, but fewer of {listed(fewer, 8, '; ')}.")
    if others := len(cells) - len(current):
        said.append(f"{others} more had other options, and are not shown.")
    failed = sum(bool(run.get("failures")) for c in current for run in c["methods"].values())
    if failed:
        said.append(f"In {failed} runs, clients failed: see the raw numbers.")
    left_out = [item for cell in current for item in cell.get("left-out", {}).items()]
    said += [f"{name} is left out: {why}." for name, why in dict.fromkeys(left_out)]
    return ["", *said] if said else []


def _legend(experiment: Experiment) -> str:
    """Describe the numbers of the tables."""
    words = (
        "Numbers are means over seeds ± their standard deviation (n − 1); in brackets, from three "
        "seeds on, half the width of the mean's 95 % interval, unless it is shown as 0."
    )
    if not experiment.published:
        return words
    return f"{words} A difference of more than the paper's ± is bold; where it states none, ours."


def _tables(experiment: Experiment, row: str, measured: Measured) -> list[str]:
    """Return a table of each measure, or one of all where there is only one column.

    A measure of which there is no number, neither ours nor the paper's, has no place in it.
    """
    found = {place.measure for place in measured if place.row == row}
    if not found:
        return ["", "Not run yet."]
    columns = tuple(experiment.columns)
    measures = tuple(
        name
        for name in experiment.measures
        if name in found or row in experiment.published.get(name, {})
    )
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
    heads, shares = [measure_title(pairs[0][0]) if one_measure else ""], []
    for name, column in pairs:
        published = bool(experiment.published.get(name, {}).get(row, {}).get(column))
        shares.append(published)
        head = column if one_measure else measure_title(name)
        heads += [f"{head}: paper", "ours", "difference"] if published else [head]
    lines = [markdown_line(heads), "| --- " * len(heads) + "|"]
    for method in experiment.methods():
        cells = [method]
        for (name, column), published in zip(pairs, shares, strict=True):
            place = TableEntry(name, row, column, method)
            cells += _compared(experiment, place, measured.get(place), published=published)
        lines.append(markdown_line(cells))
    return lines


def _compared(
    experiment: Experiment, place: TableEntry, numbers: Numbers | None, *, published: bool
) -> list[str]:
    ours = None if numbers is None else as_array(numbers)
    number = "–" if ours is None else _with_spread(experiment, place, ours)
    if not published:
        return [number]
    stated = experiment.stated(*place)
    if stated is None:
        return ["–", number, "–"]
    digits = experiment.digits
    paper = format_measure(place.measure, *stated, digits=digits)
    if ours is None:
        return [paper, number, "–"]
    away = float(ours.mean()) - stated[0]
    difference = format_measure(place.measure, away, digits=digits, sign=True)
    return [paper, number, f"**{difference}**" if _differs(stated, ours) else difference]


def _with_spread(experiment: Experiment, place: TableEntry, ours: NDArray[np.float64]) -> str:
    std = float(ours.std(ddof=1)) if len(ours) > 1 else None
    half = half_interval(ours) if len(ours) >= FEWEST else None
    return format_measure(place.measure, float(ours.mean()), std, half, digits=experiment.digits)


def _differs(stated: tuple[float, float | None], ours: NDArray[np.float64]) -> bool | None:
    """Return whether ours are further away than the paper's spread or, without one, than ours.

    None if there is neither.
    """
    spread = stated[1]
    if spread is None and len(ours) > 1:
        spread = float(ours.std(ddof=1))
    away = round(abs(float(ours.mean()) - stated[0]), 9)  # 94.4 - 94.1 is more than 0.3 in binary
    return None if spread is None else away > spread


def _differences(experiment: Experiment, measured: Measured) -> Iterator[str]:
    """Yield a line for each explanation, with the cells that it covers, and one for the others."""
    far = [
        place
        for place, numbers in measured.items()
        if (stated := experiment.stated(*place)) and _differs(stated, as_array(numbers))
    ]
    for one in experiment.explanations:
        covered = [place for place in far if one.covers(*place)]
        far = [place for place in far if place not in covered]
        if covered:
            yield f"- {one.text} ({_listed(covered)}.)"
    if far:
        yield f"- Not explained by an experiment: {_listed(far)}."


def _listed(places: Sequence[TableEntry]) -> str:
    of_cell: dict[str, list[str]] = {}
    for place in places:
        cell = f"{measure_title(place.measure)}, {place.row}, {place.column}"
        of_cell.setdefault(cell, []).append(place.method)
    return "; ".join(f"{cell}: {', '.join(methods)}" for cell, methods in of_cell.items())


def _verdicts(experiment: Experiment, measured: Measured) -> list[str]:
    lines = [f"{HOW_JUDGED} [More](../results.md#how-a-claim-is-judged).", ""]
    for claim in experiment.claims:
        verdict = judge(experiment, claim, measured)
        said = [f"- {claim.says}: **{verdict}**"]
        said[0] += f", in {verdict.held} cells" if verdict.held else ""
        said += [f"{exception[:1].upper()}{exception[1:]}" for exception in verdict.exceptions]
        if verdict.published:
            held, of = verdict.published
            said.append(f"The paper's numbers: in {held} of {of} cells")
        lines.append(f"{'. '.join(said)}.")
    return lines


def _place(cell: Cell) -> tuple[str, str, str]:
    """Return the row, the column and the variant of a cell."""
    return cell["row"], cell["column"], cell["variant"]


def hours(cells: Sequence[Cell]) -> float:
    """Return the hours of the simulations, one after the other."""
    return sum(float(cell["seconds"]) for cell in cells) / 3600


def _making(experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    seeds = len({cell["seed"] for cell in cells})
    small = experiment.quick if experiment.small else {}
    ran = " or ".join(
        f"in {workers} Ray worker(s) of one core each" if workers else "one after the other"
        for workers in sorted({cell["workers"] for cell in cells})
    )
    lines = [
        f"{_count(len(cells), 'simulation')} of {_count(seeds, 'seed')}: {_duration(cells)}, one "
        f"after the other; clients ran {ran}.",
        "",
    ]
    for gpu, count in Counter(cell["gpu"] for cell in cells if "gpu" in cell).items():
        lines += [f"{count} of them on a GPU ({gpu}), which rounds differently.", ""]
    lines += ["```", _options({**experiment.options, **small}), "```", ""]
    groups = (experiment.rows, experiment.columns, experiment.variants)
    special = []
    for name, options in (one for group in groups for one in group.items()):
        if left := {key: value for key, value in options.items() if key not in small}:
            special.append(f"- {name}: `{_options(left)}`")
    if special:
        lines += ["Rows, columns and variants have these options:", "", *special]
    revisions = Counter(cell["revision"] or "not recorded" for cell in cells)
    counted = (f"{name} ({_count(count, 'simulation')})" for name, count in revisions.items())
    lines += ["", f"Git revision: {', '.join(counted)}."]
    again = Counter(one for cell in cells for one in cell.get("revisions", {}).items())
    for (method, code), count in sorted(again.items()):
        lines += ["", f"Run again alone: {method}, by {code} ({_count(count, 'simulation')})."]
    data = [(name, record) for cell in cells for name, record in cell.get("data", {}).items()]
    lines_of_files = dict.fromkeys(files_in_words(name, record) for name, record in data)
    lines += ["", *(f"- {words}." for words in lines_of_files)] if lines_of_files else []
    if len(lines_of_files) > len({name for name, _ in data}):
        lines += ["", "The cells were made on different files."]
    for made in dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in cell["versions"].items()) for cell in cells
    ):
        lines += ["", f"Made with {made}."]
    return lines


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _duration(cells: Sequence[Cell]) -> str:
    seconds = 3600 * hours(cells)
    return f"{seconds:.0f} seconds" if seconds < 3600 else f"{seconds / 3600:.1f} hours"


def _options(options: Mapping[str, object]) -> str:
    return " ".join(key_values(options))
