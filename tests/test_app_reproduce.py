"""A paper's table again: cells that are run once, whatever stops the run in between."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fl_app.cli import main
from fl_app.reproduce import cells as cells_module
from fl_app.reproduce import code_state
from fl_app.reproduce.cells import Wanted, read_cells, run_missing, wanted_cells
from fl_app.reproduce.experiment import Claim, list_experiments, read_experiment
from fl_app.reproduce.page import measured_of, page

ROOT = Path(__file__).parents[1]
TEXT = """
title = "Two tasks or three"
source = "Somebody, 2020, Table 1"
note = "They do not say much."
seeds = 2
[options]
strategy = "optimum,single"
num-clients = 6
model = "mlp-32"
num-server-rounds = 1
[quick]
num-server-rounds = 2
[rows.digits]
dataset = "mnist-5k"
[columns.two]
num-tasks = 2
[columns.three]
num-tasks = 3
[published.digits.two]
optimum = [94.0, 0.5]
single = [88.0]
[[claims]]
says = "knowing the tasks helps"
left = "optimum"
relation = "above"
right = "single"
points = 2
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(TEXT, encoding="utf-8")
    return read_experiment(path)


def found(optimum, single):
    """Return what a simulation leaves of a cell."""
    return {
        "seconds": 1800.0,
        "versions": {"torch": "2"},
        "strategies": {"optimum": {"accuracy": optimum}, "single": {"accuracy": single}},
    }


@pytest.fixture
def counted(monkeypatch):
    """Let no cell be simulated, and count those that would be."""
    ran = []

    def run(given, num_clients, workers):
        ran.append((given["num-tasks"], given["seed"]))
        if len(ran) == 3 and given["seed"] == 1:
            ran.append("killed")
            raise KeyboardInterrupt
        return found(0.9 + given["seed"] / 100, 0.8)

    monkeypatch.setattr(cells_module, "_run", run)
    return ran


def run_all(experiment, path, seeds=2, quick=False):
    return list(run_missing(experiment, path, seeds=seeds, quick=quick, workers=1))


def test_a_stopped_run_goes_on_where_it_was(experiment, tmp_path, counted):
    path = tmp_path / "digits.json"
    with pytest.raises(KeyboardInterrupt):
        run_all(experiment, path)
    assert len(read_cells(path)) == 2
    assert [done for done, _, _ in run_all(experiment, path)] == [2, 3]
    assert counted == [(2, 0), (3, 0), (2, 1), "killed", (2, 1), (3, 1)]
    assert run_all(experiment, path) == []
    assert [w.is_of(c) for w, c in zip(wanted_cells(experiment, 2), read_cells(path), strict=True)]


def test_only_what_has_changed_is_run_again(experiment, tmp_path, counted, monkeypatch):
    path = tmp_path / "digits.json"
    run_all(experiment, path, seeds=1)
    experiment.columns["three"]["num-tasks"] = 5
    assert [one for _, _, one in run_all(experiment, path, 1)] == [Wanted("digits", "three", 0)]
    monkeypatch.setattr(code_state, "code_hash", lambda path: f"new {path.name}")
    assert len(run_all(experiment, path, seeds=1)) == 2
    assert counted == [(2, 0), (3, 0), (5, 0), (2, 0), (5, 0)]
    assert len(read_cells(path)) == 2


