"""Run the simulations of a sweep, several at a time."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fl_app.config.allowed_code import client_code_paths
from fl_app.config.run_config import Config
from fl_app.report.report_page import NO_REPORT_VARIABLE
from fl_app.results.layout import CELLS, CHECKPOINTS, LOG, SUMMARY
from fl_app.simulation.resources import gpus_per_client
from fl_app.sweeps.plan import Point, Sweep
from fl_app.sweeps.run_numbers import numbers_of_run
from fl_app.sweeps.store import (
    Cell,
    Simulation,
    locked,
    read_cells,
    read_finished,
    replace_cell,
    resolved_options,
    resumable,
)
from fl_core.data.settings import IN_DATA_DIR
from fl_core.metrics import metrics_in
from fl_core.options import Scalar, key_values
from fl_core.text import clock
from fl_core.user_code import is_import_path, user_code_files
from strategies.catalogue import system_of
from strategies.validation import is_ours

NUMBERS = "sweep.json"
_FAILURES = (RuntimeError, ValueError, OSError)
_POLL_SECONDS = 0.1
_QUIET_SECONDS = 10.0  # between two lines of one simulation's progress

Say = Callable[[str], None]


def default_processes(cells: int) -> int:
    """Return the default number of simulations at a time: one for each CPU."""
    return max(1, min(cells, os.cpu_count() or 1))


def workers_of(processes: int) -> int:
    """Return the number of Ray workers of each simulation; 0 if it has one CPU."""
    workers = (os.cpu_count() or 1) // processes
    return workers if workers > 1 else 0


def finished_cells(sweep: Sweep, folder: Path) -> list[Cell]:
    """Return the sweep's finished simulations, in order, without those with other options."""
    cells = stored_cells(folder)
    return [cell for one in sweep.simulations for cell in cells if one.is_in([cell])]


def with_checksums(sweep: Sweep) -> Sweep:
    """Return a sweep whose simulations are identified by user-defined code and data, too."""
    simulations = [
        replace(one, options=identifying_options(one.config)) for one in sweep.simulations
    ]
    return replace(sweep, simulations=simulations)


def identifying_options(config: Config) -> dict[str, Scalar]:
    """Return the options of a simulation, and a checksum of user-defined code and data, if any."""
    parts = {part for name in config.strategy for part in system_of(name).parts}
    named = {part.__module__ for part in parts if not is_ours(part)}
    named |= {*client_code_paths(config)}
    digest = hashlib.sha256()
    for path in sorted({path for name in named for path in user_code_files(name)}):
        digest.update(path.name.encode() + path.read_bytes())
    has_data = is_import_path(config.dataset) or config.dataset in IN_DATA_DIR
    if has_data:
        from fl_core.data.datasets import user_data_checksum  # noqa: PLC0415 - PyTorch takes a second

        digest.update(user_data_checksum(config.dataset, config.data_dir).encode())
    checksum = {"user-checksum": digest.hexdigest()} if named or has_data else {}
    return resolved_options(config) | checksum


def stored_cells(folder: Path) -> list[Cell]:
    """Return the finished simulations that still have their results, with any options."""
    if folder.is_dir() and not (folder / NUMBERS).is_file():
        others = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if others and others != [CELLS]:
            raise ValueError(
                f"--output is {folder}, but it holds {sorted(others)[0]} and no sweep: name "
                "another folder."
            )
    cells = read_cells(folder / NUMBERS)
    return [cell for cell in cells if (folder / CELLS / cell["cell"] / SUMMARY).is_file()]


