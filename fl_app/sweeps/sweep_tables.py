"""What a sweep shows of its numbers: a tidy CSV, and a table of cells by strategies."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fl_app.report.tables import render
from fl_app.sweeps.measures import MEASURES, in_words, measure, shown
from fl_app.sweeps.plan import SEED, Sweep
from fl_app.sweeps.store import Cell
from fl_core.data.settings import TESTS, name_of_test
from fl_core.files import replacing
from fl_core.messages import protocol
from fl_core.metrics import OF_A_NUMBER, metrics_in
from fl_core.options import typed
from fl_core.text import markdown_line

COLUMNS = ("strategy", SEED, "measure", "value")
"""After the name of the cell and the swept keys."""
_TABULATED = ("accuracy", *map(name_of_test, TESTS), "rmse", protocol.OWN_METRIC, "ari")


def tidy_columns(sweep: Sweep) -> list[str]:
    """Return the columns of the CSV: the cell, what is swept, and who scored what."""
    return ["cell", *(key for key in sweep.swept if key != SEED), *COLUMNS]


def tidy_rows(sweep: Sweep, cells: Iterable[Cell]) -> list[list[Any]]:
    """Return a row per cell, strategy, seed and measure; a measure that a run lacks has none."""
    rows = []
    for cell in cells:
        place = [cell["cell"], *(cell["values"][key] for key in sweep.swept if key != SEED)]
        for run in cell["runs"]:
            for name in MEASURES:
                if not MEASURES[name].asked and not math.isnan(value := measure(name, run)):
                    rows.append([*place, run["strategy"], run["seed"], name, value])
    return rows


def write_csv(sweep: Sweep, cells: Iterable[Cell], path: Path) -> None:
    """Write the tidy CSV; true and false as they are typed."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(tidy_columns(sweep))
        for row in tidy_rows(sweep, cells):
            writer.writerow([typed(one) if isinstance(one, bool) else one for one in row])


def by_values(sweep: Sweep, cells: Sequence[Cell], name: str) -> dict[tuple[Any, ...], Any]:
    """Return a measure by swept values, then by strategy: an array of a value per seed, (S,)."""
    found: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for cell in cells:
        place = tuple(cell["values"][key] for key in sweep.swept if key != SEED)
        here = found.setdefault(place, {})
        for run in cell["runs"]:
            here.setdefault(run["strategy"], []).append(measure(name, run))
    return {
        place: {strategy: np.array(values) for strategy, values in here.items()}
        for place, here in found.items()
    }


def printed_table(sweep: Sweep, cells: Sequence[Cell]) -> str:
    """Return the scores as a table for the terminal; the best of each row is starred."""
    name = metrics_in({key for cell in cells for run in cell["runs"] for key in run}).main.name
    keys, strategies, rows = _scores(sweep, cells, "{}*", name)
    table = Table(title=_title(sweep, cells, name), title_justify="left")
    for key in keys:
        table.add_column(key, overflow="fold")
    for name in strategies:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return render(table)


def summary_page(sweep: Sweep, cells: Sequence[Cell], command: str, picture: str) -> str:
    """Return the sweep's page: its tables, its picture, and the command that repeats it."""
    done = f"{len(cells)} of {len(sweep.cells)} simulations are finished."
    lines = [f"# {', '.join(sweep.swept)}: a sweep", "", done, ""]
    for name in _TABULATED:
        keys, strategies, rows = _scores(sweep, cells, "**{}**", name)
        if not rows or not any(cell != "–" for row in rows for cell in row[len(keys) :]):
            continue
        lines += [f"## {_title(sweep, cells, name)}", "", markdown_line([*keys, *strategies])]
        rule = ["---"] * len(keys) + ["---:"] * len(strategies)
        lines += [*map(markdown_line, [rule, *rows]), ""]
    if picture:
        lines += [f"![{', '.join(sweep.swept)}]({picture})", ""]
    lines += [
        "`sweep.csv` has a row per cell, strategy, seed and measure; `cells/` has the results of "
        "each simulation, as `fedkin run` writes them.",
        "",
        "```sh",
        command,
        "```",
    ]
    return "\n".join(lines) + "\n"


def _title(sweep: Sweep, cells: Sequence[Cell], name: str) -> str:
    places = by_values(sweep, cells, name).values()
    counts = {len(values) for here in places for values in here.values()}
    fewest, most = min(counts, default=1), max(counts, default=1)
    if most == 1:
        return f"{in_words(name)}, one seed"
    seeds = most if fewest == most else f"{fewest} to {most}"
    return f"{in_words(name)}, mean ± std over {seeds} seeds"


def _scores(
    sweep: Sweep, cells: Sequence[Cell], best: str, name: str
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the swept keys, the strategies, and a row of texts for each place."""
    keys = [key for key in sweep.swept if key != SEED]
    places, lower = by_values(sweep, cells, name), name == OF_A_NUMBER.main.name
    strategies = list(dict.fromkeys(one for here in places.values() for one in here))
    rows = []
    for place, here in places.items():
        texts = {one: _mean_and_std(name, values) for one, values in here.items()}
        # What is shown alike is equally good.
        means = {one: float(shown(name, float(own.mean()))) for one, own in here.items()}
        known = [mean for mean in means.values() if not math.isnan(mean)]
        top = (min if lower else max)(known, default=math.nan)
        for one, mean in means.items():
            # Of a metric of one's own, nobody has said which is the best.
            if mean == top and len(known) > 1 and name != protocol.OWN_METRIC:
                texts[one] = best.format(texts[one])
        rows.append([*map(typed, place), *(texts.get(one, "–") for one in strategies)])
    return keys, strategies, rows


def _mean_and_std(name: str, values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    if np.isnan(values).any():
        return "–"
    return shown(name, float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None)
