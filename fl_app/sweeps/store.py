"""Finished simulations in one file: each has its options and its numbers, and is run once."""

from __future__ import annotations

import json
import lzma
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout

from fl_app.config.run_config import Config
from fl_app.results.layout import CHECKPOINTS, SUMMARY, WHOLE
from fl_app.simulation.preflight import check_run, check_trains
from fl_core.data.folders import resolve_data_dir
from fl_core.data.settings import IN_DATA_DIR
from fl_core.files import replacing
from fl_core.options import Scalar, options_of
from strategies.catalogue import system_of

Cell = dict[str, Any]
"""One simulation: which one it is, `options`, `revision`, `workers`, `seconds`, `versions`, `gpu`
if clients computed on one, and its numbers."""

KEYS = frozenset({"options", "revision", "workers", "seconds", "versions"})
"""What every cell has."""

PLACES = frozenset({"output-dir", "data-dir", "figure-format"})
"""Options that change no number; see `local_data` for the exception."""

_STATE = ".state"
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")


@dataclass(frozen=True)
class Place:
    """Which simulation of several it is: a subclass has the fields that say so."""

    def is_of(self, cell: Cell) -> bool:
        """Return whether a cell is this one, whatever its options."""
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
    options : mapping
        What identifies it: see `resolved_options`.
    outdated : bool
        Whether there is a finished one with other options, or one that shall run again.
    """

    wanted: AnyPlace
    given: Mapping[str, Any]
    config: Config
    options: Mapping[str, Scalar]
    outdated: bool


def resolved_options(config: Config) -> dict[str, Scalar]:
    """Return the value of every option that the compared strategies read, defaults included.

    Two simulations with the same options have the same numbers, but for changes of the code.
    """
    parts = {part for name in config.strategy for part in system_of(name).parts}
    used = {key for part in parts for key in options_of(part)} | set(options_of(Config))
    values = config.as_run_config()
    options = {key: value for key, value in values.items() if key in used - PLACES}
    return options | local_data(values)


def local_data(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the folder that run-config values name, if it is the data; otherwise nothing."""
    if values.get("dataset") not in IN_DATA_DIR:
        return {}
    return {"data-dir": str(resolve_data_dir(str(values.get("data-dir", ""))).resolve())}


