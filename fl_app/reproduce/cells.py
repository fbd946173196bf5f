"""Cells that are run once: their raw numbers, in a file that is written after each."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fl_app.config import Config
from fl_app.reproduce.code_state import state_of
from fl_app.reproduce.experiment import Experiment
from fl_app.reproduce.formula import expected_bytes
from fl_app.reproduce.kept import kept_of
from fl_core.files import replacing

Cell = dict[str, Any]
"""What is kept of one simulation: row, column, variant and seed; its options; state, of options and
code, and code alone; workers, seconds, versions and, by method, what `kept_of` says."""

_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")
_CELL_KEYS = {
    *("row", "column", "variant", "seed", "given", "state", "code", "workers"),
    *("seconds", "versions", "methods"),
}


@dataclass(frozen=True)
class Wanted:
    """A cell that an experiment asks for; its `variant` is empty where all share their options."""

    row: str
    column: str
    variant: str
    seed: int

    def is_of(self, cell: Cell) -> bool:
        """Return whether a cell is this one, whatever code made it."""
        return all(cell[name] == value for name, value in vars(self).items())

    def __str__(self) -> str:
        """Return it in words."""
        words = (self.row, self.column, self.variant, f"seed {self.seed}")
        return ", ".join(word for word in words if word)


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
            if not set(cell) >= _CELL_KEYS:
                raise ValueError("a cell lacks something")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold the numbers of an experiment ({error}): move it away."
        ) from error
    return cells


def write_cells(path: Path, cells: list[Cell]) -> None:
    """Write all cells, a line each, completely or not at all."""
    lines = ",\n".join(json.dumps(cell, allow_nan=False) for cell in cells)
    with replacing(path) as partial:
        partial.write_text(f'{{"cells": [\n{lines}\n]}}\n', encoding="utf-8")


@dataclass(frozen=True)
class Missing:
    """A simulation that is still to be run.

    Attributes
    ----------
    wanted : Wanted
    given : mapping
        The run-config keys that are not the defaults.
    config : Config
        All of them.
    outdated : bool
        Whether there is a finished one that other options or other code made.
    """

    wanted: Wanted
    given: Mapping[str, Any]
    config: Config
    outdated: bool


def current_cells(experiment: Experiment, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells that an experiment asks for, each once and in its order.

    Those that other options made are left out; whose code made them does not matter.
    """
    seeds = max((int(cell["seed"]) for cell in cells), default=-1) + 1
    found = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        found += [cell for cell in cells if one.is_of(cell) and cell["given"] == given][-1:]
    return found


def find_missing(experiment: Experiment, path: Path, seeds: int) -> list[Missing]:
    """Return the simulations that are not in the file, or were made by other options or code."""
    cells = read_cells(path)
    missing = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        config = experiment.config(given)
        there = [cell["state"] for cell in cells if one.is_of(cell)]
        if state_of(config)[0] not in there:
            missing.append(Missing(one, given, config, outdated=bool(there)))
    return missing


def run_missing(
    experiment: Experiment, path: Path, missing: Sequence[Missing], workers: int
) -> Iterator[Missing]:
    """Run simulations; each is in the file before the next begins, and yielded before it is run.

    Raises
    ------
    RuntimeError
        If a simulation fails, the code changes while one runs, or another process is at work on the
        same file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.stem}.lock"), timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        raise RuntimeError(
            f"another process runs the experiment {path.stem} for {path}: wait for it, or stop it."
        ) from None
    with held:
        for one in missing:
            yield one
            state, code = state_of(one.config)
            with _folder(path.with_name(f".{path.stem}.running")) as folder:
                with_formula = "formula" in experiment.measures
                ran = _run(one, folder, workers, with_formula=with_formula)
            if state_of(one.config)[0] != state:
                raise RuntimeError(
                    f"the code was changed while {one.wanted} ran: its numbers are left out; call "
                    "the command again."
                )
            if variant := one.wanted.variant:
                ran["methods"] = {variant: ran["methods"][one.config.strategy[0]]}
            fresh = {**vars(one.wanted), "given": dict(one.given), "state": state, "code": code}
            others = [cell for cell in read_cells(path) if not one.wanted.is_of(cell)]
            write_cells(path, [*others, {**fresh, "workers": workers, **ran}])


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """Make a folder and remove it afterwards; what a killed command left there goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path.resolve()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _run(one: Missing, folder: Path, workers: int, *, with_formula: bool) -> Cell:
    # Ray and torch are imported by neither --list nor --page.
    from fl_app.beforehand import PAPER_CLIENTS  # noqa: PLC0415
    from fl_app.superlink import simulate  # noqa: PLC0415

    clients = one.config.num_clients or PAPER_CLIENTS
    started = time.perf_counter()
    overrides = {**one.given, "num-clients": clients, "output-dir": str(folder)}
    if not simulate(None, overrides, num_clients=clients, workers=workers):
        raise RuntimeError(f"the simulation of {one.wanted} failed; what is finished is kept.")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    methods = {run["strategy"]: kept_of(run, folder) for run in summary["runs"]}
    if with_formula:
        for name, kept in methods.items():
            expected = expected_bytes(name, one.config, clients, folder)
            if expected is not None:
                kept["formula-bytes"] = expected
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "methods": methods,
    }
