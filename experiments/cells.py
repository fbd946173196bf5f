"""The cells of an experiment: all, the missing ones, and their runs."""

import json
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.data_files import records_of
from experiments.experiment_file import Experiment
from experiments.formula import expected_bytes
from fl_app.plan import RunFailedError, prepare
from fl_app.report.report_page import NO_REPORT_VARIABLE
from fl_app.results.layout import CHECKPOINTS, WHOLE
from fl_app.sweeps.run_numbers import numbers_of_run
from fl_app.sweeps.store import (
    Cell,
    Key,
    Simulation,
    identify_code,
    locked,
    read_cells,
    read_finished,
    replace_cell,
    revision,
)
from fl_core.files import replacing
from fl_core.models.checkpoint import load_checkpoint

ALL = "all"
"""In place of the names of strategies: all of a simulation."""

_CHECKPOINTS_PER_RUN = 8  # of a simulation, of which a kill costs the last one only
_STATE = ".state"


@dataclass(frozen=True)
class CellKey(Key):
    """The key of a cell; its `variant` is empty for the strategies that share their options."""

    row: str
    column: str
    variant: str
    seed: int

    def __str__(self) -> str:
        """Return the key as text."""
        words = (self.row, self.column, self.variant, f"seed {self.seed}")
        return ", ".join(word for word in words if word)


Simulated = Simulation[CellKey]


def all_cells(experiment: Experiment, seeds: int) -> list[CellKey]:
    """Return the keys of all cells, seed by seed, so that a table fills evenly."""
    return [
        CellKey(row, column, variant, seed)
        for seed in range(seeds)
        for row in experiment.rows
        for column in experiment.columns
        for variant in experiment.runs()
    ]


def simulations(experiment: Experiment, seeds: int) -> list[Simulated]:
    """Return the simulation of each cell."""
    return [
        Simulation.of(one, experiment.given(one.row, one.column, one.seed, one.variant))
        for one in all_cells(experiment, seeds)
    ]


def find_missing(
    experiment: Experiment, path: Path, seeds: int, *, again: Collection[str] = ()
) -> list[Simulated]:
    """Return the simulations that the file does not have with these options.

    And the finished ones of the strategies in `again`, with these alone (`ALL`: with all), unless
    today's code has run them again before.
    """
    cells = read_cells(path)
    missing = []
    for one in simulations(experiment, seeds):
        finished = [cell for cell in cells if one.is_in([cell])]
        if ALL in again or not finished:
            missing.append(one)
            continue
        done = [name for name, code in _revisions(finished[0]).items() if code == revision()]
        names = [name for name in one.config.strategy if name in again]
        if names := [name for name in names if (one.key.variant or name) not in done]:
            config = replace(one.config, strategy=tuple(names))
            given = {**one.given, "strategy": ",".join(names)}
            missing.append(replace(one, given=given, config=config))
    return missing


def current_cells(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that have the experiment's options, each once and in its order."""
    seeds = max((int(cell["seed"]) for cell in cells), default=-1) + 1
    options = {
        (one.key.row, one.key.column, one.key.variant): one.options
        for one in simulations(experiment, 1)
    }
    current = []
    for one in all_cells(experiment, seeds):
        options_of_seed = {**options[one.row, one.column, one.variant], "seed": one.seed}
        current += [
            cell for cell in cells if one.matches(cell) and cell["options"] == options_of_seed
        ][-1:]
    return current


def run_missing(
    experiment: Experiment, path: Path, missing: Sequence[Simulated], workers: int
) -> Iterator[Simulated]:
    """Run simulations; each is in the file before the next starts, and yielded before it is run.

    One that is interrupted is saved as far as it came, and resumes the next time.
    """
    running = path.with_name(f".{experiment.name}.running")
    with locked(path, f"experiment {experiment.name}"):
        for one in missing:
            yield one
            data = records_of(one.config)
            what = [str(one.key), one.config.strategy, one.options, data, identify_code(revision())]
            with unfinished_folder(running, json.dumps(what)) as folder:
                cell = _run(experiment, one, folder, workers) | ({"data": data} if data else {})
                finished = [old for old in read_cells(path) if one.is_in([old])]
                replace_cell(path, one.key, _merged(finished[0], cell) if finished else cell)


def _merged(old: Cell, new: Cell) -> Cell:
    """Return the new cell or, if it has some methods only, the old one with their numbers."""
    names = list(new["methods"])
    if set(names) >= set(old["methods"]):
        return new
    revisions = _revisions(old) | dict.fromkeys(names, new["revision"])
    return {**old, "methods": {**old["methods"], **new["methods"]}, "revisions": revisions}


def _revisions(cell: Cell) -> dict[str, str]:
    """Return which revision ran a method, for those that were run again alone."""
    return dict(cell.get("revisions", {}))


def _run(experiment: Experiment, one: Simulated, folder: Path, workers: int) -> Cell:
    summary, cell = run_into(one, folder, workers)
    methods = {run["strategy"]: numbers_of_run(run, folder) for run in summary["runs"]}
    if "formula" in experiment.measures:
        for name, numbers in methods.items():
            expected = expected_bytes(name, one.config, summary["config"]["num-clients"], folder)
            if expected is not None:
                numbers["formula-bytes"] = expected
    if variant := one.key.variant:
        methods = {variant: methods[one.config.strategy[0]]}
    left_out = {"left-out": found} if (found := summary.get("left_out")) else {}
    return {**cell, **left_out, "methods": methods}


def run_into(one: Simulated, folder: Path, workers: int) -> tuple[Mapping[str, Any], Cell]:
    """Run a simulation in a folder, from its last checkpoint there; return `read_finished` of it.

    It leaves a checkpoint after each eighth of its rounds.
    """
    started = time.perf_counter()
    options = {**one.given, "output-dir": str(folder)}
    if not one.config.secure_aggregation:  # which nothing resumes
        options["checkpoint-every"] = one.config.num_server_rounds // _CHECKPOINTS_PER_RUN
    checkpoints = list(folder.glob(f"{CHECKPOINTS}/{WHOLE}"))
    if checkpoints:
        options["resume"] = str(folder)
    else:  # its other files would be in the way
        _empty(folder)
    before = sum(float(load_checkpoint(path)["seconds"]) for path in checkpoints)
    plan = prepare(options, workers=workers)
    try:
        with _without_report():
            plan.run()
    except RunFailedError as error:
        raise RuntimeError(
            f"the simulation of {one.key} failed ({error}); the finished ones are stored."
        ) from error
    seconds = before + time.perf_counter() - started
    return read_finished(one, folder, workers, seconds, plan.gpus_per_client)


@contextmanager
def _without_report() -> Iterator[None]:
    """Let runs write no report page: one page shows all of them."""
    os.environ[NO_REPORT_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[NO_REPORT_VARIABLE]


@contextmanager
def unfinished_folder(path: Path, state: str) -> Iterator[Path]:
    """Make a folder that is removed once the block has ended, but not when it raises.

    What a stopped command left there stays if it was in the same state: what it is for, by which
    options and which revision.
    """
    mark = path / _STATE
    if not mark.is_file() or mark.read_text(encoding="utf-8") != state:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
        with replacing(mark) as partial:
            partial.write_text(state, encoding="utf-8")
    yield path.resolve()
    shutil.rmtree(path, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Remove all but the state file."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _STATE:
            path.unlink()