@cache
def revision() -> str:
    """Return the git revision of fedkin's sources, with "-dirty" if changed; empty outside git."""
    git = shutil.which("git")
    if git is None or not (_ROOT / ".git").exists():
        return ""
    command = [git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    found = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def read_cells(path: Path, keys: Iterable[str]) -> list[Cell]:
    """Return the cells of a file; none if there is no such file.

    Raises
    ------
    ValueError
        If it is something else, or a cell lacks one of the keys.
    """
    if not path.is_file():
        return []
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            cells: list[Cell] = json.load(file)["cells"]
        for cell in cells:
            if lacking := sorted(KEYS.union(keys) - set(cell)):
                raise ValueError(f"a cell lacks {lacking[0]}")
    except (ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise ValueError(
            f"{path} does not hold the cells of an experiment ({error}): move it away."
        ) from error
    return cells


def write_cells(path: Path, cells: Iterable[Cell]) -> None:
    """Write all cells, a line each, completely or not at all; packed if the name ends in `.xz`."""
    lines = ",\n".join(json.dumps(cell, allow_nan=False) for cell in cells)
    text = f'{{"cells": [\n{lines}\n]}}\n'.encode()
    with replacing(path) as partial:
        partial.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)


def find_missing(
    wanted: Iterable[tuple[AnyPlace, Mapping[str, Any], Config]],
    cells: Sequence[Cell],
    *,
    more: Callable[[Config], Mapping[str, Scalar]] = lambda _: {},
    again: bool = False,
) -> list[Missing[AnyPlace]]:
    """Return the simulations that no cell has with the same options.

    Parameters
    ----------
    more : callable
        What else identifies a simulation.
    again : bool
        Whether finished simulations run again, too.
    """
    missing = []
    for one, given, config in wanted:
        options = {**resolved_options(config), **more(config)}
        finished = [cell["options"] for cell in cells if one.is_of(cell)]
        if again or options not in finished:
            missing.append(Missing(one, given, config, options, outdated=bool(finished)))
    return missing


def check_all(wanted: Iterable[tuple[Place, Config]], folder: Path) -> None:
    """Refuse what `fedkin run` would refuse of any simulation, and say which one.

    Parameters
    ----------
    folder : Path
        Where all of them go.

    Raises
    ------
    ValueError, MissingExtraError, OSError
        As `fl_app.simulation.preflight.check_run`, or if one trains nothing.
    """
    for one, config in wanted:
        try:
            check_trains(config)
            check_run(config, folder)
        except ValueError as error:
            raise ValueError(f"{one}: {error}") from error


class Store:
    """The file of cells while simulations run: no other process writes to it.

    Raises
    ------
    RuntimeError
        On entering, if another process uses the same file.
    """

    def __init__(self, path: Path, what: str, keys: Iterable[str]) -> None:
        self._path, self._what, self._keys = path, what, tuple(keys)
        self._file = FileLock(path.with_name(f".{path.name}.lock"), timeout=0)

    def __enter__(self) -> Store:
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

    def run(self, one: Missing[Any], workers: int, run: Callable[[], Cell]) -> Cell:
        """Run a simulation, write its cell in the place of an older one, and return it."""
        made = {"options": dict(one.options), "revision": revision(), "workers": workers}
        cell = {**vars(one.wanted), **made, **run()}
        write_cells(self._path, [*self._others(one), cell])
        return cell

    def drop(self, one: Missing[Any]) -> None:
        """Remove an older cell of a simulation, before its results are deleted."""
        write_cells(self._path, self._others(one))

    def _others(self, one: Missing[Any]) -> list[Cell]:
        cells = read_cells(self._path, self._keys)
        return [cell for cell in cells if not one.wanted.is_of(cell)]


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
    """Remove all but the mark of what the folder is for."""
    for path in folder.iterdir():
        if path.name == _STATE:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def run_into(one: Missing[Any], folder: Path, workers: int, *, parts: int = 0) -> tuple[Any, Cell]:
    """Run a simulation; return its summary.json, and what is stored of any simulation.

    Parameters
    ----------
    folder : Path
        For its results.
    workers : int
        Ray's; 0: in this process, without any.
    parts : int
        How many checkpoints it leaves, where it has as many rounds; one that was interrupted in
        this folder resumes from its last. 0: none.

    Raises
    ------
    RuntimeError
        If it fails.
    """
    # Ray and torch are imported by neither --list nor --page.
    from fl_app.plan import RunFailedError, prepare  # noqa: PLC0415
    from fl_core.models.checkpoint import load_checkpoint  # noqa: PLC0415

    started = time.perf_counter()
    options = {**one.given, "output-dir": str(folder)}
    before = 0.0
    if parts:
        if not one.config.secure_aggregation:  # which nothing resumes
            options["checkpoint-every"] = one.config.num_server_rounds // parts
        if checkpoints := list(folder.glob(f"{CHECKPOINTS}/{WHOLE}")):
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
            f"the simulation of {one.wanted} failed ({error}); the finished ones are stored."
        ) from error
    summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary, made_by(one, before + time.perf_counter() - started, plan.gpus_per_client)


@contextmanager
def _without_report() -> Iterator[None]:
    """Let runs write no report page: one page shows all of them."""
    from fl_app.report.report_page import NO_REPORT  # noqa: PLC0415

    os.environ[NO_REPORT] = "1"
    try:
        yield
    finally:
        del os.environ[NO_REPORT]


def made_by(one: Missing[Any], seconds: float, gpus_per_client: float | None) -> Cell:
    """Return by what a simulation was run, and how long it took."""
    from clients.accelerator import gpu_name  # noqa: PLC0415 - PyTorch takes a second

    gpu = None if gpus_per_client == 0 else gpu_name(one.config.device)
    versions = {name: version(name) for name in _PACKAGES}
    return {
        "seconds": round(seconds, 1),
        **({"gpu": gpu} if gpu else {}),
        "versions": {**versions, "python": platform.python_version()},
    }
