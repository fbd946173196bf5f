"""A paper's table again: cells that are run once, whatever stops the run in between."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fl_app.cli import main
from fl_app.reproduce import cells as cells_module
from fl_app.reproduce import code_state
from fl_app.reproduce.cells import find_missing, read_cells, run_missing, task_means, wanted_cells
from fl_app.reproduce.drawing import draw
from fl_app.reproduce.experiment import Claim, Experiment, list_experiments, read_experiment
from fl_app.reproduce.formula import expected_bytes
from fl_app.reproduce.measures import check_measure, measure
from fl_app.reproduce.page import Place, judge, measured_of, page
from fl_app.reproduce.verdicts import verdicts

ROOT = Path(__file__).parents[1]
TEXT = """
paper = "Somebody"
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
[variants."optimum (twice)"]
strategy = "optimum"
local-epochs = 4
[published.accuracy.digits.two]
optimum = [94.0, 0.5]
single = [88.0]
[[claims]]
says = "knowing the tasks helps"
left = "optimum"
relation = "above"
right = "single"
points = 2
[[explanations]]
text = "They have other data."
methods = ["optimum"]
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(TEXT, encoding="utf-8")
    return read_experiment(path)


def found(**accuracies):
    """Return what a simulation leaves of a cell."""
    return {
        "seconds": 1800.0,
        "versions": {"torch": "2"},
        "methods": {name: {"accuracy": value} for name, value in accuracies.items()},
    }


def cell(column, seed, variant="", code="a", **accuracies):
    """Return a cell of the file of raw numbers."""
    if variant:
        accuracies = {variant: accuracies["optimum"]}
    place = {"row": "digits", "column": column, "variant": variant, "seed": seed}
    return {**place, "state": "s", "code": code, **found(**accuracies)}


@pytest.fixture
def counted(monkeypatch):
    """Let no cell be simulated, and count those that would be."""
    ran = []

    def run(given, config, workers, *, with_formula):
        ran.append((given["num-tasks"], given.get("local-epochs", 2), given["seed"]))
        if given["seed"] == 1 and "killed" not in ran:
            ran.append("killed")
            raise KeyboardInterrupt
        both = found(optimum=0.9 + given["seed"] / 100, single=0.8)
        return {**both, "methods": {name: both["methods"][name] for name in config.strategy}}

    monkeypatch.setattr(cells_module, "_run", run)
    return ran


def run_all(experiment, path, seeds=2):
    missing = find_missing(experiment, path, seeds)
    return list(run_missing(experiment, path, missing, workers=1))


def test_a_stopped_run_goes_on_where_it_was(experiment, tmp_path, counted):
    path = tmp_path / "digits.json"
    with pytest.raises(KeyboardInterrupt):
        run_all(experiment, path)
    first = [(2, 2, 0), (2, 4, 0), (3, 2, 0), (3, 4, 0)]
    assert counted == [*first, (2, 2, 1), "killed"]
    assert len(read_cells(path)) == 4
    assert [one.wanted.seed for one in run_all(experiment, path)] == [1, 1, 1, 1]
    assert counted[6:] == [(tasks, epochs, 1) for tasks, epochs, _ in first]
    assert run_all(experiment, path) == []
    cells = read_cells(path)
    assert [w.is_of(c) for w, c in zip(wanted_cells(experiment, 2), cells, strict=True)]
    assert [list(c["methods"]) for c in cells[:2]] == [["optimum", "single"], ["optimum (twice)"]]


