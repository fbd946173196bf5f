"""Every option is declared once; pages and defaults are written from the declarations."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fl_app.config.options import written
from fl_app.config.run_config import OF_STRATEGIES, Config, parse_config
from fl_core.options import options_of
from strategies.catalogue import AGGREGATIONS, CLUSTERINGS
from tests.app_runs import DEFAULTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/adding-a-strategy.md").read_text(encoding="utf-8")
COPIED = ("fl_core", "clients", "strategies", "fl_app", "docs", "tests", "pyproject.toml")


def test_what_make_options_writes_is_current():
    for path, content in written(ROOT).items():
        assert path.read_text(encoding="utf-8") == content, f"{path.name}: run `make options`"


def test_an_option_is_declared_once():
    owners = (*Config.__bases__, *CLUSTERINGS.values(), *AGGREGATIONS.values())
    declared = {}
    for owner in owners:
        for key, one in options_of(owner).items():
            assert declared.setdefault(key, one) is one, key
    run_options = options_of(Config)
    assert not run_options.keys() & OF_STRATEGIES.keys()
    assert all(run_options[key] is one for key, one in declared.items() if key in run_options)


def test_the_profile_for_devices_knows_the_options():
    profile = tomllib.loads((ROOT / "pyproject-flwr.toml").read_text(encoding="utf-8"))
    parse_config({**DEFAULTS, **profile})


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the tree with the page's strategy in it, and its option."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        source, target = ROOT / name, root / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    clustering, test = (
        next(code for code in blocks("python") if start in code)
        for start in ("class BiasClustering", "def test_")
    )
    (root / "strategies/bias.py").write_text(clustering, encoding="utf-8")
    (root / "tests/test_strategies_bias.py").write_text(test, encoding="utf-8")
    line, option = blocks("diff")
    apply(line, root / "strategies/catalogue.py")
    apply(option, root / "strategies/bias.py")
    assert "make options\n" in blocks("sh")
    # What `make options` calls.
    python(root, "-m", "fl_app.config.options")
    return root


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def apply(diff, path):
    """Apply a diff without line numbers: every hunk's old lines stand in the file just once."""
    text = path.read_text(encoding="utf-8")
    for hunk in diff.split("@@\n"):
        lines = [(line[0], line[1:]) for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(text for mark, text in lines if mark != not_) for not_ in "+-")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def python(root, *arguments):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_pages_strategy_is_one_file_one_line_and_one_test(copy):
    said = python(
        copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_strategies_bias.py"
    )
    assert "1 passed" in said


@pytest.mark.slow
def test_the_pages_option_is_one_field(copy):
    pyproject = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))
    assert pyproject["tool"]["flwr"]["app"]["config"]["num-starts"] == 10
    assert "| `num-starts` | `10` |" in (copy / "docs/options.md").read_text(encoding="utf-8")
    program = """
from fl_app.config.run_config import parse_config
from fl_app.launch.flower_app import installed_app, read_defaults
from fl_app.config.systems import Setting, build_strategy
options = {"strategy": "bias", "num-clusters": 2, "num-starts": "3"}
config = parse_config({**read_defaults(installed_app()), **options})
print(build_strategy("bias", Setting(config, None, 5), {}).clustering)
"""
    assert python(copy, "-c", program) == "BiasClustering(num_clusters=2, seed=5, num_starts=3)\n"
