"""Tables in the docs are what the committed runs say."""

import json
import re
import shutil
from pathlib import Path

import pytest

from benchmarks import principal_angles
from benchmarks.comparison import markdown, read_runs
from fl_app.cli import main
from fl_app.report.tables import event_tables, render, strategy_table
from fl_app.studies.reproduce import command
from tests.app_runs import undrawn_pictures

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/strategies.md").read_text(encoding="utf-8")
NAMED = re.findall(r"<!-- (docs/runs/\S+\.json) -->\n\n```\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"```sh\nfedkin run (.*?)```", PAGE, re.DOTALL)


def test_the_comparison_is_that_of_the_committed_runs():
    assert markdown(read_runs()) in PAGE


def test_the_readings_of_pacfl_are_the_measured_ones():
    path = ROOT / "docs/runs/measured/principal-angles.json"
    measured = json.loads(path.read_text(encoding="utf-8"))
    for table in principal_angles.tables(measured).values():
        assert table in PAGE
    tasks = [row for row in measured["tasks"] if row["reading"] == "equation 2"]
    assert {row["ari"] for row in tasks} == {1}
    assert {row["seed"] for row in tasks} == set(range(principal_angles.SEEDS))


def test_every_committed_run_is_shown():
    shown = sorted(name for name, _ in NAMED)
    assert shown == sorted(
        path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/runs/*.json")
    )
    assert len(shown) > 5


@pytest.mark.parametrize(("name", "table"), NAMED)
def test_the_page_shows_the_committed_run(name, table):
    summary = json.loads((ROOT / name).read_text(encoding="utf-8"))
    tables = [strategy_table(summary["table"], summary["runs"]), *event_tables(summary["runs"])]
    assert table == "\n".join(render(one) for one in tables)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_on_the_page_made_a_committed_run(command):
    wanted = dict(word.split("=", 1) for word in command.replace("\\\n", " ").split())
    configs = [json.loads((ROOT / name).read_text(encoding="utf-8"))["config"] for name, _ in NAMED]
    del wanted["strategy"]  # "all" is written out, and two runs share a command
    assert any(
        all(str(config[key]) in (value, f"{value}.0") for key, value in wanted.items())
        for config in configs
    )


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
