"""Tables in the docs are what the committed runs say."""

import re
from pathlib import Path

import pytest

from benchmarks import pages, writing
from experiments.__main__ import main
from fl_core.options import typed
from tests.app_runs import undrawn_pictures

ROOT = Path(__file__).parents[2]
RUNS = sorted(path.name.partition(".")[0] for path in writing.RUNS.glob("*.json.xz"))
COMPARED = [name for name in RUNS if not name.startswith("make-run")]
COMMANDS = {name: words for runs in pages.RUNS.values() for name, words in runs.items()}


def test_the_comparison_is_that_of_the_committed_runs():
    page = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    assert pages.compared() in page


def test_the_readme_counts_the_verdicts_on_the_papers_claims():
    page = (ROOT / "docs/results/README.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("- Claims of the papers"))
    holds, partly, undecided, does_not, unjudged = counts = list(map(int, re.findall(r"\d+", line)))
    text = (
        f"Of {sum(counts)} claims of the papers that were tried, {holds} hold, {partly} hold "
        f"partly, {undecided} are undecided, {does_not} do not hold, and {unjudged} could not "
        "be judged."
    )
    assert text in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_pages_of_measurements_are_those_of_the_committed_numbers():
    assert sorted(COMMANDS) == COMPARED  # each committed run is shown
    for path, text in pages.written().items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, path


@pytest.mark.parametrize("name", COMPARED)
def test_the_command_on_the_page_made_the_committed_run(name):
    config = writing.run_of(name)["config"]
    expected = dict(word.split("=", 1) for word in COMMANDS[name].split())
    if expected["strategy"] == "all":  # written out there
        expected["strategy"] = config["strategy"]
    for key, value in expected.items():
        assert typed(config[key]) in (value, f"{value}.0"), key


def test_the_pages_of_the_papers_are_those_of_their_raw_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    with undrawn_pictures():  # each kind is drawn in experiments/test_tables.py
        assert main(["--page"]) == 0
    committed, made = ROOT / "docs/results", tmp_path / "docs/results"
    pages = sorted(path.name for path in made.glob("*.md"))
    assert pages == sorted(path.name for path in committed.glob("*.md"))
    assert len(pages) > 10
    for name in pages:
        written = (made / name).read_text(encoding="utf-8")
        assert written == (committed / name).read_text(encoding="utf-8"), name
