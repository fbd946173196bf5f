"""What a cell's numbers depend on: its options, its data and the code that made them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from fl_app.config.allowed_code import named_at_clients
from fl_app.config.run_config import Config
from fl_core.data.folders import resolve_data_dir
from fl_core.data.settings import IN_DATA_DIR
from fl_core.options import options_of
from fl_core.own_code import is_own, own_files
from strategies.catalogue import system_of
from strategies.parts import is_ours

ROOT = Path(__file__).parents[3]
# Of `fl_app`, what happens in a run, and what turns it into the numbers that are kept.
_IN_A_RUN = (
    *("client_app.py", "server_app.py", "config/*.py", "grid/*.py", "nodes/*.py", "run/*.py"),
    *("results/run_result.py", "results/summary.py", "results/folder.py"),
    *("results/choosing.py", "results/paired.py", "results/verdicts.py", "report/verdicts.py"),
    *("studies/in_process.py", "studies/reproduce/kept.py", "studies/reproduce/formula.py"),
)
_NOT_IN_ONE = {"options_page.py", "effect.py", "__init__.py"}  # they only speak of options
PLACES = ("output-dir", "data-dir", "figure-format")
"""Where a run's files are, and how it draws, does not change what it finds; but see `own_data`."""


def state_of(config: Config) -> tuple[str, str]:
    """Return two hashes: of a configuration and of the code that runs it, and of the code alone.

    Docstrings, comments and layout do not count, nor do clusterings and aggregations that are not
    compared, their code and their options. Data of one's own are as code; the process looks at
    them once.

    Raises
    ------
    ValueError
        If a function of one's own that reads the data fails.
    """
    systems = [system_of(name) for name in config.strategy]
    parts = {part for one in systems for part in one.parts}
    code = hashlib.sha256()
    for name, one in zip(config.strategy, systems, strict=True):
        words = (name, *(part.__qualname__ for part in one.parts), one.weighted)
        code.update(f"{words}\n".encode())
    for path in sorted(code_of(parts)):
        # A strategy of somebody's own may lie anywhere.
        shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        code.update(f"{shown} {code_hash(path, path.stat().st_mtime_ns)}\n".encode())
    named = {part.__module__ for part in parts if not is_ours(part)}
    named |= {*named_at_clients(config).values()}
    for own in sorted({file for path in named for file in own_files(path)}):
        code.update(f"{own.name} {code_hash(own, own.stat().st_mtime_ns)}\n".encode())
    if is_own(config.dataset) or config.dataset in IN_DATA_DIR:
        from fl_core.data.datasets import own_checksum  # noqa: PLC0415 - PyTorch takes a second

        code.update(own_checksum(config.dataset, config.data_dir).encode())
    used = {key for part in parts for key in options_of(part)} | set(options_of(Config))
    values = config.as_run_config()
    options = {k: value for k, value in values.items() if k in used and k not in PLACES}
    options |= own_data(values)
    both = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    both.update(code.digest())
    return both.hexdigest(), code.hexdigest()


def own_data(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the folder that run-config values name, if it is the data; otherwise nothing."""
    if values.get("dataset") not in IN_DATA_DIR:
        return {}
    return {"data-dir": str(resolve_data_dir(str(values.get("data-dir", ""))).resolve())}


def code_of(parts: Iterable[type]) -> set[Path]:
    """Return the files whose code runs in a simulation of these parts of strategies."""
    starts = {ROOT / "strategies" / "reuse.py"} | {Path(inspect.getfile(part)) for part in parts}
    app = (path for words in _IN_A_RUN for path in (ROOT / "fl_app").glob(words))
    around = {path for path in app if path.name not in _NOT_IN_ONE}
    rooms = {path for room in ("fl_core", "clients") for path in (ROOT / room).rglob("*.py")}
    return rooms | around | _reached(starts)


def _reached(files: Iterable[Path]) -> set[Path]:
    """Return these files of `strategies` and all that they import of it, directly or not."""
    waiting, reached = list(files), set[Path]()
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += _imported(path)
    return reached


@cache
def _imported(path: Path) -> list[Path]:
    found: list[Path] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            words = node.module.split(".")
            place = ROOT.joinpath(*words)
            if words[0] == "strategies":  # what a room hands on may be anywhere in it
                module = place.with_suffix(".py")
                found += [module] if module.is_file() else place.rglob("*.py")
    return found


@cache
def code_hash(path: Path, changed: int) -> str:
    """Return a hash of a file's code without docstrings; `changed` is when it last was, in ns."""
    text = path.read_bytes()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # one's own: who runs it says what is wrong
        return hashlib.sha256(text).hexdigest()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # a text alone may also follow an attribute that it describes
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    # Written again, and not dumped: how Python dumps a tree differs from version to version.
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