def test_only_what_has_changed_is_run_again(experiment, tmp_path, counted, monkeypatch):
    path = tmp_path / "digits.json"
    run_all(experiment, path, seeds=1)
    counted.clear()
    experiment.columns["three"]["num-tasks"] = 5
    missing = find_missing(experiment, path, 2)
    assert [one.outdated for one in missing] == [True, True, False, False, False, False]
    again = [str(one.wanted) for one in run_all(experiment, path, 1)]
    assert again == ["digits, three, seed 0", "digits, three, optimum (twice), seed 0"]
    monkeypatch.setattr(code_state, "code_hash", lambda path: f"new {path.name}")
    assert len(run_all(experiment, path, seeds=1)) == 4
    assert counted == [(5, 2, 0), (5, 4, 0), (2, 2, 0), (2, 4, 0), (5, 2, 0), (5, 4, 0)]
    assert len(read_cells(path)) == 4


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
        cell("two", 1, optimum=0.96, single=0.93),
        cell("two", 0, optimum=0.94, single=0.93),
        cell("two", 0, "optimum (twice)", optimum=0.97),
    ]
    place = Place("accuracy", "digits", "two", "optimum")
    assert measured_of(experiment, cells)[place].tolist() == [94, 96]
    text = page(experiment, cells)
    # 95 ± √2, a point above the paper's 94 ± 0.5; where nothing was published, there is only ours.
    assert "| accuracy % | two: paper | ours | difference | three |" in text
    assert "| optimum | 94.0 ± 0.5 | 95.0 ± 1.4 | **+1.0** | – |" in text
    assert "| single | 88.0 | 93.0 ± 0.0 | +5.0 | – |" in text
    assert "| optimum (twice) | – | 97.0 | – | – |" in text
    assert "knowing the tasks helps: **holds**, in 1 of 1 cells." in text
    assert "- They have other data. (digits, two: optimum.)" in text
    assert "Not finished: 3 of 8 simulations so far." in text
    assert "3 simulations, 2 seeds, 1.5 hours in all." in text
    assert "different versions" not in text
    cells[0] = cell("two", 1, code="b", optimum=0.96, single=0.96)
    worse = page(experiment, cells)
    assert "**does not hold**, in 0 of 1 cells." in worse
    assert "The cells were made by different versions of the code." in worse
    small = page(experiment.as_small(), cells)
    assert "these numbers say nothing" in small
    assert "fedkin reproduce digits --quick" in small
    assert "94.0 ± 0.5" not in small


def test_what_no_experiment_explains_is_said(experiment):
    bare = replace(experiment, explanations=())
    text = page(bare, [cell("two", 0, optimum=0.95, single=0.9)])
    assert "- Not explained by an experiment: digits, two: optimum." in text


def test_the_verdicts_by_hand(experiment):
    cells = [
        cell("two", 0, optimum=0.95, single=0.9),
        cell("three", 0, optimum=0.9, single=0.9),
    ]
    borrowed = replace(experiment.claims[0], paper="Others")
    other = replace(experiment, name="letters", needs="letters", claims=[borrowed])
    text = verdicts([(experiment, cells), (other, [])])
    assert "| knowing the tasks helps | **partly** | 1 of 2 | [digits](digits.md) |" in text
    untried = "| knowing the tasks helps | **could not be tried here**: needs letters | – | letters"
    assert untried in text
    assert text.index("## Others") < text.index("## Somebody")
    assert "| [digits](digits.md) | Two tasks or three | 2 | 1 | 1.0 |" in text
    assert "| letters | Two tasks or three (needs letters) | 0 | 0 | – |" in text


KEPT = {
    "accuracy": 0.9,
    "accuracy-variance": 0.0004,
    "clusters": [0, 1, 1, -1],
    "bytes": {"pre-round-up": 3e6, "pre-round-down": 3e6, "train-up": 6e6, "train-down": 6e6},
    "rounds": {
        "1": {"accuracy": 0.5, "bytes": 9e6},
        "2": {"accuracy": 0.892, "bytes": 12e6},
        "3": {"bytes": 15e6},
        "4": {"accuracy": 0.9, "bytes": 18e6, "accuracy-per-task": {"0": 0.8, "1": 1.0}},
    },
    "similarity-per-task": [[None, 0.3], [0.3, 0.9]],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accuracy", 90),
        ("variance", 4),
        ("clusters", 2),
        ("megabytes", 6),  # three clients took part
        ("pre-round", 2),
        ("arrival-round", 2),  # 0.892 is above 0.891, 99 % of 0.9
        ("arrival-megabytes", 4),
        ("gain", 0.8),  # the last third is after round 2
        ("at:2", 89.2),
        ("at:3", math.nan),
        ("task:1", 80),
        ("relevance:1-2", 0.3),
        ("relevance:1-1", math.nan),  # one client
        ("relevance:1-3", math.nan),
        ("ari", math.nan),
    ],
)
def test_a_measure_by_hand(name, value):
    check_measure(name)
    assert measure(name, KEPT) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("name", ["acuracy", "task", "task:0", "task:1-2", "ari:1", "relevance:1"])