def run_missing(
    missing: Sequence[Simulation[Point]], folder: Path, say: Say, *, processes: int, workers: int
) -> dict[str, str]:
    """Run simulations, and return the reasons of those that failed, by name.

    So many `processes` run at a time, each a `fedkin run` with so many Ray workers (0: without
    Ray) and a folder in the sweep's. One that was interrupted resumes from its last checkpoint.
    """
    started, failures = time.monotonic(), dict[str, str]()
    waiting, running = deque(enumerate(missing, 1)), list[_Running]()
    numbers = folder / NUMBERS
    with locked(numbers, "sweep"):
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    number, one = waiting.popleft()
                    name = f"[{number}/{len(missing)}] {one.key}"
                    replace_cell(numbers, one.key)  # its older results are deleted below
                    say(f"{name}: starts")
                    gpus = gpus_per_client(one.config.device, max(1, workers) * processes, None)
                    results = (folder / CELLS / one.key.cell).absolute()
                    running.append(_Running(name, one, results, workers, gpus))
                for ended in [one for one in running if one.process.poll() is not None]:
                    running.remove(ended)
                    left = len(waiting) + len(running)
                    try:
                        cell = ended.cell()
                    except _FAILURES as error:
                        failures[ended.one.key.cell] = str(error)
                        say(f"{ended.name}: failed, {error}")
                    else:
                        replace_cell(numbers, ended.one.key, cell)
                        per_cell = (time.monotonic() - started) / (len(missing) - left)
                        say(
                            f"{ended.name}: {_describe_scores(cell)}, after "
                            f"{clock(ended.seconds)}; {left} left, {clock(per_cell * left)} or so"
                        )
                for simulation in running:
                    if line := simulation.progress_line():
                        say(f"{simulation.name}: {line}")
                time.sleep(_POLL_SECONDS)
        finally:
            for simulation in running:
                simulation.process.terminate()  # which it answers as Ctrl-C
            for simulation in running:
                simulation.process.wait()
    return failures


class _Running:
    """A simulation in a separate process, with its log in its folder."""

    def __init__(
        self, name: str, one: Simulation[Point], folder: Path, workers: int, gpus: float | None
    ) -> None:
        self.name, self.one, self._folder = name, resumable(one, folder), folder
        self._workers, self._gpus = workers, gpus
        self._started = self._looked = time.monotonic()
        self.process = start_simulation(self.one, folder, workers, gpus)

    @property
    def seconds(self) -> float:
        """Return the seconds since its start."""
        return time.monotonic() - self._started

    def progress_line(self) -> str:
        """Return its last line of progress, at most every ten seconds."""
        if time.monotonic() - self._looked < _QUIET_SECONDS:
            return ""
        self._looked = time.monotonic()
        return " ".join(self._last_line(" elapsed, ").split())

    def cell(self) -> Cell:
        """Return its cell; a RuntimeError says why it failed."""
        if self.process.returncode:
            reason = self._last_line("^error: ").removeprefix("error: ")
            raise RuntimeError(reason or f"see {self._folder / LOG}")
        found = read_finished(self.one, self._folder, self._workers, self.seconds, self._gpus)
        summary, cell = found
        runs = [
            {"strategy": run["strategy"], "seed": run["seed"]} | numbers_of_run(run, self._folder)
            for run in summary["runs"]
        ]
        shutil.rmtree(self._folder / CHECKPOINTS, ignore_errors=True)
        return {**cell, "runs": runs}

    def _last_line(self, pattern: str) -> str:
        """Return the last line of its log that a pattern matches, or an empty text."""
        text = (self._folder / LOG).read_text(encoding="utf-8", errors="replace")
        return next((line for line in reversed(text.splitlines()) if re.search(pattern, line)), "")


def start_simulation(
    one: Simulation[Point], folder: Path, workers: int, gpus: float | None
) -> subprocess.Popen[bytes]:
    """Start `fedkin run` for a simulation; it ends with this process."""
    words = [*key_values(one.given), "--quiet", "--workers", str(workers)]
    if gpus and workers:
        words += ["--gpus-per-client", str(gpus)]
    # -P: a module in the working folder may have the name of one of these packages.
    command = [sys.executable, "-P", "-m", "fl_app.sweeps.simulation", str(os.getpid())]
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            [*command, "run", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, NO_REPORT_VARIABLE: "1"},  # one page shows all of them
            start_new_session=True,  # this process handles Ctrl-C, and ends it
        )


def _describe_scores(cell: Mapping[str, list[Cell]]) -> str:
    """Return the mean score of each strategy as text."""
    metric = metrics_in({key for run in cell["runs"] for key in run}).main
    what = "" if metric.is_share else f"{metric.title} "
    found: dict[str, list[float]] = {}
    for run in cell["runs"]:
        found.setdefault(run["strategy"], []).append(run.get(metric.name, float("nan")))
    return ", ".join(
        f"{name} {what}{metric.with_unit(sum(v) / len(v))}" for name, v in found.items()
    )
