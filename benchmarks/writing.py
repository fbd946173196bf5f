"""Tables in Markdown and files of numbers, for all benchmarks."""

import json
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fl_core.files import replacing

ROOT = Path(__file__).parents[1]
RESULTS, RUNS = ROOT / "benchmarks/results", ROOT / "experiments/results/runs"


def markdown(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def read(path: Path) -> dict[str, Any]:
    """Return what a file of numbers, packed JSON, has; empty if there is none yet."""
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def measured(name: str) -> dict[str, Any]:
    """Return the committed numbers of a benchmark."""
    return read(RESULTS / f"{name}.json.xz")


def run_of(name: str) -> dict[str, Any]:
    """Return the committed summary.json of a run of `fedkin run`."""
    return read(RUNS / f"{name}.json.xz")


def write(found: Any, path: Path) -> None:
    """Write numbers as packed JSON, completely or not at all."""
    with replacing(path) as partial:
        partial.write_bytes(lzma.compress(f"{json.dumps(found)}\n".encode()))
