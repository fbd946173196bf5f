"""docs/adding.md, followed to the letter: its blocks are put where it says, and all is well."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding.md").read_text(encoding="utf-8")
COPIED = ("fl_core", "clients", "strategies", "fl_app")
COPIED += ("benchmarks", "experiments", "docs", "tests")
FILES = ("Makefile", "pyproject.toml", "pyproject-flwr.toml", "README.md", "CONTRIBUTING.md")
# A block belongs to the file that is named last before its colon.
BLOCKS = re.findall(r"`([\w/]+\.py)`[^`\n]*:\n\n```(python|diff)\n(.*?)```", PAGE, re.DOTALL)
# Run in the copy, beside the page's own tests.
RUN = """
from fl_app.config.run_config import parse_config
from fl_app.config.strategy_factory import Setting, build_strategy
from tests.app_runs import DEFAULTS, run


def test_all_of_it_runs(tmp_path):
    summary = run(tmp_path, strategy="bias,bias+lps-gps,spectral+damped+halfway", model="mlp-32")
    assert len(summary["runs"]) == 3


def test_the_data_set_is_compared_and_trained_on(tmp_path):
    summary = run(tmp_path, strategy="rcc-pfl", dataset="digits", model="paper")
    assert summary["runs"][0]["ari"] == 1


def test_an_option_reaches_its_field():
    options = {"strategy": "bias", "num-clusters": 2, "num-starts": "3"}
    setting = Setting(parse_config({**DEFAULTS, **options}), None, 5)
    found = build_strategy("bias", setting, {}).clustering
    assert (found.num_clusters, found.num_starts, found.seed) == (2, 3, 5)
"""


def apply(diff, path):
    """Apply a diff without line numbers: every hunk's old lines stand in the file just once."""
    text = path.read_text(encoding="utf-8")
    for hunk in diff.split("@@\n"):
        lines = [(line[0], line[1:]) for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(text for mark, text in lines if mark != not_) for not_ in "+-")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the tree with all in it that the page shows, and its options written."""
    root = tmp_path_factory.mktemp("copy")
    for name in (*COPIED, *FILES):
        source, target = ROOT / name, root / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    for name, language, content in BLOCKS:
        if language == "diff":
            apply(content, root / name)
        else:
            assert not (root / name).exists()
            (root / name).write_text(content, encoding="utf-8")
    (root / "tests/test_all_of_it.py").write_text(RUN, encoding="utf-8")
    assert "```sh\nmake options\n```" in PAGE
    run(root, "-m", "fl_app.config.options_page")  # what `make options` calls
    return root


def run(root, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_block_is_put_somewhere():
    """But for one that is for another app, which docs/test_example.py runs."""
    assert len(re.findall("```(?:python|diff)\n", PAGE)) == len(BLOCKS) + 1
    assert len({name for name, *_ in BLOCKS}) == len(BLOCKS) - 1  # two for the catalogue


@pytest.mark.slow
def test_lint_finds_nothing(copy):
    for command in (["check"], ["format", "--check"]):
        run(copy, "-m", "ruff", *command, "--no-cache", *(name for name, *_ in BLOCKS))


@pytest.mark.slow
@pytest.mark.faults
def test_types_are_right(copy):
    """In seconds with what mypy knows of the tree already, as `make lint` leaves it."""
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    rooms = ("fl_core", "clients", "strategies")
    packages = [word for room in rooms for word in ("-p", room)]
    run(copy, "-m", "mypy", "--config-file", "pyproject.toml", *packages)


@pytest.mark.slow
@pytest.mark.faults
def test_the_tests_on_the_page_and_those_that_it_names_pass(copy):
    tests = [name for name, *_ in BLOCKS if name.startswith("tests/")]
    assert len(tests) == 4
    triples = "test_the_triples_hold_every_pair_of_parts_that_they_should"
    committed = "test_the_committed_example_was_made_by_make_run"
    objectives = "test_every_objective_is_what_the_server_says_of_it"
    others = (
        *(f"app/run/test_systems.py::{triples}", f"app/run/test_experiment.py::{committed}"),
        *("strategies/test_catalogue.py", f"clients/test_local_training.py::{objectives}"),
        *("test_house.py", "app/config/test_options.py", "docs/test_numbers.py"),
        "test_all_of_it.py",
    )
    tests += [f"tests/{name}" for name in others]
    said = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests)
    assert "passed" in said