def test_a_measure_that_is_none_is_named(name):
    with pytest.raises(ValueError, match=f'measure "{name}"'):
        check_measure(name)


def test_similarities_by_task_are_those_of_different_clients():
    similarity = np.array([[1, 0.8, 0.2], [0.8, 1, 0.4], [0.2, 0.4, 1]])
    means = task_means(similarity, np.array([0, 0, 1]))
    assert means[0] == pytest.approx([0.8, 0.3])
    assert means[1] == [pytest.approx(0.3), None]


@pytest.mark.parametrize(
    ("relation", "points", "difference", "holds"),
    [
        ("above", 0, 0.0, True),
        ("above", 0, -0.1, False),
        ("above", 2, 1.9, False),
        ("within", 0.5, -0.5, True),
        ("within", 0.5, 0.6, False),
        ("below", 0, 0.1, False),
        ("below", 2, -2.0, True),
    ],
)
def test_a_claim_by_hand(relation, points, difference, holds):
    left = 90 + difference
    assert Claim("so", "a", relation, "b", points).holds([left], [90.0]) == holds
    assert Claim("so", "a", relation, 90.0, points).holds([left], []) == holds
    # One that does not hold is enough.
    assert Claim("so", "a, c", relation, "b", points).lefts == ["a", "c"]
    assert not Claim("so", "a", relation, "b, c", points).holds([left], [90.0, math.nan])


def test_a_claim_of_spread_and_of_other_columns(experiment):
    cells = [
        cell("two", 0, optimum=0.95, single=0.90),
        cell("two", 1, optimum=0.97, single=0.80),
        cell("three", 0, optimum=0.98, single=0.95),
    ]
    measured = measured_of(experiment, cells)
    steady = Claim("so", "optimum", "below", "single", statistic="std")
    assert judge(steady, measured) == {("digits", "two"): True}  # one seed has no spread
    more = Claim("so", "single", "above", "single", 9, against={"column": "two"}, columns=["three"])
    assert judge(more, measured) == {("digits", "three"): True}  # 95 against 85
    assert not judge(replace(more, points=11), measured)["digits", "three"]
    shares = replace(more, against={"measure": "variance"})
    cells[2]["methods"]["single"]["accuracy-variance"] = 0.0085  # 85, against 95 %
    compared = replace(experiment, claims=[shares])
    assert judge(shares, measured_of(compared, cells)) == {("digits", "three"): True}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seeds = 2\nrepeats = 3", "repeats is not a key"),
        ("seeds = 2", "seeds = 0", "a row, a column, a seed and a measure"),
        ("num-tasks = 3", "num-tasks = 0", "num-tasks is 0, but it must be"),
        (
            "[published.accuracy.digits.two]",
            "[published.accuracy.letters.two]",
            "letters, two, which is no cell",
        ),
        ("optimum = [94.0, 0.5]", "flt = [94.0]", "flt has a published number, but is not"),
        ("single = [88.0]", "single = []", "a published number is a mean"),
        ("[published.accuracy", "[published.acuracy", 'there is no measure "acuracy"'),
        ('strategy = "optimum"\n', 'strategy = "flt,cfl"\n', "has more than one strategy"),
        ("seeds = 2", 'seeds = 2\npicture = "cake"', 'picture is "cake"'),
        ('right = "single"', 'right = "local"', "explanation names local"),
        ('relation = "above"', 'relation = "over"', 'relation is "over", but it must be above'),
        ("points = 2", 'statistic = "max"', 'statistic is "max", but it must be mean, std'),
        ("points = 2", 'against = {seed = "1"}', "against a row, column or measure, not a seed"),
        ("points = 2", 'against = {column = "four"}', "explanation names four"),
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
    assert len(wanted_cells(mine, mine.seeds)) == 20
    assert mine.claims[0].points == 0.5


