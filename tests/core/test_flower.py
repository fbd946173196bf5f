"""What is private in Flower is still where it was: if a release moves some, all of it is named."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from fl_core import flower

FILES = sorted(Path(flower.__file__).parent.glob("*.py"))


def imported(path):
    """Return the modules and names that a file imports from Flower."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [(n.module, a.name) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names]


def is_there(module, name):
    try:
        return find_spec(module) is not None and hasattr(import_module(module), name)
    except ModuleNotFoundError:  # a package above it is gone
        return False


def test_nothing_has_moved():
    names = [pair for path in FILES for pair in imported(path)]
    assert len(names) > 30
    moved = [f"{module}.{name}" for module, name in names if not is_there(module, name)]
    assert not moved, f"Flower has moved {', '.join(moved)}: see fl_core/flower"


def test_a_name_that_has_moved_would_be_seen():
    assert not is_there("flwr.supercore.date", "nowhere")
    assert not is_there("flwr.supercore.nowhere", "now")
    assert not is_there("flwr.nowhere.date", "now")
