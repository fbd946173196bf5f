"""Simulations that are run once: what is finished is in a file, which is written after each."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout

from fl_app.config.run_config import CHECKPOINTS, OPTIONS, WHOLE, Config
from fl_app.launch.preflight import check_training
from fl_app.studies.reproduce.code_state import PLACES, own_data, state_of
from fl_core.files import replacing

Cell = dict[str, Any]
"""What is kept of one simulation: which one it is; its options; state, of options and code, and
code alone; workers, seconds, versions, the GPU, if clients computed on one, and its numbers."""

KEYS = frozenset({"given", "state", "code", "workers", "seconds", "versions"})
"""What every cell has."""

_STATE = ".state"

_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")


@dataclass(frozen=True)
class Place:
    """Which simulation of several it is: a subclass has the fields that say so."""

    def is_of(self, cell: Cell) -> bool:
        """Return whether a cell is this one, whatever code made it."""
        return all(cell[name] == value for name, value in vars(self).items())


AnyPlace = TypeVar("AnyPlace", bound=Place)


@dataclass(frozen=True)
class Missing(Generic[AnyPlace]):
    """A simulation that is still to be run.

    Attributes
    ----------
    wanted : Place
    given : mapping
        The run-config keys that are not the defaults.
    config : Config
        All of them.
    outdated : bool
        Whether there is a finished one that other options or other code made.
    """

    wanted: AnyPlace
    given: Mapping[str, Any]
    config: Config
    outdated: bool


def read_numbers(path: Path, keys: Iterable[str]) -> list[Cell]:
    """Return the cells of a file of raw numbers; none if there is no such file.

    Raises
    ------
    ValueError
        If it is something else, or a cell lacks one of the keys.
    """
    if not path.is_file():
        return []
    try:
        cells: list[Cell] = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if not set(cell) >= KEYS.union(keys):
                raise ValueError("a cell lacks something")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold the numbers of an experiment ({error}): move it away."
        ) from error
    return cells


def write_numbers(path: Path, cells: Iterable[Cell]) -> None:
    """Write all cells, a line each, completely or not at all."""
    lines = ",\n".join(json.dumps(cell, allow_nan=False) for cell in cells)
    with replacing(path) as partial:
        partial.write_text(f'{{"cells": [\n{lines}\n]}}\n', encoding="utf-8")


def missing_of(
    wanted: Iterable[tuple[AnyPlace, Mapping[str, Any], Config]],
    cells: Sequence[Cell],
    *,
    any_code: bool = False,
) -> list[Missing[AnyPlace]]:
    """Return those that are not among the cells, or were made by other options, code or data.

    `any_code`: code does not matter, but options do, as they are given: a default is code.
    """
    missing = []
    for one, given, config in wanted:
        there = [cell for cell in cells if one.is_of(cell)]
        same = [cell["state"] for cell in there if has_options(cell, given)]
        if not same or not (any_code or state_of(config)[0] in same):
            missing.append(Missing(one, given, config, outdated=bool(there)))
    return missing


def has_options(cell: Cell, given: Mapping[str, Any]) -> bool:
    """Return whether a cell was made by these options, wherever its files were."""
    return _that_count(cell["given"]) == _that_count(given)


def _that_count(given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is at its default or decides nothing."""
    counts = {
        key: value
        for key, value in given.items()
        if key not in PLACES and not (key in OPTIONS and OPTIONS[key].default == value)
    }
    return counts | own_data(given)


def check_all(wanted: Iterable[tuple[Place, Config]], folder: Path) -> None:
    """Refuse what `fedkin run` would refuse of any simulation, and say which one.

    Parameters
    ----------
    folder : Path
        Where all of them go.

    Raises
    ------
    ValueError, MissingExtraError, OSError
        As `fl_app.launch.preflight.check_training`.
    """
    for one, config in wanted:
        try:
            check_training(config, folder)
        except ValueError as error:
            raise ValueError(f"{one}: {error}") from error