def test_a_wrong_word_is_answered(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["reproduce", "rcc-pfl-9"]) == 2
    assert 'there is no experiment "rcc-pfl-9": experiments has bytes' in capsys.readouterr().err
    assert main(["reproduce", "rcc-pfl-2", "--page", "--output", str(tmp_path)]) == 2
    assert "no numbers in" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "rcc-pfl-2", "--seeds", "0"])


@pytest.mark.parametrize("picture", ["table", "rounds", "tasks", "sweep"])
def test_every_kind_of_picture_is_drawn_for_page_and_paper(experiment, tmp_path, picture):
    columns = dict(zip(("1", "2"), experiment.columns.values(), strict=True))
    drawn = replace(
        experiment, picture=picture, columns=columns, published={}, measures=["accuracy", "gain"]
    )
    cells = [
        {**cell(column, seed), "methods": {"optimum": KEPT, "single": KEPT}}
        for column, seed in (("1", 0), ("2", 0), ("1", 1))  # one is still missing
    ]
    if picture == "tasks":
        last = {"4": {**KEPT["rounds"]["4"]}}
        cells = [{**one, "methods": {"single": {**KEPT, "rounds": last}}} for one in cells]
    draw(drawn, cells, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000
    assert (tmp_path / "a.pdf").read_bytes()[:5] == b"%PDF-"
    before = (tmp_path / "a.pdf").read_bytes()
    draw(drawn, cells, tmp_path / "a.png")
    assert (tmp_path / "a.pdf").read_bytes() == before


def test_bytes_by_the_formula_by_hand(tmp_path):
    (tmp_path / "models/flt").mkdir(parents=True)
    save_file({"a": torch.zeros(10, 5)}, tmp_path / "models/flt/cluster-0.safetensors")
    (tmp_path / "models/ifca").symlink_to(tmp_path / "models/flt")
    given = {"strategy": "flt", "fraction-train": 0.3, "num-server-rounds": 10, "num-clusters": 3}
    config = Experiment.config({**given, "num-clients": 5, "dataset": "mnist-5k"})
    # Two of five clients, 50 numbers of four bytes, ten rounds: 800 bytes of a client, each way.
    assert expected_bytes("ifca", config, 5, tmp_path) == 800 * 4
    # FLT's encoder: two convolutions of 3×3 (1 to 16 and 16 to 4 channels), and 196 to 128.
    encoder = 16 * 9 + 16 + 4 * 16 * 9 + 4 + 196 * 128 + 128
    assert expected_bytes("flt", config, 5, tmp_path) == 2 * 800 + (encoder + 5 * 128) * 4


@pytest.mark.slow
def test_a_small_table_from_the_command_line(tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(TEXT.replace("[columns.three]\nnum-tasks = 3\n", ""), encoding="utf-8")
    words = ["reproduce", str(path), "--quick", "--output", str(tmp_path / "out")]
    command = [sys.executable, "-m", "fl_app.cli", *words]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    folder = tmp_path / "out" / "quick"
    cells = read_cells(folder / "digits.json")
    assert [one["variant"] for one in cells] == ["", "optimum (twice)"]
    kept = cells[0]["methods"]["optimum"]
    assert list(kept["rounds"]) == ["1", "2"]
    last = kept["rounds"]["2"]
    assert last["accuracy"] == pytest.approx(kept["accuracy"])
    of_clients = [last["accuracy-per-task"][str(task)] for task in kept["tasks"]]
    assert np.mean(of_clients) == pytest.approx(kept["accuracy"], abs=1e-5)
    assert last["bytes"] == sum(
        count for way, count in kept["bytes"].items() if way.startswith(("pre-round", "train"))
    )
    assert (folder / "digits.png").stat().st_size > 10_000
    assert (folder / "digits.pdf").read_bytes()[:5] == b"%PDF-"
    text = (folder / "digits.md").read_text(encoding="utf-8")
    assert f"{100 * cells[0]['methods']['single']['accuracy']:.1f}" in text
    before = (folder / "digits.json").read_bytes()
    again = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert "2 of 2 simulations are finished.\n" in again.stdout
    assert "simulation 1" not in again.stdout
    assert (folder / "digits.json").read_bytes() == before
    assert json.loads(before)["cells"][0]["versions"]["torch"]
    assert np.isfinite([one["seconds"] for one in cells]).all()
