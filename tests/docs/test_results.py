"""Tables in the docs are what the committed runs say."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import pages, principal_angles
from benchmarks.comparison import markdown, read_runs
from fl_app.cli import main
from fl_app.studies.reproduce import reproduce_command as command
from fl_app.studies.reproduce.cells import read_cells
from tests.app_runs import undrawn_pictures

ROOT = Path(__file__).parents[2]
RUNS = {path.stem: path for path in ROOT.glob("docs/runs/*.json")}


def test_the_comparison_is_that_of_the_committed_runs():
    page = (ROOT / "docs/strategies.md").read_text(encoding="utf-8")
    assert markdown(read_runs()) in page


def test_the_pages_of_measurements_are_those_of_the_committed_numbers():
    written = pages.written()
    assert {path.stem for path in ROOT.glob("docs/measured/*")} == set(written)
    for name, text in written.items():
        assert (ROOT / f"docs/measured/{name}.md").read_text(encoding="utf-8") == text, name


def test_the_readings_of_pacfl_are_the_measured_ones():
    path = ROOT / "docs/runs/measured/principal-angles.json"
    measured = json.loads(path.read_text(encoding="utf-8"))
    tasks = [row for row in measured["tasks"] if row["reading"] == "equation 2"]
    assert {row["ari"] for row in tasks} == {1}
    assert {row["seed"] for row in tasks} == set(range(principal_angles.SEEDS))


def test_every_committed_run_is_shown():
    assert set(pages.RUNS) == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_the_command_on_the_page_made_the_committed_run(name):
    config = json.loads(RUNS[name].read_text(encoding="utf-8"))["config"]
    wanted = dict(word.split("=", 1) for word in pages.RUNS[name][1].split())
    if wanted["strategy"] == "all":  # written out there
        wanted["strategy"] = config["strategy"]
    for key, value in wanted.items():
        assert str(config[key]) in (value, f"{value}.0"), key


def test_the_pages_of_the_papers_are_those_of_their_raw_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    committed = ROOT / "docs/results"
    for numbers in committed.glob("*.json"):
        shutil.copy(numbers, tmp_path)
    with undrawn_pictures():  # each kind is drawn in app/studies/test_reproduce.py
        assert main(["reproduce", "--page"]) == 0
    pages = sorted(path.name for path in tmp_path.glob("*.md"))
    assert pages == sorted(path.name for path in committed.glob("*.md"))
    assert len(pages) > 10
    for name in pages:
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert written == (committed / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/results/*.json")), ids=lambda one: one.stem)
def test_no_cell_has_the_accuracies_of_other_data(path):
    """As it was when a training was shared by simulations on data sets of one shape."""
    datasets = {}
    for cell in read_cells(path):
        for numbers in cell["methods"].values():
            if "same-as" in numbers:
                key = str(numbers.get("accuracy-per-client") or numbers.get("rmse-per-client"))
                datasets.setdefault(key, set()).add(cell["given"]["dataset"])
    assert all(len(names) == 1 for names in datasets.values())
