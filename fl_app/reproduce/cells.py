"""Cells that are run once: their raw numbers, in a file that is written after each."""

from __future__ import annotations

import csv
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fl_app.reproduce.code_state import state_of
from fl_app.reproduce.experiment import Experiment
from fl_core.files import replacing

Cell = dict[str, Any]
"""What is kept of one federation: row, column and seed; state, of options and code, and code alone;
seconds, versions and, by strategy, accuracy, ARI, seconds, bytes and accuracy per round."""

_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")
_KEPT = ("accuracy", "ari", "bytes", "seconds")


@dataclass(frozen=True)
class Wanted:
    """A cell that an experiment asks for."""

    row: str
    column: str
    seed: int

    def is_of(self, cell: Cell) -> bool:
        """Return whether a cell is this one, whatever code made it."""
        return (cell["row"], cell["column"], cell["seed"]) == (self.row, self.column, self.seed)


def wanted_cells(experiment: Experiment, seeds: int) -> list[Wanted]:
    """Return all cells: first everything of seed 0, so that a table fills evenly."""
    return [
        Wanted(row, column, seed)
        for seed in range(seeds)
        for row in experiment.rows
        for column in experiment.columns
    ]


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a file of raw numbers; none if there is no such file.

    Raises
    ------
    ValueError
        If it is something else.
    """
    if not path.is_file():
        return []
    try:
        cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if not {"row", "column", "seed", "state", "code", "strategies"} <= set(cell):
                raise ValueError("a cell lacks something")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold the numbers of an experiment ({error}): move it away."
        ) from error
    return cells


def write_cells(path: Path, cells: list[Cell]) -> None:
    """Write all cells, completely or not at all."""
    with replacing(path) as partial:
        text = json.dumps({"cells": cells}, indent=1, allow_nan=False)
        partial.write_text(text + "\n", encoding="utf-8")


def run_missing(
    experiment: Experiment, path: Path, *, seeds: int, quick: bool, workers: int
) -> Iterator[tuple[int, int, Wanted]]:
    """Run the cells that are not in the file, or were made by other options or code.

    Each is in the file before the next begins. Yields, before each, how many are done, how many
    there are in all, and which comes now.

    Raises
    ------
    RuntimeError
        If a simulation fails.
    """
    wanted = wanted_cells(experiment, seeds)
    cells = read_cells(path)
    for done, one in enumerate(wanted):
        config = experiment.config(one.row, one.column, one.seed, quick=quick)
        given = experiment.given(one.row, one.column, one.seed, quick=quick)
        state = state_of(given, config.strategy)
        if any(one.is_of(cell) and cell["state"] == state for cell in cells):
            continue
        yield done, len(wanted), one
        code = state_of({}, config.strategy)
        ran = _run(given, config.num_clients, workers)
        fresh = {**vars(one), "state": state, "code": code, **ran}
        cells = [cell for cell in cells if not one.is_of(cell)] + [fresh]
        write_cells(path, cells)


def _run(given: Mapping[str, Any], num_clients: int, workers: int) -> Cell:
    # Ray and torch are imported by neither --list nor --page.
    from fl_app.cli import PAPER_CLIENTS  # noqa: PLC0415
    from fl_app.superlink import simulate  # noqa: PLC0415

    clients = num_clients or PAPER_CLIENTS
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fedkin-cell-") as folder:
        overrides = {**given, "num-clients": clients, "output-dir": folder}
        if not simulate(None, overrides, num_clients=clients, workers=workers):
            raise RuntimeError("the simulation failed; what is finished is kept.")
        summary = json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))
        curves = _curves(Path(folder) / "metrics.csv")
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "strategies": {
            run["strategy"]: {name: run[name] for name in _KEPT if name in run}
            | {"accuracy-per-round": curves[run["strategy"]]}
            for run in summary["runs"]
        },
    }


def _curves(path: Path) -> dict[str, dict[str, float]]:
    """Return each strategy's accuracy by round, where it was tested."""
    curves: dict[str, dict[str, float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["accuracy"]:
                curves.setdefault(row["strategy"], {})[row["round"]] = float(row["accuracy"])
    return curves
