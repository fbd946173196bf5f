"""The three tutorials, command by command: what they say one sees is seen.

Simulations are run in this process, without Ray; all other commands as they stand.
"""

import re
import shutil
import subprocess
import sys

import pytest

from experiments.__main__ import main as list_tables
from fl_app.cli import main
from tests.app_runs import undrawn_pictures
from tests.example_runs import ROOT, promised_by, simulate_here, typed
from tests.own_modules import own_modules

pytestmark = pytest.mark.slow


def tutorial(name):
    return ROOT / f"docs/tutorial-{name}.md"


def tables(page):
    """Return accuracy in percent and ARI by strategy, of each table of strategies on a page."""
    found = []
    for line in promised_by(page):
        if line.startswith("Test accuracy"):
            found.append({})
        row = re.match(r"│ (\S+) +│ +([\d.]+)[^│]*│ +[\d.]+[^│]*│ +(-?\d\.\d\d) │", line)
        if row:
            found[-1][row[1]] = (float(row[2]), float(row[3]))
    return found


def assert_seen(summary, table):
    assert [row["strategy"] for row in summary["table"]] == list(table)
    for row in summary["table"]:
        accuracy, ari = table[row["strategy"]]
        assert 100 * row["accuracy-mean"] == pytest.approx(accuracy, abs=1)
        assert row["ari-mean"] == pytest.approx(ari, abs=0.1)


def begin(name, folder, monkeypatch):
    """Copy the example in which a tutorial is typed, go there, and return its commands."""
    change, *commands = typed(tutorial(name))
    assert change[0] == "cd"
    shutil.copytree(ROOT / change[1], folder / "here")
    monkeypatch.chdir(folder / "here")
    return commands


@pytest.mark.faults
def test_the_student_sees_when_clustering_helps_and_when_it_cannot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tutorial("student")
    for number, (words, table) in enumerate(zip(typed(page), tables(page), strict=True)):
        assert_seen(simulate_here(words, output_dir=f"{number}"), table)


def test_the_engineer_learns_who_belongs_together(tmp_path, monkeypatch, capsys):
    make, group, place, trial, back, keys = begin("engineer", tmp_path, monkeypatch)
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    subprocess.run([sys.executable, *make[1:]], check=True)
    with undrawn_pictures():
        assert main(group[1:]) == 0
    said = capsys.readouterr().out
    doubt = said.partition("In doubt: 1 client(s)")[2].partition("How many groups")[0]
    assert re.findall(r"site-\d+", doubt) == ["site-20"]
    for line in promised_by(tutorial("engineer")):
        if line.count("site-") > 1:
            assert line in said
    assert "cost: 13 kB per client for this pre-round, 353 kB for each round" in said
    assert main(place[1:]) == 0
    assert "cluster 0, with site-01 site-03" in capsys.readouterr().out
    assert main([*trial[1:], "--dry-run"]) == 0  # a minute, with as many models as sites
    assert "11 training(s)" in capsys.readouterr().out
    assert back == ["cd", "../.."]  # where devices.md looks for the certificates
    assert main(keys[1:]) == 0
    assert "To device site-02: ca.crt and devices/site-02.key." in capsys.readouterr().out


@pytest.mark.faults
def test_the_researcher_compares_a_user_defined_clustering(tmp_path, monkeypatch, capsys):
    run, sweep, report, back, listed = begin("researcher", tmp_path, monkeypatch)
    page = tutorial("researcher")
    (table,) = tables(page)
    with own_modules(tmp_path / "here"):
        assert_seen(simulate_here(run, repeats=1), table)
        assert main(sweep[1:]) == 0
        assert "3 simulations (27 trainings), 0 finished" in capsys.readouterr().out
        # Who is together is known after round 1; here for the most wrong labels.
        (cells,) = re.findall(r"^\| 0.45 \| (.*) \|$", page.read_text(encoding="utf-8"), re.M)
        shown = [float(cell.strip("* ").split()[0]) for cell in cells.split("|")]
        swept = {"noise": "class-dependent", "noise_rate": 0.45, "output_dir": "swept"}
        found = simulate_here(run, num_server_rounds=1, **swept)
        assert [one["ari-mean"] for one in found["table"]] == pytest.approx(shown, abs=0.1)
    assert main(report[1:]) == 0
    assert "\\begin{tabular" in (tmp_path / "here/first.tex").read_text(encoding="utf-8")
    assert back == ["cd", "../.."]  # of an example's folder, which is a copy here
    monkeypatch.chdir(ROOT)
    assert listed == ["make", "reproduce"]
    list_tables([])
