"""Run the simulations of a sweep, several at a time; a kill loses those that are under way."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, TextIO

from fl_app.launch.processes import end_commands
from fl_app.launch.resources import gpus_per_client
from fl_app.studies.reproduce import keeping
from fl_app.studies.reproduce.code_state import state_of
from fl_app.studies.reproduce.keeping import (
    Cell,
    Keeper,
    empty_folder,
    has_options,
    missing_of,
    read_numbers,
    run_into,
)
from fl_app.studies.reproduce.kept import kept_of
from fl_app.studies.sweeps.plan import Point, Sweep
from fl_core.metrics import metrics_in
from fl_core.text import clock

NUMBERS = "sweep.json"
CELLS = "cells"
TRAININGS = ".trainings"  # while it runs
LOG = "log.txt"
KEYS = ("cell", "values", "runs")
_FAILURES = (RuntimeError, ValueError, OSError)
_QUIET_SECONDS = 10.0  # between two lines of one simulation's progress

Missing = keeping.Missing[Point]
Say = Callable[[str], None]


def default_processes(cells: int) -> int:
    """Return how many simulations run at a time: one for each CPU, each with one worker.

    The start of a simulation, and its server, use one CPU: docs/sweeps.md has the measurement.
    """
    return max(1, min(cells, os.cpu_count() or 1))


def workers_of(processes: int) -> int:
    """Return how many Ray workers each of several simulations has, so that CPUs are shared."""
    return max(1, (os.cpu_count() or 1) // processes)


def finished_cells(sweep: Sweep, folder: Path) -> list[Cell]:
    """Return the sweep's kept simulations, in order; older options' are left out."""
    cells = _there(folder)
    return [
        cell
        for point, given, _ in sweep.cells
        for cell in cells
        if point.is_of(cell) and has_options(cell, given)
    ]


def find_missing(sweep: Sweep, folder: Path) -> list[Missing]:
    """Return the simulations that are not finished, or were made by other options, code or data.

    Raises
    ------
    ValueError
        If the folder holds something that is no sweep.
    """
    if folder.is_dir() and not (folder / NUMBERS).is_file():
        others = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if others and others != [CELLS]:
            raise ValueError(
                f"output is {folder}, which holds no sweep but {sorted(others)[0]}: name another "
                "folder."
            )
    return missing_of(sweep.cells, _there(folder))


def _there(folder: Path) -> list[Cell]:
    """Return the kept simulations whose results are still there."""
    cells = read_numbers(folder / NUMBERS, KEYS)
    return [cell for cell in cells if (folder / CELLS / cell["cell"] / "summary.json").is_file()]


def run_missing(
    missing: Sequence[Missing], folder: Path, say: Say, *, processes: int, workers: int
) -> dict[str, str]:
    """Run simulations; return why some failed, by name: the others are run nevertheless.

    Parameters
    ----------
    folder : Path
        The sweep's. Each simulation has its results in a folder of its own below it.
    say : callable
        Is given lines about the progress.
    processes : int
        How many simulations at a time.
    workers : int
        Ray's, of each simulation.

    Raises
    ------
    RuntimeError
        If another process is at work in the same folder.
    """
    place = folder / TRAININGS
    with Keeper(folder / NUMBERS, "sweep", KEYS) as keeper, empty_folder(place) as trainings:
        return _Crew(missing, folder, say, keeper, workers, trainings).work(processes)


class _Crew:
    """Threads that each start one simulation after another; this one speaks, and stops them."""

    def __init__(
        self,
        missing: Sequence[Missing],
        folder: Path,
        say: Say,
        keeper: Keeper,
        workers: int,
        trainings: Path,
    ) -> None:
        self._folder, self._say, self._keeper, self._workers = folder, say, keeper, workers
        self._trainings = trainings
        self._todo: SimpleQueue[tuple[str, Missing]] = SimpleQueue()
        for number, one in enumerate(missing, 1):
            self._todo.put((f"[{number}/{len(missing)}] {one.wanted}", one))
        self._count = len(missing)
        self._news: SimpleQueue[tuple[str, str | BaseException, Missing | None]] = SimpleQueue()
        self._stopped = Event()
        self._homes: set[Path] = set()

    def work(self, processes: int) -> dict[str, str]:
        count = min(processes, self._count)
        # Daemons: whoever interrupts twice need not wait for them, and their guards end the rest.
        threads = [Thread(target=self._run_some, args=(count,), daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            return self._tell()
        finally:
            self._stopped.set()
            while alive := [thread for thread in threads if thread.is_alive()]:
                for home in list(self._homes):
                    end_commands(home)
                alive[0].join(timeout=1)

    def _tell(self) -> dict[str, str]:
        """Say what happens until all simulations have ended; return why some failed."""
        started, ended = time.monotonic(), 0
        failures: dict[str, str] = {}
        while ended < self._count:
            name, news, one = self._news.get()
            if one is None:
                self._say(f"{name}: {news}")
                continue
            ended += 1
            if isinstance(news, str):
                left = (time.monotonic() - started) / ended * (self._count - ended)
                self._say(f"{name}: {news}; {self._count - ended} left, {clock(left)} or so")
            elif isinstance(news, _FAILURES):
                failures[one.wanted.cell] = str(news)
                self._say(f"{name}: failed, {news}")
            else:
                raise news
        return failures

    def _run_some(self, processes: int) -> None:
        with suppress(Empty):
            while not self._stopped.is_set():
                name, one = self._todo.get_nowait()
                self._news.put((name, "begins", None))
                started = time.monotonic()
                try:
                    cell = self._run(name, one, processes)
                except BaseException as error:
                    self._news.put((name, error, one))
                    if not isinstance(error, _FAILURES):
                        return
                else:
                    seconds = time.monotonic() - started
                    found = f"{_scores(cell)}, after {clock(seconds)}"
                    self._news.put((name, found, one))

    def _run(self, name: str, one: Missing, processes: int) -> Cell:
        results = self._folder / CELLS / one.wanted.cell
        self._keeper.drop(one)  # or it would count as finished again with its first strategy
        shutil.rmtree(results, ignore_errors=True)  # what a kill, or other options, left there
        results.mkdir(parents=True, mode=0o700)
        gpus = gpus_per_client(one.config.device, self._workers * processes, None)
        home = Path(tempfile.mkdtemp(prefix="fedkin-"))
        self._homes.add(home)
        try:
            with (results / LOG).open("w", encoding="utf-8") as file:
                log = _Log(file, lambda line: self._news.put((name, line, None)))

                def run() -> Cell:
                    how: dict[str, Any] = {"home": home, "gpus_per_client": gpus, "show": log.take}
                    place = results.absolute()
                    # Those of other code, if it is changed on the way, are no use.
                    trainings = self._trainings / state_of(one.config)[1]
                    summary, ran = run_into(one, place, self._workers, trainings, **how)
                    names = ("strategy", "seed")
                    runs = [
                        {**{key: run[key] for key in names}, **kept_of(run, results)}
                        for run in summary["runs"]
                    ]
                    return {**ran, "runs": runs}

                try:
                    return self._keeper.keep(one, self._workers, run)
                except RuntimeError as error:
                    raise RuntimeError(log.error or f"{error} See {results / LOG}.") from error
        finally:
            self._homes.discard(home)
            shutil.rmtree(home, ignore_errors=True)


class _Log:
    """A simulation's log: all of it goes to a file, a round now and then to whoever looks."""

    def __init__(self, file: TextIO, tell: Say) -> None:
        self._file, self._tell = file, tell
        self._told = time.monotonic()
        self.error = ""

    def take(self, line: str) -> None:
        """Take a line."""
        self._file.write(line)
        self._file.flush()
        if line.startswith("error: "):
            self.error = line.removeprefix("error: ").strip()
        if " elapsed, " in line and time.monotonic() - self._told > _QUIET_SECONDS:
            self._told = time.monotonic()
            self._tell(" ".join(line.split()))


def _scores(cell: Mapping[str, list[Cell]]) -> str:
    """Return the mean score of each strategy in words."""
    metric = metrics_in({key for run in cell["runs"] for key in run}).main
    what = "" if metric.is_share else f"{metric.title} "
    found: dict[str, list[float]] = {}
    for run in cell["runs"]:
        found.setdefault(run["strategy"], []).append(run.get(metric.name, float("nan")))
    return ", ".join(
        f"{name} {what}{metric.with_sign(sum(v) / len(v))}" for name, v in found.items()
    )
