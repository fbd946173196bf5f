"""What all benchmarks write: tables in Markdown, and files of numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fl_core.files import replacing


def markdown(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def read(path: Path) -> dict[str, Any]:
    """Return what a file of numbers has, empty if there is none yet."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write(found: Any, path: Path, indent: int | None = 1) -> None:
    """Write numbers as JSON, completely or not at all."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(found, indent=indent) + "\n", encoding="utf-8")
