"""The house's rooms and arrows: imports go down only."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from strategies import Clustering
from strategies.catalogue import CLUSTERINGS

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "fl_core": {"fl_core"},
    "clients": {"clients", "fl_core"},
    "strategies": {"strategies", "fl_core"},
    "fl_app": {"fl_app", "clients", "strategies", "fl_core"},
    "experiments": {"experiments", "fl_app", "clients", "strategies", "fl_core"},
}


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Return what `ast.walk` goes through, parsed once for all tests."""
    return tuple(ast.walk(ast.parse(source)))


@cache
def imported_names(source: str) -> frozenset[str]:
    """Return the dotted names that a module imports, at any depth; relative ones as a dot."""
    names: set[str] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update("." if node.level else f"{node.module}.{a.name}" for a in node.names)
    return frozenset(names)


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
    assert imported_rooms("def f():\n    from strategies.strategy import x") == {"strategies"}
    assert imported_rooms("import fl_app.config.run_config as c, clients") == {"fl_app", "clients"}
    assert imported_rooms("from . import x") == {"."}


def modules_of_the_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def test_no_module_imports_tests_of_another():
    """What two of them need stands in a file without `test_` before its name."""
    for module in modules_of_the_tests():
        names = imported_names(module.read_text(encoding="utf-8"))
        shared = {name for name in names if name.startswith("tests.") and ".test_" in name}
        assert not shared, module.name
    assert imported_names("from tests import test_x") == {"tests.test_x"}


def test_the_maths_knows_nothing_of_flower():
    for module in (
        "fl_core/partitions/partition.py",
        "fl_core/partitions/noise.py",
        "fl_core/models/build.py",
        "clients/signatures/spectrum.py",
        "clients/privacy.py",
        "clients/private_training.py",
        "clients/training/train.py",
        "clients/features/hog.py",
        "clients/features/compute.py",
        "clients/features/encoders.py",
        "clients/attacks.py",
        "clients/signatures/autoencoder.py",
        "clients/signatures/signature.py",
        "strategies/clusterings/agglomeration.py",
        "strategies/rounds/round_state.py",
        "strategies/clusterings/signatures.py",
        "strategies/rounds/updates.py",
        "strategies/aggregations/aggregation.py",
        "strategies/aggregations/lps_gps.py",
    ):
        names = imported_names((ROOT / module).read_text(encoding="utf-8"))
        assert not {name for name in names if name.startswith("flwr")}, module


# Each room, or module that lies loose, may use those before it.
ROOMS = {
    "fl_core": (
        *("text", "json_records", "extras", "options", "files", "proxies", "user_code"),
        *("relevance", "flower", "messages", "secret_shares", "masking", "metrics"),
        *("data", "partitions", "models", "agreement", "objectives"),
    ),
    "clients": (
        *("settings", "accelerator", "attacks", "privacy", "private_models", "training"),
        *("private_training", "features", "client", "signatures", "secure_aggregation"),
        "handlers",
    ),
    "strategies": (
        *("rounds", "aggregations", "clusterings", "validation"),
        *("secure_aggregation", "checks", "strategy", "catalogue"),
    ),
    "fl_app": (
        *("config", "results", "report", "run", "simulation", "devices", "classify"),
        *("client_app", "server_app", "launch", "plan", "group", "sweeps", "api", "testing"),
        "cli",
    ),
}


def modules_of(room: str) -> dict[str, Path]:
    """Return the modules of a room, by their dotted names."""
    paths = sorted((ROOT / room).rglob("*.py"))
    named = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in paths)
    return dict(zip((name.removesuffix(".__init__") for name in named), paths, strict=True))


def arrows(rooms: Iterable[str]) -> dict[str, set[str]]:
    """Return which modules of some rooms each of them imports."""
    modules = {name: path for room in rooms for name, path in modules_of(room).items()}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = imported_names(path.read_text(encoding="utf-8"))
        # A name is a module's, or that of something in it.
        found[module] = {name if name in modules else name.rpartition(".")[0] for name in names}
        found[module] &= modules.keys() - {module}
    return found


@pytest.mark.parametrize("house", ROOMS)
def test_every_room_has_its_place(house):
    inside = {path.stem for path in (ROOT / house).iterdir() if path.suffix == ".py"}
    inside |= {path.parent.name for path in (ROOT / house).glob("*/__init__.py")}
    assert inside - {"__init__"} == set(ROOMS[house])


@pytest.mark.parametrize("house", ROOMS)
def test_imports_between_rooms_go_down_only(house):
    for module, imported in arrows([house]).items():
        own = module.split(".")[1:2]
        for name in imported:
            other = name.split(".")[1:2]
            up = own and other and ROOMS[house].index(other[0]) > ROOMS[house].index(own[0])
            assert not up, f"{module} imports {name}"


def test_tests_lie_in_folders_that_mirror_the_rooms():
    folders = {path.parent.relative_to(ROOT / "tests") for path in modules_of_the_tests()}
    assert {folder.name for folder in folders if len(folder.parts) == 2} <= set(ROOMS["fl_app"])
    assert {"core", "clients", "strategies"} <= {folder.name for folder in folders}


def room_of(module: str) -> str:
    """Return the folder of a module; a file in a package's root is a room of its own."""
    folder = module.rpartition(".")[0]
    return module if folder in (*MAY_IMPORT, "") else folder


def test_folders_make_no_circle():
    rooms: dict[str, set[str]] = {}
    for module, imported in arrows(MAY_IMPORT).items():
        room = room_of(module)
        rooms.setdefault(room, set()).update({*map(room_of, imported)} - {room})
    TopologicalSorter(rooms).prepare()  # a CycleError names the circle
    assert room_of("fl_app.devices.gate.pushes") == "fl_app.devices.gate"
    assert room_of("fl_app.plan") == "fl_app.plan"


def test_no_modules_import_each_other():
    TopologicalSorter(arrows(MAY_IMPORT)).prepare()  # a CycleError names the circle


PUBLIC_FLOWER = ("app", "clientapp", "serverapp")


def test_what_is_private_in_flower_is_imported_behind_one_door():
    """Each of its releases may move it: fl_core/flower says why nothing public serves."""
    for module, path in ((m, p) for room in MAY_IMPORT for m, p in modules_of(room).items()):
        if module.startswith("fl_core.flower"):
            continue
        names = imported_names(path.read_text(encoding="utf-8"))
        flowers = [name for name in names if name.split(".")[0] == "flwr"]
        assert all(name.split(".")[1] in PUBLIC_FLOWER for name in flowers), (module, flowers)


def asked_for_clusterings(source: str) -> set[str]:
    """Return the clusterings for which a module asks by `isinstance` or `issubclass`."""
    calls = [node for node in nodes_of(source) if isinstance(node, ast.Call)]
    asked = [call for call in calls if ast.unparse(call.func) in ("isinstance", "issubclass")]
    named = {name for call in asked for name in re.findall(r"\w+", ast.unparse(call.args[1]))}
    return named & {one.__name__ for one in (Clustering, *CLUSTERINGS.values())}


def test_under_the_roof_nobody_asks_which_clustering_it_is():
    """A clustering says what it is: by the attributes and methods of its base class."""
    for module, path in modules_of("fl_app").items():
        assert not asked_for_clusterings(path.read_text(encoding="utf-8")), module
    assert asked_for_clusterings("isinstance(x, int | RandomClusters)") == {"RandomClusters"}
