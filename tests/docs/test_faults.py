"""docs/faults.md names a test for everything that it says."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/faults.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ")]
NAMED = re.findall(r"(P )?`([\w/]*test_\w+\.py)(?:::(test_\w+))?`", PAGE)


def functions(file):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_names_tests_that_are_there():
    rows = [row for row in ROWS if not row.startswith(("| ---", "| what"))]
    assert len(rows) > 30
    assert all("test_" in row for row in rows)
    for _, file, name in NAMED:
        assert not name or name in functions(file), f"{file}::{name}"


def test_every_attack_on_real_processes_is_on_the_page():
    on_page = {name for _, _, name in NAMED}
    attacks = {
        name for name in functions("devices/test_devices_attacked.py") if name.startswith("test_")
    }
    assert attacks <= on_page


def test_what_is_said_to_have_real_processes_is_slow():
    """And what is not said to, is in no file that `make faults` runs."""
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    (files,) = re.findall(r"^FAULTS = (.*)$", makefile, re.MULTILINE)
    run = {path for pattern in files.split() for path in TESTS.parent.glob(pattern)}
    for real, file, _ in NAMED:
        assert bool(real) == (TESTS / file in run), file
