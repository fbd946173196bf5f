"""The tables of a sweep: a tidy one, and for each measure one with a column per strategy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fl_app.report.text_table import TextTable, render
from fl_app.results.statistics import best_names
from fl_app.sweeps.measures import MEASURES, format_measure, measure, measure_title
from fl_app.sweeps.plan import SEED, Sweep
from fl_app.sweeps.store import Cell
from fl_core.data.settings import TESTS, name_of_test
from fl_core.extras import load_extra
from fl_core.files import replacing
from fl_core.messages import protocol
from fl_core.metrics import OF_A_NUMBER
from fl_core.options import typed

if TYPE_CHECKING:  # it comes by the extra simulation
    from pandas import DataFrame

_TABULATED = ("accuracy", *map(name_of_test, TESTS), "rmse", protocol.USER_METRIC, "ari")

_STARRED = (
    "*: the best, and those that no 95 % interval of paired differences distinguishes from it\n"
    "(over seeds; with one seed, over clients)\n"
)


def swept_keys(sweep: Sweep) -> list[str]:
    """Return the swept keys except the seed: simulations that differ in it are repeats."""
    return [key for key in sweep.swept if key != SEED]


def tidy(sweep: Sweep, cells: Sequence[Cell]) -> DataFrame:
    """Return a row per cell, strategy, seed and measure that the run has."""
    keys = swept_keys(sweep)
    rows = [
        (cell["cell"], *map(cell["values"].get, keys), run["strategy"], run["seed"], name, value)
        for cell in cells
        for run in cell["runs"]
        for name, one in MEASURES.items()
        if not one.num_arguments and not math.isnan(value := measure(name, run))
    ]
    columns = ["cell", *keys, "strategy", SEED, "measure", "value"]
    # As objects, numbers retain their types: 0 and 0.2 in one column are not 0.0 and 0.2.
    pandas = load_extra("pandas", "fedkin sweep")
    table: DataFrame = pandas.DataFrame(rows, columns=columns, dtype=object)
    return table.astype({"value": float})


def write_csv(table: DataFrame, path: Path) -> None:
    """Write the tidy table; true and false as they are typed."""
    as_typed = table.map(lambda one: typed(one) if isinstance(one, bool) else one)
    with replacing(path) as partial:
        as_typed.to_csv(partial, index=False)


def printed_tables(sweep: Sweep, table: DataFrame, cells: Sequence[Cell]) -> str:
    """Return a table for each measure that is known, with a star at the best strategies."""
    known = [name for name in _TABULATED if (table["measure"] == name).any()]
    text = "\n".join(
        _printed(swept_keys(sweep), table[table["measure"] == name], cells, name) for name in known
    )
    return f"{text}{_STARRED}" if "*" in text else text


def _printed(keys: list[str], found: DataFrame, cells: Sequence[Cell], name: str) -> str:
    values = found.groupby([*keys, "strategy"], sort=False)["value"]
    counts = values.size()
    seeds = f"{counts.min()} to {counts.max()}" if counts.nunique() > 1 else f"{counts.max()}"
    spread = "one seed" if counts.max() == 1 else f"mean ± std over {seeds} seeds"
    strategies = list(dict.fromkeys(found["strategy"]))
    rows = []
    for place, here in found.groupby(keys, sort=False) if keys else [((), found)]:
        best = _best([cell for cell in cells if cell["cell"] in set(here["cell"])], name)
        texts = {
            strategy: format_measure(name, of.mean(), of.std() if len(of) > 1 else None)
            for strategy, of in here.groupby("strategy")["value"]
        }
        starred = (texts.get(one, "–") + "*" * (one in best) for one in strategies)
        rows.append([*map(typed, place), *starred])
    columns = [*keys, *strategies]
    numbers = range(len(keys), len(columns))
    return render(TextTable(f"{measure_title(name)}, {spread}", columns, rows, numbers))


def _best(cells: Sequence[Cell], name: str) -> list[str]:
    """Return the best strategies of some cells; of a user-defined metric, none is known."""
    if name == protocol.USER_METRIC:
        return []
    scores: dict[str, dict[int, NDArray[np.float64]]] = {}
    for run in (run for cell in cells for run in cell["runs"]):
        if not math.isnan(value := measure(name, run)):
            of_clients = np.array(run.get(f"{name}-per-client", [value]), np.float64)
            scores.setdefault(run["strategy"], {})[run["seed"]] = of_clients
    return best_names(scores, lower_is_better=name == OF_A_NUMBER.main.name)
