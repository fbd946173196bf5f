"""What a cell's numbers depend on: its options and the code that made them."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from strategies.catalogue import system_of

ROOT = Path(__file__).parents[2]
# Those of `fl_app` that start a run or show it; what happens in it is in the others.
_AROUND = {"cli.py", "superlink.py", "flower_app.py", "options.py", "processes.py", "__init__.py"}


def state_of(given: Mapping[str, Any], strategies: Sequence[str]) -> str:
    """Return a hash of a cell's options and of the code that runs it.

    Docstrings, comments and layout do not count, nor do clusterings and aggregations that are not
    compared.
    """
    text = json.dumps(dict(given), sort_keys=True)
    content = hashlib.sha256(text.encode())
    for path in sorted(code_of(strategies)):
        content.update(f"\n{path.relative_to(ROOT)} {code_hash(path)}".encode())
    return content.hexdigest()


def code_of(strategies: Sequence[str]) -> set[Path]:
    """Return the files whose code runs in a simulation of these strategies."""
    systems = [system_of(name) for name in strategies]
    halves = {half for one in systems for half in (one.clustering, one.aggregation)}
    starts = {ROOT / "strategies" / "base.py"} | {Path(inspect.getfile(half)) for half in halves}
    around = {p for p in (ROOT / "fl_app").glob("*.py") if p.name not in _AROUND}
    rooms = {p for room in ("fl_core", "clients") for p in (ROOT / room).glob("*.py")}
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


@lru_cache
def _imported(path: Path) -> list[Path]:
    names = [
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strategies.")
    ]
    return [ROOT / f"{name.replace('.', '/')}.py" for name in names if name]


@lru_cache
def code_hash(path: Path) -> str:
    """Return a hash of a file's syntax tree without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