def test_code_that_is_not_used_and_words_do_not_count(tmp_path):
    names = {path.name for path in code_state.code_of(["rcc-pfl", "single"])}
    assert {"spectral.py", "aggregation.py", "partition.py", "handlers.py", "config.py"} <= names
    assert not names & {"ifca.py", "cfl.py", "flt.py", "catalogue.py", "cli.py", "superlink.py"}
    # PCA + k-means + HC asks for its centroids as FLT does.
    assert "flt.py" in {path.name for path in code_state.code_of(["pca-km-hc"])}
    assert "mt_hfl.py" in {path.name for path in code_state.code_of(["update+lps-gps"])}

    def hash_of(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return code_state.code_hash(tmp_path / name)

    same = hash_of("a.py", '"""Words."""\ndef f():\n    """More."""\n    return 1  # why\n')
    assert same == hash_of("b.py", '"""Other words."""\n\ndef f():\n    return (1)\n')
    assert same != hash_of("c.py", "def f():\n    return 2\n")


def test_the_page_by_hand(experiment):
    cells = [
        {"row": "digits", "column": "two", "seed": seed, "code": "a", **found(accuracy, 0.93)}
        for seed, accuracy in ((1, 0.96), (0, 0.94))
    ]
    assert measured_of(experiment, cells)["digits"]["two"]["optimum"].tolist() == [94, 96]
    text = page(experiment, cells, "fedkin reproduce digits", quick=False)
    # 95 ± √2, a point above the paper's 94; without a published number there is no difference.
    assert "| optimum | 94.0 ± 0.5 | 95.0 ± 1.4 | +1.0 | – | – | – |" in text
    assert "| single | 88.0 | 93.0 ± 0.0 | +5.0 | – | – | – |" in text
    assert "knowing the tasks helps: **holds in 1 of 1 cells**." in text
    assert "Not finished: 2 of 4 cells so far." in text
    assert "2 federations, 2 seeds, 1.0 hours in all." in text
    assert "different versions" not in text
    cells[0]["strategies"]["single"]["accuracy"] = 0.96
    cells[0]["code"] = "b"
    worse = page(experiment, cells, "fedkin reproduce digits", quick=True)
    assert "**holds in 0 of 1 cells**; not in digits, two." in worse
    assert "these numbers say nothing" in worse
    assert "The cells were made by different versions of the code." in worse


@pytest.mark.parametrize(
    ("relation", "points", "difference", "holds"),
    [
        ("above", 0, 0.0, True),
        ("above", 0, -0.1, False),
        ("above", 2, 1.9, False),
        ("within", 0.5, -0.5, True),
        ("within", 0.5, 0.6, False),
    ],
)
def test_a_claim_by_hand(relation, points, difference, holds):
    claim = Claim("so", "a", relation, "b", points)
    assert claim.holds({"a": 90 + difference, "b": 90.0}) == holds


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seeds = 2\nrepeats = 3", "repeats is not a key"),
        ("seeds = 2", "seeds = 0", "a row, a column and a seed"),
        ("num-tasks = 3", "num-tasks = 0", "num-tasks is 0, but it must be"),
        ("[published.digits.two]", "[published.letters.two]", "letters, two, which is no cell"),
        ("optimum = [94.0, 0.5]", "flt = [94.0]", "flt has a published number, but is not"),
        ("single = [88.0]", "single = []", "single has 0 published numbers"),
        ('right = "single"', 'right = "local"', "a claim names local"),
        ('relation = "above"', 'relation = "below"', 'relation is "below", but it must be above'),
        ("title =", "title", "Expected"),
        ('title = "Two tasks or three"', "", "title"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, old, new, message):
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=f"wrong.toml: .*{message}"):
        read_experiment(path)


def test_numbers_that_are_none_are_refused_and_kept(tmp_path):
    path = tmp_path / "digits.json"
    for text in ("{}", '{"cells": [{"row": "a"}]}', "nothing"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match="does not hold the numbers of an experiment"):
            read_cells(path)
        assert path.read_text(encoding="utf-8") == text


def test_the_committed_experiments_can_be_read_and_listed(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    experiments = list_experiments(ROOT / "experiments")
    assert main(["reproduce", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [one.name for one in experiments]
    assert {"rcc-pfl-2", "rcc-pfl-3"} <= {one.name for one in experiments}


def test_the_file_that_the_page_explains_can_be_read(tmp_path):
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text(example[1], encoding="utf-8")
    mine = read_experiment(tmp_path / "mine.toml")
    assert len(wanted_cells(mine, mine.seeds)) == 10
    assert mine.claims[0].points == 0.5


def test_a_wrong_word_is_answered(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "rcc-pfl-9"]) == 2
    assert 'there is no experiment "rcc-pfl-9": experiments has rcc' in capsys.readouterr().err
    assert main(["reproduce", "rcc-pfl-2", "--page", "--output", str(tmp_path)]) == 2
    assert "no numbers in" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "rcc-pfl-2", "--seeds", "0"])


@pytest.mark.slow
def test_a_small_table_from_the_command_line(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(TEXT, encoding="utf-8")
    words = ["reproduce", str(path), "--quick", "--output", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fl_app.cli", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    folder = tmp_path / "out" / "quick"
    cells = read_cells(folder / "digits.json")
    assert [(cell["column"], cell["seed"]) for cell in cells] == [("two", 0), ("three", 0)]
    curves = cells[0]["strategies"]["optimum"]["accuracy-per-round"]
    assert list(curves) == ["1", "2"]
    assert curves["2"] == pytest.approx(cells[0]["strategies"]["optimum"]["accuracy"])
    assert (folder / "digits.png").stat().st_size > 10_000
    text = (folder / "digits.md").read_text(encoding="utf-8")
    assert f"{100 * cells[0]['strategies']['single']['accuracy']:.1f}" in text
    before = (folder / "digits.json").read_bytes()
    again = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert "cell " not in again.stdout
    assert (folder / "digits.json").read_bytes() == before
    assert json.loads(before)["cells"][0]["versions"]["torch"]
    assert np.isfinite([cell["seconds"] for cell in cells]).all()
