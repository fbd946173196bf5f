"""Run the simulations of a sweep, several at a time; a kill loses those that are under way."""

from __future__ import annotations

import hashlib
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

from fl_app.config.allowed_code import named_at_clients
from fl_app.config.run_config import Config
from fl_app.launch.processes import end_commands
from fl_app.launch.resources import gpus_per_client
from fl_app.studies.sweeps import store
from fl_app.studies.sweeps.plan import Point, Sweep
from fl_app.studies.sweeps.run_numbers import numbers_of_run
from fl_app.studies.sweeps.store import Cell, Store, read_cells, resolved_options, run_into
from fl_core.data.settings import IN_DATA_DIR
from fl_core.metrics import metrics_in
from fl_core.options import Scalar
from fl_core.own_code import is_own, own_files
from fl_core.text import clock
from strategies.catalogue import system_of
from strategies.parts import is_ours

NUMBERS = "sweep.json"
CELLS = "cells"
LOG = "log.txt"
KEYS = ("cell", "values", "runs")
_FAILURES = (RuntimeError, ValueError, OSError)
_QUIET_SECONDS = 10.0  # between two lines of one simulation's progress

Missing = store.Missing[Point]
Say = Callable[[str], None]


def default_processes(cells: int) -> int:
    """Return how many simulations run at a time: one for each CPU, each with one worker.

    The start of a simulation, and its server, use one CPU.
    """
    return max(1, min(cells, os.cpu_count() or 1))


def workers_of(processes: int) -> int:
    """Return how many Ray workers each of several simulations has, so that CPUs are shared."""
    return max(1, (os.cpu_count() or 1) // processes)


def finished_cells(sweep: Sweep, folder: Path) -> list[Cell]:
    """Return the sweep's finished simulations, in order; those with other options are left out."""
    cells = _there(folder)
    return [
        cell
        for point, _, config in sweep.cells
        for cell in cells
        if point.is_of(cell) and cell["options"] == options_of_point(config)
    ]


def options_of_point(config: Config) -> dict[str, Scalar]:
    """Return what identifies a simulation: its options, and a user's own code and data."""
    return resolved_options(config) | _user_checksum(config)


def _user_checksum(config: Config) -> dict[str, str]:
    """Return a checksum of the user-defined code and data that a simulation reads, if any."""
    parts = {part for name in config.strategy for part in system_of(name).parts}
    named = {part.__module__ for part in parts if not is_ours(part)}
    named |= {*named_at_clients(config).values()}
    digest = hashlib.sha256()
    for path in sorted({path for name in named for path in own_files(name)}):
        digest.update(path.name.encode() + path.read_bytes())
    has_data = is_own(config.dataset) or config.dataset in IN_DATA_DIR
    if has_data:
        from fl_core.data.datasets import own_checksum  # noqa: PLC0415 - PyTorch takes a second

        digest.update(own_checksum(config.dataset, config.data_dir).encode())
    return {"user-checksum": digest.hexdigest()} if named or has_data else {}


def find_missing(sweep: Sweep, folder: Path, *, again: bool = False) -> list[Missing]:
    """Return the simulations that are not finished with these options; `again`: all of them.

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
    return store.find_missing(sweep.cells, _there(folder), more=_user_checksum, again=again)


def _there(folder: Path) -> list[Cell]:
    """Return the finished simulations whose results are still there."""
    cells = read_cells(folder / NUMBERS, KEYS)
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
    with Store(folder / NUMBERS, "sweep", KEYS) as finished:
        return _Crew(missing, folder, say, finished, workers).work(processes)


class _Crew:
    """Threads that each start one simulation after another; this one speaks, and stops them."""

    def __init__(
        self,
        missing: Sequence[Missing],
        folder: Path,
        say: Say,
        finished: Store,
        workers: int,
    ) -> None:
        self._folder, self._say, self._finished, self._workers = folder, say, finished, workers
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
        self._finished.drop(one)  # or it would count as finished again with its first strategy
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
                    summary, ran = run_into(one, place, self._workers, **how)
                    names = ("strategy", "seed")
                    runs = [
                        {**{key: run[key] for key in names}, **numbers_of_run(run, results)}
                        for run in summary["runs"]
                    ]
                    return {**ran, "runs": runs}

                try:
                    return self._finished.run(one, self._workers, run)
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
