"""Cells that are run once: their raw numbers, in a file that is written after each."""

from __future__ import annotations

import csv
import json
import platform
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.config import Config
from fl_app.reproduce.code_state import state_of
from fl_app.reproduce.experiment import Experiment
from fl_app.reproduce.formula import expected_bytes
from fl_core.files import replacing

Cell = dict[str, Any]
"""What is kept of one simulation: row, column, variant and seed; state, of options and code, and
code alone; seconds, versions and, by method, what `_kept` says."""

_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")
_KEPT = (
    *("accuracy", "accuracy-variance", "accuracy-per-client", "ari", "clusters", "tasks"),
    *("malicious", "malicious-isolated", "bytes", "seconds", "failures"),
)
_CELL_KEYS = {"row", "column", "variant", "seed", "state", "code", "methods"}
_DIGITS = 6  # of raw numbers: a test of 10,000 images has five


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
    """A simulation that is still to be run, with its options.

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


def find_missing(experiment: Experiment, path: Path, seeds: int) -> list[Missing]:
    """Return the simulations that are not in the file, or were made by other options or code."""
    cells = read_cells(path)
    missing = []
    for one in wanted_cells(experiment, seeds):
        given = experiment.given(one.row, one.column, one.seed, one.variant)
        config = experiment.config(given)
        state = state_of(given, config.strategy)
        there = [cell["state"] for cell in cells if one.is_of(cell)]
        if state not in there:
            missing.append(Missing(one, given, config, outdated=bool(there)))
    return missing


def run_missing(
    experiment: Experiment, path: Path, missing: Sequence[Missing], workers: int
) -> Iterator[Missing]:
    """Run simulations; each is in the file before the next begins, and yielded before it is run.

    Raises
    ------
    RuntimeError
        If a simulation fails.
    """
    for one in missing:
        yield one
        strategies = one.config.strategy
        state, code = state_of(one.given, strategies), state_of({}, strategies)
        with_formula = "formula" in experiment.measures
        ran = _run(one.given, one.config, workers, with_formula=with_formula)
        if variant := one.wanted.variant:
            ran["methods"] = {variant: ran["methods"][strategies[0]]}
        fresh = {**vars(one.wanted), "state": state, "code": code, **ran}
        # Read again: another process may be at work on other seeds.
        others = [cell for cell in read_cells(path) if not one.wanted.is_of(cell)]
        write_cells(path, [*others, fresh])


def _run(given: Mapping[str, Any], config: Config, workers: int, *, with_formula: bool) -> Cell:
    # Ray and torch are imported by neither --list nor --page.
    from fl_app.cli import PAPER_CLIENTS  # noqa: PLC0415
    from fl_app.superlink import simulate  # noqa: PLC0415

    clients = config.num_clients or PAPER_CLIENTS
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fedkin-cell-") as text:
        folder = Path(text)
        overrides = {**given, "num-clients": clients, "output-dir": text}
        if not simulate(None, overrides, num_clients=clients, workers=workers):
            raise RuntimeError("the simulation failed; what is finished is kept.")
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        methods = {run["strategy"]: _kept(run, folder) for run in summary["runs"]}
        if with_formula:
            for name, kept in methods.items():
                kept["formula-bytes"] = expected_bytes(name, config, clients, folder)
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "methods": methods,
    }


def _kept(run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what is kept of one strategy: its summary, its rounds, its relevance by tasks."""
    kept = {name: _short(run[name]) for name in _KEPT if run.get(name) not in (None, {})}
    found = kept | {"rounds": _rounds(run["strategy"], folder)}
    similarity = folder / f"similarity-{run['strategy']}-seed-{run['seed']}.npz"
    if similarity.is_file() and "tasks" in run:
        with np.load(similarity, allow_pickle=False) as arrays:
            tasks = np.array(run["tasks"])[arrays["clients"]]
            found["similarity-per-task"] = _short(task_means(arrays["similarity"], tasks))
    return found


def task_means(similarity: NDArray[np.float64], tasks: NDArray[np.int64]) -> list[Any]:
    """Return the mean similarity of two different clients of each two tasks, by task.

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (n, n)
    tasks : NDArray[np.int64], shape (n,)

    Returns
    -------
    list of lists, shape (T, T)
        None for a task that has one client only, beside itself.
    """
    others = ~np.eye(len(tasks), dtype=bool)
    sides = [tasks == task for task in range(int(tasks.max()) + 1)]
    pairs = [[similarity[np.outer(a, b) & others] for b in sides] for a in sides]
    return [[float(p.mean()) if p.size else None for p in line] for line in pairs]


def _rounds(strategy: str, folder: Path) -> dict[str, Any]:
    """Return, by round, accuracy, its variance over clients, ARI and bytes, and it by task."""
    rounds: dict[str, Any] = {}
    names = ("accuracy", "accuracy-variance", "ari", "bytes")
    for line in _lines(folder / "metrics.csv", strategy):
        known = {name: float(line[name]) for name in names if line.get(name)}
        rounds[line["round"]] = _short(known)
    of_task: dict[tuple[str, str], list[float]] = {}
    for line in _lines(folder / "clients.csv", strategy):
        if line["accuracy"] and line["task"]:
            of_task.setdefault((line["round"], line["task"]), []).append(float(line["accuracy"]))
    for (number, task), values in of_task.items():
        means = rounds[number].setdefault("accuracy-per-task", {})
        means[task] = _short(sum(values) / len(values))
    return rounds


def _lines(path: Path, strategy: str) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from (line for line in csv.DictReader(file) if line["strategy"] == strategy)


def _short(value: Any) -> Any:
    """Return a value with fewer digits."""
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return round(value, _DIGITS) if isinstance(value, float) else value
