"""The other apps of `examples/`, command by command.

own_app is in examples/test_own_app.py, the notebooks are in examples/test_notebooks.py.
"""

import json
import re
import shutil
import subprocess
import sys

import pytest

from fl_app.config.run_config import parse_override
from fl_core.user_code import call_user_code
from tests.app_runs import DEFAULTS
from tests.example_runs import EXAMPLES, ROOT, run_example, simulate_here, typed
from tests.own_modules import own_modules, run_alone

TESTED = {"own_app", "own_code", "own_number", "own_strategy", "own_images", "notebooks"}


def test_every_example_says_what_to_type_and_is_run_here():
    assert {page.parent.name for page in EXAMPLES.glob("*/README.md")} == TESTED
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+)/README.md\)", index)) == TESTED


def test_the_page_on_strategies_shows_the_examples_clustering():
    page = (ROOT / "docs/adding.md").read_text(encoding="utf-8")
    shown = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    assert (EXAMPLES / "own_strategy/bias_app/bias.py").read_text(encoding="utf-8") == shown


@pytest.mark.slow
@pytest.mark.faults
def test_a_user_defined_strategy_groups_its_clients_and_learns(tmp_path):
    said = run_example("own_strategy", tmp_path)
    assert "clusters {0: 0, 1: 1, 2: 2, 3: 0, 4: 1, 5: 2}" in said, said
    accuracies = [float(found) for found in re.findall(r"round \d accuracy ([\d.]+)", said)]
    assert len(accuracies) == 3
    assert accuracies == sorted(set(accuracies))


@pytest.mark.faults
@pytest.mark.slow
def test_user_defined_code_is_imported_by_all_processes_and_gives_the_same_in_one(tmp_path):
    """Data, model and clustering: Ray's workers, and this process alone, to the last bit."""
    said = run_example("own_code", tmp_path)
    (file,) = (tmp_path / "app/results").glob("*/summary.json")
    summary = json.loads(file.read_text(encoding="utf-8"))
    assert [one["ari"] for one in summary["runs"]] == [1, 1, 0], said
    page = (EXAMPLES / "own_code/README.md").read_text(encoding="utf-8")
    clustered, single = re.findall(r"(\d+\.\d) %", page)
    accuracies = [f"{100 * one['accuracy']:.1f}" for one in summary["runs"]]
    assert accuracies == [clustered, clustered, single]
    with own_modules(tmp_path / "app"):
        alone = run_alone({**summary["config"], "output-dir": str(tmp_path / "alone")})
    for key in ("clusters", "accuracy-per-client", "bytes"):
        assert [one[key] for one in alone["runs"]] == [one[key] for one in summary["runs"]]


def test_local_images_are_clustered(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES / "own_images", tmp_path / "app")
    monkeypatch.chdir(tmp_path / "app")
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    make, run = typed(EXAMPLES / "own_images/README.md")
    subprocess.run([sys.executable, *make[1:]], check=True)
    (found,) = simulate_here(run)["runs"]
    assert found["ari"] == 1
    assert min(found["accuracy-per-client"]) > 0.9


@pytest.mark.slow
@pytest.mark.faults
def test_a_number_is_predicted_better_than_by_its_mean(tmp_path):
    sites = (EXAMPLES / "own_number/sites.py").read_text(encoding="utf-8")
    page = EXAMPLES / "own_number/README.md"
    (words,) = typed(page)
    with own_modules(tmp_path, sites=sites):
        guess = call_user_code("dataset", "sites:guess")
        options = dict(parse_override(word) for word in words[2:])
        summary = run_alone({**DEFAULTS, **options, "output-dir": str(tmp_path / "out")})
    errors = {run["strategy"]: run["rmse"] for run in summary["runs"]}
    assert all(error < 0.85 * guess for error in errors.values())
    shown = re.findall(r"0\.\d\d", page.read_text(encoding="utf-8").partition("the RMSE is")[2])
    assert [f"{error:.2f}" for error in (errors["single"], errors["local"], guess)] == shown
