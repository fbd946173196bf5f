"""The cells of an experiment: which there are, which are missing, and their raw numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fl_app.studies.reproduce import keeping
from fl_app.studies.reproduce.code_state import state_of
from fl_app.studies.reproduce.data_files import records_of
from fl_app.studies.reproduce.experiment_file import Experiment
from fl_app.studies.reproduce.formula import expected_bytes
from fl_app.studies.reproduce.keeping import (
    Cell,
    Keeper,
    Place,
    has_options,
    missing_of,
    read_numbers,
    run_into,
    unfinished_folder,
)
from fl_app.studies.reproduce.kept import kept_of

_PARTS = 8  # of a simulation, of which a kill costs the last one only
_CELL_KEYS = ("row", "column", "variant", "seed", "methods")


@dataclass(frozen=True)
class Wanted(Place):
    """A cell that an experiment asks for; its `variant` is empty where all share their options."""

    row: str
    column: str
    variant: str
    seed: int

    def __str__(self) -> str:
        """Return it in words."""
        words = (self.row, self.column, self.variant, f"seed {self.seed}")
        return ", ".join(word for word in words if word)


Missing = keeping.Missing[Wanted]
"""A simulation that is still to be run."""


def wanted_cells(experiment: Experiment, seeds: int) -> list[Wanted]:
    """Return all cells: first everything of seed 0, so that a table fills evenly."""
    return [
        Wanted(row, column, variant, seed)
        for seed in range(seeds)
        for row in experiment.rows
        for column in experiment.columns
        for variant in experiment.runs()
    ]


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a file of raw numbers; none if there is no such file.

    `methods` has, by method, what `kept_of` says.

    Raises
    ------
    ValueError
        If it is something else.
    """
    return read_numbers(path, _CELL_KEYS)


def current_cells(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that an experiment asks for, each once and in its order.

    Those that other options made are left out; whose code made them does not matter.
    """
    seeds = max((int(cell["seed"]) for cell in cells), default=-1) + 1
    found = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        found += [cell for cell in cells if one.is_of(cell) and has_options(cell, given)][-1:]
    return found


def find_missing(
    experiment: Experiment, path: Path, seeds: int, *, any_code: bool = False
) -> list[Missing]:
    """Return the simulations that are not in the file, or were made by other options, code or data.

    `any_code`: code does not matter.
    """
    wanted = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        wanted.append((one, given, experiment.config(given)))
    return missing_of(wanted, read_cells(path), any_code=any_code)


def run_missing(
    experiment: Experiment, path: Path, missing: Sequence[Missing], workers: int
) -> Iterator[Missing]:
    """Run simulations; each is in the file before the next begins, and yielded before it is run.

    One that is interrupted is kept as far as it came, and goes on the next time.

    Raises
    ------
    RuntimeError
        If a simulation fails, the code changes while one runs, or another process is at work on the
        same file.
    """
    with_formula = "formula" in experiment.measures

    def run(one: Missing, data: Mapping[str, Any], folder: Path, trainings: Path) -> Cell:
        ran = _run(one, folder, workers, trainings, with_formula=with_formula)
        if data:
            ran = {"data": data, **ran}
        if variant := one.wanted.variant:
            ran["methods"] = {variant: ran["methods"][one.config.strategy[0]]}
        return ran

    running = path.with_name(f".{path.stem}.running")
    place = path.with_name(f".{path.stem}.trainings")
    cells = (experiment.given(c.row, c.column, 0, c.variant) for c in wanted_cells(experiment, 1))
    codes = {state_of(experiment.config(given))[1] for given in cells}
    with (
        Keeper(path, f"experiment {path.stem}", _CELL_KEYS) as keeper,
        unfinished_folder(place, " ".join(sorted(codes))) as trainings,
    ):
        for one in missing:
            yield one
            data = records_of(one.config)
            files = hashlib.sha256(json.dumps(data).encode()).hexdigest()
            state = f"{one.wanted} {state_of(one.config)[0]} {files}"
            with unfinished_folder(running, state) as folder:
                keeper.keep(one, workers, partial(run, one, data, folder, trainings / files))


def _run(one: Missing, folder: Path, workers: int, trainings: Path, *, with_formula: bool) -> Cell:
    summary, ran = run_into(one, folder, workers, trainings, parts=_PARTS)
    methods = {run["strategy"]: kept_of(run, folder) for run in summary["runs"]}
    if with_formula:
        for name, kept in methods.items():
            expected = expected_bytes(name, one.config, summary["config"]["num-clients"], folder)
            if expected is not None:
                kept["formula-bytes"] = expected
    left_out = {"left-out": found} if (found := summary.get("left_out")) else {}
    return {**ran, **left_out, "methods": methods}
