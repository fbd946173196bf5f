"""The cells of an experiment: which there are, which are missing, and their numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.data_files import records_of
from experiments.experiment_file import Experiment
from experiments.formula import expected_bytes
from fl_app.sweeps import store
from fl_app.sweeps.run_numbers import numbers_of_run
from fl_app.sweeps.store import (
    Cell,
    Place,
    Store,
    resolved_options,
    revision,
    run_into,
    unfinished_folder,
)

_PARTS = 8  # of a simulation, of which a kill costs the last one only
CELL_KEYS = ("row", "column", "variant", "seed", "methods")


@dataclass(frozen=True)
class Wanted(Place):
    """A cell of an experiment; its `variant` is empty where all share their options."""

    row: str
    column: str
    variant: str
    seed: int

    def __str__(self) -> str:
        """Return it in words."""
        words = (self.row, self.column, self.variant, f"seed {self.seed}")
        return ", ".join(word for word in words if word)


Missing = store.Missing[Wanted]
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
    """Return the cells of a file; none if there is no such file.

    `methods` has, by method, what `numbers_of_run` says.

    Raises
    ------
    ValueError
        If it is something else.
    """
    return store.read_cells(path, CELL_KEYS)


def current_cells(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that have the experiment's options, each once and in its order."""
    seeds = max((int(cell["seed"]) for cell in cells), default=-1) + 1
    options = {}
    for one in wanted_cells(experiment, 1):
        given = experiment.given(one.row, one.column, 0, one.variant)
        options[one.row, one.column, one.variant] = resolved_options(experiment.config(given))
    current = []
    for one in wanted_cells(experiment, seeds):
        wanted = {**options[one.row, one.column, one.variant], "seed": one.seed}
        current += [cell for cell in cells if one.is_of(cell) and cell["options"] == wanted][-1:]
    return current


def find_missing(
    experiment: Experiment, path: Path, seeds: int, *, again: bool = False
) -> list[Missing]:
    """Return the simulations that the file does not have with these options; `again`: all."""
    wanted = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        wanted.append((one, given, experiment.config(given)))
    return store.find_missing(wanted, read_cells(path), again=again)


def run_missing(
    experiment: Experiment, path: Path, missing: Sequence[Missing], workers: int
) -> Iterator[Missing]:
    """Run simulations; each is in the file before the next starts, and yielded before it is run.

    One that is interrupted is saved as far as it came, and resumes the next time.

    Raises
    ------
    RuntimeError
        If a simulation fails, or another process uses the same file.
    """
    running = path.with_name(f".{experiment.name}.running")
    with Store(path, f"experiment {experiment.name}", CELL_KEYS) as finished:
        for one in missing:
            yield one
            data = records_of(one.config)
            state = json.dumps([str(one.wanted), one.options, data, revision()])
            with unfinished_folder(running, state) as folder:
                finished.run(one, workers, partial(_run, experiment, one, folder, workers, data))


def _run(
    experiment: Experiment, one: Missing, folder: Path, workers: int, data: Mapping[str, Any]
) -> Cell:
    summary, ran = run_into(one, folder, workers, parts=_PARTS)
    methods = {run["strategy"]: numbers_of_run(run, folder) for run in summary["runs"]}
    if "formula" in experiment.measures:
        for name, numbers in methods.items():
            expected = expected_bytes(name, one.config, summary["config"]["num-clients"], folder)
            if expected is not None:
                numbers["formula-bytes"] = expected
    if variant := one.wanted.variant:
        methods = {variant: methods[one.config.strategy[0]]}
    left_out = {"left-out": found} if (found := summary.get("left_out")) else {}
    files = {"data": data} if data else {}
    return {**ran, **files, **left_out, "methods": methods}