class Keeper:
    """The file of raw numbers while simulations are run: no other process writes to it.

    Raises
    ------
    RuntimeError
        On entering, if another process is at work on the same file.
    """

    def __init__(self, path: Path, what: str, keys: Iterable[str]) -> None:
        self._path, self._what, self._keys = path, what, tuple(keys)
        self._file = FileLock(path.with_name(f".{path.stem}.lock"), timeout=0)
        self._writing = Lock()

    def __enter__(self) -> Keeper:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._file.acquire()
        except Timeout:
            raise RuntimeError(
                f"another process runs the {self._what} for {self._path}: wait for it, or stop it."
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.release()

    def keep(self, one: Missing[Any], workers: int, run: Callable[[], Cell]) -> Cell:
        """Run a simulation, write its cell in the place of an older one, and return it.

        Several threads may do so at once.

        Raises
        ------
        RuntimeError
            If it fails, or the code changes while it runs.
        """
        state, code = state_of(one.config)
        ran = run()
        if state_of(one.config)[0] != state:
            raise RuntimeError(
                f"the code was changed while {one.wanted} ran: its numbers are left out; call "
                "the command again."
            )
        fresh = {**vars(one.wanted), "given": dict(one.given), "state": state, "code": code}
        cell = {**fresh, "workers": workers, **ran}
        with self._writing:
            write_numbers(self._path, [*self._others(one), cell])
        return cell

    def drop(self, one: Missing[Any]) -> None:
        """Forget an older cell of a simulation, before what it left is deleted."""
        with self._writing:
            write_numbers(self._path, self._others(one))

    def _others(self, one: Missing[Any]) -> list[Cell]:
        cells = read_numbers(self._path, self._keys)
        return [cell for cell in cells if not one.wanted.is_of(cell)]


@contextmanager
def unfinished_folder(path: Path, state: str) -> Iterator[Path]:
    """Make a folder that is removed once the block has ended, but not when it raises.

    What a stopped command left there stays if it was in the same state: what it is for, and by
    which options and code.
    """
    mark = path / _STATE
    if not mark.is_file() or mark.read_text(encoding="utf-8") != state:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
        with replacing(mark) as partial:
            partial.write_text(state, encoding="utf-8")
    yield path.resolve()
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def empty_folder(path: Path) -> Iterator[Path]:
    """Make a folder and remove it afterwards; what a killed command left there goes first."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True, mode=0o700)
    try:
        yield path.resolve()
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _empty(folder: Path) -> None:
    """Remove all but the mark of what the folder is for."""
    for path in folder.iterdir():
        if path.name == _STATE:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def worked_seconds(checkpoint: Mapping[str, Any]) -> float:
    """Return the seconds of a strategy so far, without those of a training that it took over."""
    saved, seconds = checkpoint["strategy"], float(checkpoint["seconds"])
    spent = saved["seconds"]
    return seconds - (spent["train"] + spent["evaluate"] if saved["same-as"] else 0.0)


def run_into(
    one: Missing[Any], folder: Path, workers: int, trainings: Path, *, parts: int = 0, **how: Any
) -> tuple[Any, Cell]:
    """Run a simulation; return its summary.json, and what is kept of any simulation.

    Parameters
    ----------
    folder : Path
        For its results.
    workers : int
        Ray's; 0: in this process, without any.
    trainings : Path
        Where it finds what others have trained, and leaves what it trains.
    parts : int
        How many checkpoints it leaves, where it has as many rounds; one that was interrupted in
        this folder goes on from its last. 0: none.
    **how
        What else `fl_app.launch.superlink.simulate` takes.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    # Ray and torch are imported by neither --list nor --page.
    from clients.accelerator import gpu_name  # noqa: PLC0415
    from fl_app.launch.superlink import simulate  # noqa: PLC0415
    from fl_app.report.html.report_page import NO_REPORT  # noqa: PLC0415
    from fl_app.run.kept_trainings import FOLDER  # noqa: PLC0415
    from fl_app.studies.in_process import simulate_in_process  # noqa: PLC0415
    from fl_core.models.checkpoint import load_checkpoint  # noqa: PLC0415

    clients = one.config.simulated_clients
    started = time.perf_counter()
    overrides = {**one.given, "num-clients": clients, "output-dir": str(folder)}
    before = 0.0
    if parts:
        if not one.config.secure_aggregation:  # which nothing resumes
            overrides["checkpoint-every"] = one.config.num_server_rounds // parts
        if checkpoints := list(folder.glob(f"{CHECKPOINTS}/{WHOLE}")):
            overrides["resume"] = str(folder)
        else:  # what it left cannot go on, and would be in the way
            _empty(folder)
        before = sum(worked_seconds(load_checkpoint(path)) for path in checkpoints)
    # One page shows them all.
    settings = {NO_REPORT: "1", FOLDER: str(trainings)}
    failed = f"the simulation of {one.wanted} failed; what is finished is kept"
    if not workers:
        try:
            simulate_in_process(overrides, clients, settings)
        except Exception as error:
            raise RuntimeError(f"{failed}: {error}") from error
    elif not simulate(
        None, overrides, num_clients=clients, workers=workers, settings=settings, **how
    ):
        raise RuntimeError(f"{failed}.")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    gpu = None if how.get("gpus_per_client") == 0 else gpu_name(one.config.device)
    return summary, {
        "seconds": round(before + time.perf_counter() - started, 1),
        **({"gpu": gpu} if gpu else {}),
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
    }
