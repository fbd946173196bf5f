"""Files of finished simulations, with the options and the numbers of each."""

from __future__ import annotations

import json
import lzma
import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout

from fl_app.config.run_config import DEFAULTS, Config, parse_config
from fl_app.results.layout import CHECKPOINTS, SUMMARY, WHOLE
from fl_app.simulation.preflight import check_has_rounds, check_simulation
from fl_app.simulation.resources import gpus_per_client
from fl_core.data.folders import resolve_data_dir
from fl_core.data.settings import IN_DATA_DIR
from fl_core.files import replacing
from fl_core.options import Scalar, options_of
from strategies.catalogue import system_of

Cell = dict[str, Any]
"""A finished simulation: its key, `options`, `revision`, `workers`, `seconds`, `versions`, `gpu` if
clients computed on one, and its numbers."""

KEYS = frozenset({"options", "revision", "workers", "seconds", "versions"})
"""The keys of every cell."""

WITHOUT_EFFECT = frozenset({"output-dir", "data-dir", "figure-format"})
"""Options that change no number; see `local_data` for the exception."""

_STATE = ".state"
_CHECKPOINTS_PER_RUN = 8
_ROOT = Path(__file__).parents[2]
_PACKAGES = ("fedkin", "flwr", "ray", "torch", "numpy", "scipy")


@dataclass(frozen=True)
class Key:
    """Identifies a simulation among several, by the fields of a subclass."""

    def matches(self, cell: Cell) -> bool:
        """Return whether a cell has this key, with any options."""
        return all(cell.get(name) == value for name, value in vars(self).items())


AnyKey = TypeVar("AnyKey", bound=Key)


@dataclass(frozen=True)
class Simulation(Generic[AnyKey]):
    """A simulation: its key, the run-config keys that are set, and its configuration."""

    key: AnyKey
    given: Mapping[str, Any]
    config: Config
    options: Mapping[str, Scalar]  # all that change its numbers

    @classmethod
    def of(cls, key: AnyKey, given: Mapping[str, Any]) -> Simulation[AnyKey]:
        """Return the simulation of run-config keys; a ValueError says which is wrong."""
        config = parse_config({**DEFAULTS, **given})
        return cls(key, given, config, resolved_options(config))

    def is_in(self, cells: Iterable[Cell], *, with_options: bool = True) -> bool:
        """Return whether a cell has this key, with these options or with any."""
        return any(
            self.key.matches(cell) and (cell["options"] == self.options or not with_options)
            for cell in cells
        )


def resolved_options(config: Config) -> dict[str, Scalar]:
    """Return the values of all options that the compared strategies read, defaults included.

    Two simulations with the same options have the same numbers, but for changes of the code.
    """
    parts = {part for name in config.strategy for part in system_of(name).parts}
    used = {key for part in parts for key in options_of(part)} | set(options_of(Config))
    values = config.for_strategies(*config.strategy).as_run_config()
    options = {key: value for key, value in values.items() if key in used - WITHOUT_EFFECT}
    return options | local_data(values)


def local_data(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the folder of the data, if run-config values name local data; otherwise nothing."""
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


def identify_code(found: str) -> str:
    """Return a revision, or a random text if it does not identify the code: it equals no other."""
    return found if found and not found.endswith("-dirty") else secrets.token_hex(8)


def read_cells(path: Path) -> list[Cell]:
    """Return the cells of a file; none if there is no such file."""
    if not path.is_file():
        return []
    opened = lzma.open if path.suffix == ".xz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            cells: list[Cell] = json.load(file)["cells"]
        for cell in cells:
            if lacking := sorted(KEYS - set(cell)):
                raise ValueError(f"a cell lacks {lacking[0]}")
    except (ValueError, KeyError, TypeError, lzma.LZMAError) as error:
        raise ValueError(
            f"{path} is not a file of finished simulations ({error}): move it away."
        ) from error
    return cells


def write_cells(path: Path, cells: Iterable[Cell]) -> None:
    """Write all cells, a line each, completely or not at all; packed if the name ends in `.xz`."""
    lines = ",\n".join(json.dumps(cell, allow_nan=False) for cell in cells)
    text = f'{{"cells": [\n{lines}\n]}}\n'.encode()
    with replacing(path) as partial:
        partial.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)


def replace_cell(path: Path, key: Key, *cells: Cell) -> None:
    """Replace the cell of this key in a file; without a new one, remove it."""
    others = (cell for cell in read_cells(path) if not key.matches(cell))
    write_cells(path, [*others, *cells])


def check_all(simulations: Iterable[Simulation[Any]], folder: Path) -> None:
    """Raise the ValueError of `fedkin run` for the first simulation that it would refuse."""
    for one in simulations:
        try:
            check_has_rounds(one.config)
            check_simulation(one.config, folder)
            gpus_per_client(one.config.device, 1, None)
        except ValueError as error:
            raise ValueError(f"{one.key}: {error}") from error


def resumable(one: Simulation[AnyKey], folder: Path) -> Simulation[AnyKey]:
    """Return the simulation that writes to a folder, and resumes from its last checkpoint there.

    What other simulations, options or code have left there is removed.
    """
    state = json.dumps([str(one.key), one.options, identify_code(revision())])
    mark = folder / _STATE
    is_same = mark.is_file() and mark.read_text(encoding="utf-8") == state
    resumes = is_same and any((folder / CHECKPOINTS).glob(WHOLE))
    if not resumes:
        shutil.rmtree(folder, ignore_errors=True)
        with replacing(mark) as partial:
            partial.write_text(state, encoding="utf-8")
    given = {**one.given, "output-dir": str(folder)}
    if not one.config.secure_aggregation:  # which nothing resumes
        given["checkpoint-every"] = max(1, one.config.num_server_rounds // _CHECKPOINTS_PER_RUN)
    return replace(one, given=given | ({"resume": str(folder)} if resumes else {}))


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Lock a file of cells against other processes while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise RuntimeError(
            f"another process runs the {what} for {path}: wait for it, or stop it."
        ) from None
    try:
        yield
    finally:
        lock.release()


def read_finished(
    one: Simulation[Any], folder: Path, workers: int, seconds: float, gpus_per_client: float | None
) -> tuple[Mapping[str, Any], Cell]:
    """Return the summary.json of a finished simulation, and its cell without numbers."""
    from clients.accelerator import gpu_name  # noqa: PLC0415 - PyTorch takes a second

    gpu = None if gpus_per_client == 0 else gpu_name(one.config.device)
    versions = {name: version(name) for name in _PACKAGES}
    cell = {
        **vars(one.key),
        "options": dict(one.options),
        "revision": revision(),
        "workers": workers,
        "seconds": round(seconds, 1),
        **({"gpu": gpu} if gpu else {}),
        "versions": {**versions, "python": platform.python_version()},
    }
    return json.loads((folder / SUMMARY).read_text(encoding="utf-8")), cell
