"""The house's arrows: imports go down only, and files are where docs/papers.md says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "fl_core": {"fl_core"},
    "clients": {"clients", "fl_core"},
    "strategies": {"strategies", "fl_core"},
    "fl_app": {"fl_app", "clients", "strategies", "fl_core"},
}


def imported_names(source: str) -> set[str]:
    """Return the dotted names that a module imports, at any depth; relative ones as a dot."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update("." if node.level else f"{node.module}.{a.name}" for a in node.names)
    return names


def imported_rooms(source: str) -> set[str]:
    """Return the project's rooms that a module imports."""
    rooms = {name.split(".")[0] or "." for name in imported_names(source)}
    return rooms & {*MAY_IMPORT, ".", "tests", "benchmarks"}


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_go_down_only(room):
    modules = sorted((ROOT / room).rglob("*.py"))
    assert len(modules) > 3
    for module in modules:
        wrong = imported_rooms(module.read_text(encoding="utf-8")) - MAY_IMPORT[room]
        assert not wrong, f"{module.relative_to(ROOT)} imports {sorted(wrong)}"


def test_the_test_sees_a_forbidden_arrow():
    assert imported_rooms("def f():\n    from strategies.base import x") == {"strategies"}
    assert imported_rooms("import fl_app.config as c, clients") == {"fl_app", "clients"}
    assert imported_rooms("from . import x") == {"."}


def test_no_module_imports_tests_of_another():
    """What two of them need stands in a file without `test_` before its name."""
    for module in sorted((ROOT / "tests").glob("*.py")):
        names = imported_names(module.read_text(encoding="utf-8"))
        assert not {name for name in names if name.startswith("tests.test_")}, module.name
    assert imported_names("from tests import test_x") == {"tests.test_x"}


def test_the_files_that_the_page_of_papers_names_are_there():
    page = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:fl_core|clients|strategies|fl_app|docs)/[\w/.-]+)`", page)
    assert len(named) > 10
    assert all((ROOT / name).exists() for name in named)


def test_the_maths_knows_nothing_of_flower():
    for module in (
        "fl_core/partition.py",
        "fl_core/noise.py",
        "fl_core/models.py",
        "clients/spectrum.py",
        "clients/privacy.py",
        "clients/private_training.py",
        "clients/training.py",
        "clients/hog.py",
        "clients/features.py",
        "clients/encoders.py",
        "clients/attacks.py",
        "clients/autoencoder.py",
        "clients/signature.py",
        "strategies/grouping.py",
        "strategies/rounds.py",
        "strategies/signatures.py",
        "strategies/updates.py",
        "strategies/aggregation.py",
        "strategies/mt_hfl.py",
    ):
        names = imported_names((ROOT / module).read_text(encoding="utf-8"))
        assert not {name for name in names if name.startswith("flwr")}, module
