"""Run the golden runs, and compare their results with the files in tests/golden/files."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from flwr.supercore.task_identity import TaskIdentity

from tests.golden.frozen import frozen
from tests.golden.runs import RUNS

FILES = Path(__file__).with_name("files")
_MOST_LINES = 60


def main() -> int:
    """Check or write the golden files, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden")
    parser.add_argument("action", choices=("check", "write"))
    parser.add_argument("names", nargs="*", metavar="RUN", help=", ".join(RUNS))
    parser.add_argument("--all-lines", action="store_true", help="print whole diffs")
    given = parser.parse_args()
    os.environ.pop("FL_DATA_DIR", None)  # its path would be in the results
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    differing = 0
    for name in given.names or RUNS:
        with tempfile.TemporaryDirectory() as folder:
            with redirect_stdout(io.StringIO()):  # what it says to who watches
                RUNS[name](Path(folder))
            found = frozen(Path(folder))
        if given.action == "write":
            _write(FILES / name, found)
        else:
            lines = _differences(FILES / name, found)
            differing += bool(lines)
            shown = lines if given.all_lines else lines[:_MOST_LINES]
            print(f"{name}: {'differs' if lines else 'equal'}", *shown, sep="\n", flush=True)
            if len(shown) < len(lines):
                print(f"… and {len(lines) - len(shown)} more lines (--all-lines)")
    return 1 if differing else 0


def _write(folder: Path, found: dict[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in found.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _differences(folder: Path, found: dict[str, str]) -> list[str]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    golden = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths
    }
    lines: list[str] = []
    for name in sorted({*golden, *found}):
        old, new = golden.get(name, ""), found.get(name, "")
        lines += difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"golden/{name}", f"now/{name}", "", "", 1, ""
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
