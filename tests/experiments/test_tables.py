"""A paper's table again: cells that are run once, even if the run is stopped."""

import lzma
import math
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import experiments.cells as cells_module
from experiments.__main__ import main
from experiments.cells import ALL, all_cells, current_cells, find_missing, run_into, run_missing
from experiments.claims import Claim
from experiments.experiment_file import Experiment, list_experiments, read_experiment
from experiments.formula import expected_bytes
from experiments.judging import TableEntry, judge, measured_of
from experiments.page import page
from experiments.table_pictures import draw, draw_agreement
from experiments.verdicts import Table, claims_page, front_page
from fl_app.report import pictures
from fl_app.report.report_page import NO_REPORT_VARIABLE
from fl_app.run.checkpoints import Checkpoints
from fl_app.sweeps import store
from fl_app.sweeps.measures import check_measure, measure
from fl_app.sweeps.run_numbers import numbers_of_run, task_means
from fl_app.sweeps.store import read_cells, resolved_options
from tests.app_runs import ALL_STEPS, run, undrawn_pictures
from tests.own_modules import own_modules
from tests.picture_data import rows_of

ROOT = Path(__file__).parents[2]
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
relation = "at least"
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


def page_of(experiment, cells):
    return page(experiment, cells, "../numbers/digits.json.xz")


def cell(column, seed, variant="", revision="a", **accuracies):
    """Return a cell of the file of raw numbers."""
    if variant:
        accuracies = {variant: accuracies["optimum"]}
    given = {"strategy": "optimum,single", "num-clients": 6, "model": "mlp-32", "seed": seed}
    given |= {"num-server-rounds": 1, "dataset": "mnist-5k", "repeats": 1}
    given["num-tasks"] = {"two": 2, "three": 3, "1": 2, "2": 3}[column]
    if variant:
        given |= {"strategy": "optimum", "local-epochs": 4}
    place = {"row": "digits", "column": column, "variant": variant, "seed": seed}
    options = resolved_options(Experiment.config(given))
    return {**place, "options": options, "revision": revision, "workers": 2, **found(**accuracies)}


@pytest.fixture
def counted(monkeypatch):
    """Let no cell be simulated, and count those that would be."""
    ran = []

    def run(experiment, one, folder, workers):
        assert folder.is_dir()
        given = one.given
        ran.append((given["num-tasks"], given.get("local-epochs", 2), given["seed"]))
        if given["seed"] == 1 and "killed" not in ran:
            ran.append("killed")
            raise KeyboardInterrupt
        both = found(optimum=0.9 + given["seed"] / 100, single=0.8)
        both |= {**vars(one.key), "options": dict(one.options), "revision": "", "workers": 1}
        if one.key.variant:
            return {**both, "methods": {one.key.variant: both["methods"]["optimum"]}}
        return both

    monkeypatch.setattr(cells_module, "_run", run)
    return ran


def run_all(experiment, path, seeds=2):
    missing = find_missing(experiment, path, seeds)
    return list(run_missing(experiment, path, missing, workers=1))


def test_a_stopped_run_goes_on_where_it_was(experiment, tmp_path, counted):
    path = tmp_path / "digits.json.xz"
    with pytest.raises(KeyboardInterrupt):
        run_all(experiment, path)
    first = [(2, 2, 0), (2, 4, 0), (3, 2, 0), (3, 4, 0)]
    assert counted == [*first, (2, 2, 1), "killed"]
    assert len(read_cells(path)) == 4
    assert [one.key.seed for one in run_all(experiment, path)] == [1, 1, 1, 1]
    assert counted[6:] == [(tasks, epochs, 1) for tasks, epochs, _ in first]
    assert run_all(experiment, path) == []
    cells = read_cells(path)
    assert [one.matches(c) for one, c in zip(all_cells(experiment, 2), cells, strict=True)]
    assert [list(c["methods"]) for c in cells[:2]] == [["optimum", "single"], ["optimum (twice)"]]


def test_only_what_has_changed_is_run_again(experiment, tmp_path, counted, monkeypatch):
    path = tmp_path / "digits.json.xz"
    run_all(experiment, path, seeds=1)
    counted.clear()
    experiment.columns["three"]["num-tasks"] = 5
    missing = find_missing(experiment, path, 2)
    stored = read_cells(path)
    outdated = [one.is_in(stored, with_options=False) for one in missing]
    assert outdated == [True, True, False, False, False, False]
    again = [str(one.key) for one in run_all(experiment, path, 1)]
    assert again == ["digits, three, seed 0", "digits, three, optimum (twice), seed 0"]
    assert len(find_missing(experiment, path, 1, again=[ALL])) == 4
    # A changed default is another option, with other numbers.
    defaults = {**store.DEFAULTS, "cfl-min-size": 7}
    monkeypatch.setattr(store, "DEFAULTS", defaults)
    assert len(find_missing(experiment, path, 1)) == 0  # neither strategy reads it
    defaults["learning-rate"] = 0.5
    assert len(find_missing(experiment, path, 1)) == 4
    assert current_cells(experiment, read_cells(path)) == []
    assert counted == [(5, 2, 0), (5, 4, 0)]


def test_options_count_but_not_of_others_nor_where_files_are():
    def options(**more):
        given = {key.replace("_", "-"): value for key, value in more.items()}
        return resolved_options(Experiment.config({"strategy": "rcc-pfl,single", **given}))

    first = options()
    assert first == options(cfl_min_size=7) == options(data_dir="/a") == options(output_dir="/a")
    assert first == options(linkage="average")
    assert first != options(linkage="ward")
    assert first["learning-rate"] == 0.001
    assert first != options(learning_rate=0.5)
    tables = {"dataset": "tables", "num_clients": 2}
    assert options(**tables, data_dir="/a") != options(**tables, data_dir="/b")


def test_the_page_by_hand(experiment):
    cells = [
        cell("two", 1, optimum=0.96, single=0.93),
        cell("two", 0, optimum=0.94, single=0.93),
        cell("two", 0, "optimum (twice)", optimum=0.97),
    ]
    place = TableEntry("accuracy", "digits", "two", "optimum")
    assert measured_of(experiment, cells)[place] == {1: 96, 0: 94}
    text = page_of(experiment, cells)
    # 95 ± √2, a point above the paper's 94 ± 0.5; where nothing was published, there is only ours.
    assert "| accuracy % | two: paper | ours | difference | three |" in text
    assert "Numbers are means over seeds" in text
    assert "| optimum | 94.0 ± 0.5 | 95.0 ± 1.4 | **+1.0** | – |" in text
    assert "| single | 88.0 | 93.0 ± 0.0 | **+5.0** | – |" in text
    assert "| optimum (twice) | – | 97.0 | – | – |" in text
    assert "helps: **holds so far (two runs)**, in 1 of 2 cells. The paper's" in text
    assert "- They have other data. (accuracy %, digits, two: optimum.)" in text
    assert "Not finished: 3 of 8 simulations so far." in text
    assert "3 simulations of 2 seeds: 1.5 hours, one after the other; clients ran in 2 Ray" in text
    assert "Git revision: a (3 simulations)." in text
    assert "wrote this page, and [the raw numbers](../numbers/digits.json.xz)." in text
    assert "GPU" not in text
    cells[1]["gpu"] = "H100"
    assert "1 of them on a GPU (H100), which rounds differently." in page_of(experiment, cells)
    cells[0] = cell("two", 1, revision="b", optimum=0.96, single=0.96)
    worse = page_of(experiment, cells)
    assert "**does not hold so far (two runs)**, in 0 of 2 cells. The paper's" in worse
    assert "Git revision: a (2 simulations), b (1 simulation)." in worse
    cells[1]["options"]["num-tasks"] = 4
    assert "1 more had other options, and are not shown." in page_of(experiment, cells)
    small = page_of(experiment.as_small(), [])
    assert "these numbers say nothing" in small
    assert "python -m experiments digits --quick" in small
    assert "94.0 ± 0.5" not in small


def test_from_three_seeds_on_there_is_an_interval_beside_the_spread(experiment):
    cells = [cell("two", seed, optimum=0.94 + seed / 100, single=0.93) for seed in range(3)]
    text = page_of(experiment, cells)
    assert "| 95.0 ± 1.0 [± 2.5] | **+1.0** |" in text  # 4.3027 / √3
    assert "| 93.0 ± 0.0 | **+5.0** |" in text  # without, where it would be 0.0


def test_cells_write_no_report_each(experiment, tmp_path, monkeypatch):
    environment = {}

    def simulate(plan, show):
        environment.update(os.environ)
        (plan.folder / "summary.json").write_text("{}", encoding="utf-8")
        return True

    monkeypatch.setattr("fl_app.plan.Plan._run_on_ray", simulate)
    one = find_missing(experiment, tmp_path / "digits.json.xz", 1)[0]
    assert run_into(one, tmp_path, 1)[0] == {}
    assert environment[NO_REPORT_VARIABLE] == "1"
    monkeypatch.setenv(NO_REPORT_VARIABLE, "1")
    run(tmp_path / "silent", num_server_rounds=1, strategy="single")
    assert (tmp_path / "silent/summary.json").is_file()
    assert not (tmp_path / "silent/report.html").exists()
    monkeypatch.undo()
    run(tmp_path / "usual", num_server_rounds=1, strategy="single")
    assert (tmp_path / "usual/report.html").is_file()


@pytest.mark.parametrize(("share", "stored"), [(0.5, {"gpu": "H100"}), (0, {})])
def test_a_cell_names_the_gpu_that_its_clients_had(
    experiment, tmp_path, monkeypatch, share, stored
):
    def simulate(*_):
        (tmp_path / "summary.json").write_text("{}", encoding="utf-8")
        return True

    monkeypatch.setattr("fl_app.plan.Plan._run_on_ray", simulate)
    monkeypatch.setattr("clients.accelerator.gpu_name", {"auto": "H100"}.get)
    one = find_missing(experiment, tmp_path / "digits.json.xz", 1)[0]
    monkeypatch.setattr("fl_app.simulation.resources.gpus_per_client", lambda *_: share)
    monkeypatch.setattr(store, "revision", lambda: "abc")
    _, ran = run_into(one, tmp_path, 1)
    assert {key: ran[key] for key in ran if key == "gpu"} == stored
    assert (ran["row"], ran["revision"], ran["options"]) == ("digits", "abc", one.options)


@pytest.mark.slow
def test_without_workers_a_table_is_made_in_this_process(tmp_path, capsys):
    """That Ray has the same numbers is in app/simulation/test_launch.py."""
    path = tmp_path / "digits.toml"
    path.write_text(TEXT, encoding="utf-8")
    words = [str(path), "--quick", "--workers", "0"]
    with undrawn_pictures():
        assert main(words) == 0
    cells = read_cells(tmp_path / "results/quick/digits.json.xz")
    given = read_experiment(path).as_small().given("digits", "two", 0)
    alone = run(
        tmp_path / "alone", **ALL_STEPS | {k.replace("-", "_"): v for k, v in given.items()}
    )
    stored, expected = cells[0]["methods"]["optimum"], alone["runs"][0]
    assert stored["accuracy"] == round(expected["accuracy"], 6)
    assert stored["clusters"] == expected["clusters"]
    text = (tmp_path / "results/quick/digits.md").read_text(encoding="utf-8")
    assert "one after the other; clients ran one after the other." in text
    said = capsys.readouterr().out.splitlines()
    assert not [line for line in said if ".running/" in line and "results go to" not in line]
    assert NO_REPORT_VARIABLE not in os.environ


def without_seconds_of(cell):
    methods = cell["methods"].items()
    return {name: {k: v for k, v in one.items() if k != "seconds"} for name, one in methods}


@pytest.mark.faults
@pytest.mark.slow
def test_a_simulation_that_is_interrupted_goes_on_within_its_rounds(tmp_path, capsys, monkeypatch):
    longer = "num-server-rounds = 8\nbatch-size = 128\nlocal-epochs = 1\n"
    text = TEXT.partition("[columns.three]")[0].replace("num-server-rounds = 1\n", longer)
    experiments = {}
    for name in ("whole", "cut"):
        experiments[name] = tmp_path / f"{name}.toml"
        experiments[name].write_text(text, encoding="utf-8")
    words = ["--workers", "0", "--seeds", "1"]
    saved, save = [], Checkpoints.save

    def save_once(*args):
        save(*args)
        saved.append(args)
        if len(saved) == 3:
            raise KeyboardInterrupt

    with undrawn_pictures():
        assert main([str(experiments["whole"]), *words]) == 0
        monkeypatch.setattr(Checkpoints, "save", save_once)
        assert main([str(experiments["cut"]), *words]) == 130
        capsys.readouterr()
        assert main([str(experiments["cut"]), *words]) == 0
    rounds = re.findall(r"(\w+) +seed 0 +round +(\d+)/8", capsys.readouterr().out)
    assert next(int(number) for name, number in rounds if name == "optimum") == 4
    assert next(int(number) for name, number in rounds if name == "single") == 1
    folder = tmp_path / "results"
    found, expected = (read_cells(folder / f"{name}.json.xz") for name in ("cut", "whole"))
    assert [without_seconds_of(cell) for cell in found] == [without_seconds_of(c) for c in expected]
    spent = (one["seconds"]["train"] for one in found[0]["methods"].values())
    assert found[0]["seconds"] > sum(spent)
    assert not list(folder.glob(".*.running"))


NOBODYS_TASKS = """
import numpy as np
from fl_core.data.user_data import Partitions


def load():
    rng, clients = np.random.default_rng(0), []
    for client in range(4):
        labels = np.arange(40) % 2
        rows = rng.normal(size=(40, 3)).astype(np.float32)
        rows[:, client % 2] += 4 * labels
        clients.append((rows[:30], labels[:30], rows[30:], labels[30:]))
    return Partitions(clients)
"""


@pytest.mark.slow  # a run
def test_a_method_that_is_left_out_costs_a_cell_nothing_and_is_named(tmp_path):
    """No one knows these clients' tasks, which `optimum` needs."""
    text = TEXT.partition("[quick]")[0] + "[quick]\n[rows.held]\n[columns.all]\n"
    text = text.replace('"optimum,single"\nnum-clients = 6', '"optimum,single"\nnum-clients = 4')
    options = 'dataset = "held:load"\nmodel = "mlp-32"'
    (tmp_path / "held.toml").write_text(text.replace('model = "mlp-32"', options), "utf-8")
    with own_modules(tmp_path, held=NOBODYS_TASKS):
        words = ["held.toml", "--quick", "--workers", "0"]
        assert main(words) == 0
    (cell,) = read_cells(tmp_path / "results/quick/held.json.xz")
    assert list(cell["methods"]) == ["single"]
    why = "it must know the tasks of clients, and held:load does not name them"
    assert cell["left-out"] == {"optimum": why}
    said = (tmp_path / "results/quick/held.md").read_text(encoding="utf-8")
    assert f"\noptimum is left out: {why}.\n" in said
    assert "\n| optimum | – |\n" in said


def test_a_simulation_in_this_process_that_fails_is_named(experiment, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ValueError("no client is left.")

    monkeypatch.setattr("fl_app.launch.run_experiment", fail)
    one = find_missing(experiment, tmp_path / "digits.json.xz", 1)[0]
    with pytest.raises(RuntimeError, match=r"of digits, two, seed 0 failed \(no client is left\."):
        run_into(one, tmp_path, 0)


def test_what_no_experiment_explains_is_said(experiment):
    bare = replace(experiment, explanations=())
    text = page_of(bare, [cell("two", 0, optimum=0.95, single=0.9)])
    assert "- Not explained by an experiment: accuracy %, digits, two: optimum." in text


def test_the_verdicts_by_hand(experiment):
    cells = [
        cell("two", 0, optimum=0.95, single=0.9),
        cell("three", 0, optimum=0.9, single=0.9),
    ]
    borrowed = replace(experiment.claims[0], paper="Others", headline=True)
    other = replace(experiment, name="letters", claims=[borrowed], page="digits")
    tables = [Table.of(experiment, cells), Table.of(other, cells)]
    text = claims_page(tables)
    claim = "| knowing the tasks helps | **partly (one run)** | 1 of 2 | 1 of 1 |"
    assert f"{claim} [digits](digits.md) |" in text
    assert "## Others\n\npartly 1.\n\n| claim | verdict" in text
    assert "## Somebody\n\npartly 1.\n" in text
    assert text.index("## Others") < text.index("## Somebody")
    # What the paper's table contradicts is bold.
    wrong = replace(borrowed, says="it hurts", relation="below")
    two = claims_page([Table.of(replace(other, claims=[borrowed, wrong]), cells)])
    assert "| it hurts | **does not hold (one run)** | 0 of 2 | **0 of 1** | [letters]" in two
    front = front_page(tables)
    # 94 - 88 in the paper's one cell; ours are 95 - 90 and 90 - 90. One claim is no headline.
    link = "[letters](digits.md#letters)"
    shown = f"| knowing the tasks helps | **partly (one run)** | +6.0 | +0.0 to +5.0 | 1 | {link} |"
    assert front.count("knowing the tasks helps") == 1
    assert shown in front
    assert f"| Somebody | {link}: Two tasks or three | 1 | 1.0 | 1 |\n" in front
    assert "| all |  |  | 2.0 | 2 |\n" in front
    assert "| hours | partly |\n" in front  # no verdict is of another kind


def test_distinct_published_numbers_count_once(experiment):
    def agreement(one, *cells):
        (line,) = [
            line
            for line in front_page([Table.of(e, cells) for e in one]).splitlines()
            if "Distinct" in line
        ]
        return line

    # optimum's 94 ± 0.5 in two tables; 95 is further away in both, 94 in neither.
    twice = [experiment, replace(experiment, name="letters")]
    far, near = cell("two", 0, optimum=0.95), cell("two", 0, optimum=0.94)
    assert ": 0 of 1 are within" in agreement(twice, far)
    assert ": 1 of 1 are within" in agreement(twice, near)
    # Welch: 94 ± 0.5 of five runs and 94.2, 94.4, 94.6, 94.8 have p = 0.12; 95 and more, less.
    tested = [replace(experiment, published_runs=5)]
    seeds = [cell("two", seed, optimum=0.942 + seed / 500) for seed in range(4)]
    assert "Welch's t test at 5 %, 0 of 1 differ" in agreement(tested, *seeds)
    seeds = [cell("two", seed, optimum=0.95 + seed / 500) for seed in range(4)]
    assert "Welch's t test at 5 %, 1 of 1 differ" in agreement(tested, *seeds)


STORED = {
    "on-its-own-data": {"accuracy": 0.7},
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
        ("on-its-own-data", 70),
        ("on-its-task", math.nan),  # `accuracy` is that
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
    assert measure(name, STORED) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("name", ["acuracy", "task", "task:0", "task:1-2", "ari:1", "relevance:1"])
def test_a_measure_that_is_none_is_named(name):
    with pytest.raises(ValueError, match=f'measure "{name}"'):
        check_measure(name)


def test_similarities_by_task_are_those_of_different_clients():
    similarity = np.array([[1, 0.8, 0.2], [0.8, 1, 0.4], [0.2, 0.4, 1]])
    means = task_means(similarity, np.array([0, 0, 1]))
    assert means[0] == pytest.approx([0.8, 0.3])
    assert means[1] == [pytest.approx(0.3), None]
    similarity[0, 2] = similarity[2, 0] = np.nan  # were not compared
    assert task_means(similarity, np.array([0, 0, 1]))[0] == pytest.approx([0.8, 0.4])


def test_similarities_by_task_are_those_of_clients_without_drift(tmp_path):
    """Clients 1 and 2 have changed places since they were compared."""
    near = np.where(np.equal.outer([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1]), 0.9, 0.4)
    run = {"strategy": "rcc-pfl", "seed": 0, "accuracy": 0.5, "tasks": [0, 0, 1, 0, 1, 1]}
    run["drifters"] = [2, 3]
    np.savez(tmp_path / "similarity-rcc-pfl-seed-0.npz", clients=np.arange(6), similarity=near)
    for name in ("metrics", "clients"):
        (tmp_path / f"{name}.csv").write_text("strategy,seed,round,accuracy,task\n", "utf-8")
    means = numbers_of_run(run, tmp_path)["similarity-per-task"]
    assert np.array(means) == pytest.approx(np.array([[0.9, 0.4], [0.4, 0.9]]))


def verdict_of(experiment, claim, measured):
    verdict = judge(experiment, claim, measured)
    return {cell: one.word for cell, one in verdict.judged.items()}, str(verdict)


def test_claims_of_other_columns_and_measures(experiment):
    cells = [
        cell("two", 0, optimum=0.95, single=0.90),
        cell("two", 1, optimum=0.97, single=0.80),
        cell("three", 0, optimum=0.98, single=0.95),
    ]
    measured = measured_of(experiment, cells)
    steady = Claim("so", "optimum", "below", "single", statistic="std")
    spread = verdict_of(experiment, steady, measured)
    assert spread == (dict.fromkeys(all_places(experiment), "not judged"), "not judged")
    assert judge(experiment, steady, measured).held == ""
    there = ("digits", "three")
    more = Claim("so", "single", "above", "single", 4, against={"column": "two"}, columns=["three"])
    held = ({there: "holds"}, "holds (one run)")  # 95 against 90, of seed 0
    assert verdict_of(experiment, more, measured) == held
    words = verdict_of(experiment, replace(more, points=5), measured)[1]
    assert words == "does not hold (one run)"
    shares = replace(more, against={"measure": "variance"})
    cells[2]["methods"]["single"]["accuracy-variance"] = 0.0085  # 85, against 95 %
    compared = replace(experiment, claims=[shares])
    assert verdict_of(compared, shares, measured_of(compared, cells)) == held
    assert str(judge(experiment, steady, {})) == "not run yet"


def all_places(experiment):
    return [(row, column) for row in experiment.rows for column in experiment.columns]


def test_a_verdict_says_how_it_is_in_each_cell(experiment):
    claim = Claim("so", "optimum", "above", "single")

    def verdict(two, three):
        gaps = [("two", gap) for gap in two], [("three", gap) for gap in three]
        cells = [
            cell(column, seed, optimum=0.9 + gap, single=0.9)
            for gaps_of in gaps
            for seed, (column, gap) in enumerate(gaps_of)
        ]
        found = judge(experiment, claim, measured_of(experiment, cells))
        return str(found), found.held, found.exceptions

    clear, unclear, lower = (0.02, 0.03, 0.04), (0.01, 0.02, 0.03), (-0.02, -0.03, -0.04)
    assert verdict(clear, clear) == ("holds", "2 of 2", [])
    assert verdict(clear, ()) == ("holds so far", "1 of 2", [])
    assert verdict(clear, clear[:2]) == ("holds (two runs)", "2 of 2", [])
    assert verdict(clear, unclear) == ("partly", "1 of 2", ["undecided: digits, three"])
    assert verdict(unclear, unclear) == ("undecided", "0 of 2", [])
    said = ("does not hold", "0 of 2", ["undecided: digits, three"])
    assert verdict(lower, unclear) == said
    assert verdict(clear, lower)[2] == ["does not hold: digits, three"]


def test_a_method_that_guesses_is_no_yardstick(experiment):
    tenth = replace(experiment, chance=10.0)
    cells = [
        cell("two", 0, optimum=0.6, single=0.149),
        cell("three", 0, optimum=0.6, single=0.151),
    ]
    verdict = judge(tenth, experiment.claims[0], measured_of(tenth, cells))
    assert str(verdict) == "holds (one run)"
    assert verdict.held == "1 of 2"
    assert verdict.exceptions == ["not judged, single is at chance: digits, two"]
    assert judge(experiment, experiment.claims[0], measured_of(tenth, cells)).held == "2 of 2"
    in_task = Claim("so", "single", "above", 0.0, measure="task:1")
    for one in cells:
        one["methods"]["single"]["rounds"] = {"1": {"accuracy-per-task": {"0": 0.14}}}
    of_task = judge(tenth, in_task, measured_of(replace(tenth, claims=[in_task]), cells))
    assert of_task.exceptions == ["not judged, single is at chance: digits, two; digits, three"]
    shares = Claim("so", "single", "at least", 0.0, measure="ari")
    cells[0]["methods"]["single"]["ari"] = 0.0
    compared = replace(tenth, claims=[shares])
    assert judge(compared, shares, measured_of(compared, cells)).held == "1 of 2"


def test_the_papers_numbers_may_contradict_it(experiment):
    stated = {"two": {"optimum": [94.0, 0.5], "single": [88.0]}}
    stated["three"] = {"optimum": [94.0, 0.5], "single": [93.0, 0.4]}
    both = replace(experiment, published={"accuracy": {"digits": stated}})
    claim = both.claims[0]  # by two points at least

    def confirmed(claim, of=both):
        return judge(of, claim, {}).published

    assert confirmed(claim) == (1, 2)
    assert confirmed(claim, experiment) == (1, 1)  # where both have a number
    assert confirmed(replace(claim, points=7)) == (0, 2)
    assert confirmed(replace(claim, left="optimum (twice)")) is None
    assert confirmed(replace(claim, statistic="each seed")) == (1, 2)
    # 0.5 against 0.4; in the other cell, a spread is not published.
    assert confirmed(replace(claim, relation="above", points=0, statistic="std")) == (1, 1)
    assert confirmed(replace(claim, relation="below", points=0, statistic="std")) == (0, 1)
    there = replace(claim, left="single", points=0, against={"column": "two"}, columns=["three"])
    assert confirmed(there) == (1, 1)
    cells = [cell("two", 0, optimum=0.95, single=0.9), cell("three", 0, optimum=0.95, single=0.9)]
    said = "holds (one run)**, in 2 of 2 cells. The paper's numbers: in 1 of 2 cells."
    assert said in page_of(both, cells)
    assert "| **holds (one run)** | 2 of 2 | **1 of 2** | [" in claims_page([Table.of(both, cells)])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seeds = 2\nrepeats = 3", "it has no key repeats: see docs/results.md"),
        ("seeds = 2", "seeds = 2\nsmall = true", "there is no key small"),
        ("seeds = 2", "seeds = 0", "a row, a column, a seed and a measure"),
        ("seeds = 2", 'seeds = 2\npicture = "sweep"', 'the column "two" is not a number'),
        ("num-tasks = 3", "num-tasks = 0", "num-tasks is 0, but it must be"),
        ("num-tasks = 3", 'strategy = "flt"', "strategy cannot be given there"),
        ("num-clients = 6", "num-clients = 6\nseed = 4", "seed cannot be given there"),
        ('strategy = "optimum,single"', "", "names optimum, but there are"),
        ("[published.accuracy.digits.two]", "[published.accuracy.letters.two]", "names letters"),
        ("optimum = [94.0, 0.5]", "flt = [94.0]", "a published number names flt, but there are"),
        ("single = [88.0]", "single = []", "single is \\[\\], but .* at least 1"),
        ("[published.accuracy", "[published.ari", "ari has published numbers, but is not among"),
        ('strategy = "optimum"\n', 'strategy = "flt,cfl"\n', "has more than one strategy"),
        ('[variants."optimum (twice)"]', "[variants.optimum]", "two methods have one name"),
        ("points = 2", "point = 2", "claims.0 has no key point"),
        ('right = "single"', 'right = "local"', "the claim .* names local"),
        ("points = 2", 'measure = "acuracy"', 'there is no measure "acuracy"'),
        (
            'right = "single"',
            'right = 3\nagainst = {column = "two"}',
            "has against, which says where the number of right is, but right is 3",
        ),
        ('methods = ["optimum"]', 'methods = ["flt"]', "the explanation .* names flt"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path, old, new, message):
    path = tmp_path / "wrong.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=f"wrong.toml: .*{message}"):
        read_experiment(path)


def test_a_file_that_has_no_cells_is_refused_and_stays(tmp_path):
    for name in ("digits.json", "digits.json.xz"):
        path = tmp_path / name
        for text in ("{}", '{"cells": [{"row": "a"}]}', "nothing"):
            content = text.encode()
            packed = name.endswith(".xz") and text != "nothing"
            path.write_bytes(lzma.compress(content) if packed else content)
            before = path.read_bytes()
            with pytest.raises(ValueError, match="is not a file of finished simulations"):
                read_cells(path)
            assert path.read_bytes() == before


def test_the_committed_experiments_can_be_read_and_listed(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    experiments = list_experiments(ROOT / "experiments")
    assert main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [one.name for one in experiments]
    assert {"rcc-pfl-2", "rcc-pfl-3"} <= {one.name for one in experiments}


def test_the_file_that_the_page_explains_can_be_read(tmp_path):
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "mine.toml").write_text(example[1], encoding="utf-8")
    mine = read_experiment(tmp_path / "mine.toml")
    assert len(all_cells(mine, mine.seeds)) == 20
    assert mine.claims[0].points == 0.5


def test_a_wrong_word_is_answered(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["rcc-pfl-9"]) == 2
    assert 'there is no experiment "rcc-pfl-9": experiments has attacks' in capsys.readouterr().err
    assert main(["rcc-pfl-2", "--page", "--output", str(tmp_path)]) == 2
    assert "there are no numbers of this experiment in" in capsys.readouterr().err
    for words in (["--quick"], ["--page"], ["--seeds", "0"]):
        with pytest.raises(SystemExit):
            main(["rcc-pfl-2", "--seeds", "2", *words])
    assert "--seeds goes neither with --quick" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--page", "--quick"])
    assert "--page --quick needs the name of an experiment" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert "there is no folder experiments here" in capsys.readouterr().err


def test_pages_of_all_and_verdicts_only_where_they_belong(
    experiment, tmp_path, capsys, monkeypatch, counted
):
    counted.append("killed")
    (tmp_path / "experiments").mkdir()
    shutil.copy(tmp_path / "digits.toml", tmp_path / "experiments")
    monkeypatch.chdir(tmp_path)
    # Given by its path: beside it, and without verdicts.
    assert main(["digits.toml", "--workers", "1"]) == 0
    assert sorted(path.name for path in (tmp_path / "results").glob("digits.*")) == [
        f"digits.{ending}" for ending in ("json.xz", "md", "png")
    ]
    beside = (tmp_path / "results/digits.md").read_text(encoding="utf-8")
    assert "[the raw numbers](digits.json.xz)" in beside
    assert not (tmp_path / "results/README.md").exists()
    assert "0 of 8 simulations are finished.\n" in capsys.readouterr().out
    shutil.copytree("results", "experiments/results")
    assert main(["--page"]) == 0
    written = tmp_path / "docs/results"
    assert "[digits](digits.md)" in (written / "README.md").read_text(encoding="utf-8")
    link = "[the raw numbers](../../experiments/results/digits.json.xz)"
    assert link in (written / "digits.md").read_text(encoding="utf-8")
    # What other options made is said, and run again.
    changed = TEXT.replace("num-clients = 6", "num-clients = 7")
    (tmp_path / "digits.toml").write_text(changed, encoding="utf-8")
    assert main(["digits.toml"]) == 0
    assert " 8 had other options and run again." in capsys.readouterr().out
    counted.clear()
    counted.append("killed")
    assert main(["digits.toml", "--again"]) == 0
    assert "0 of 8 simulations are finished. 8 run again." in capsys.readouterr().out
    assert len(counted) == 9
    assert not list((tmp_path / "results").glob(".*running"))


def test_one_strategy_of_a_table_is_run_again_alone(tmp_path, monkeypatch):
    (tmp_path / "digits.toml").write_text(TEXT, encoding="utf-8")
    one = read_experiment(tmp_path / "digits.toml")
    path = tmp_path / "digits.json"
    list(run_missing(one, path, find_missing(one, path, 1), 0))
    before = read_cells(path)
    for cell in before:  # as if older code had run them
        cell["revision"] = "old"
        for numbers in cell["methods"].values():
            numbers["accuracy"] = 0.0
    store.write_cells(path, before)
    monkeypatch.setattr(cells_module, "revision", lambda: "new")
    monkeypatch.setattr(store, "revision", lambda: "new")
    missing = find_missing(one, path, 1, again=["single"])
    assert [(found.key.column, found.config.strategy) for found in missing] == [
        ("two", ("single",)),
        ("three", ("single",)),
    ]
    list(run_missing(one, path, missing, 0))
    for cell in read_cells(path):
        accuracies = {name: found["accuracy"] for name, found in cell["methods"].items()}
        if cell["variant"]:
            assert cell["methods"].keys() == {"optimum (twice)"}
            assert accuracies["optimum (twice)"] == 0
        else:
            assert accuracies["optimum"] == 0 < accuracies["single"]
            assert cell["revisions"] == {"single": "new"}
            assert cell["revision"] == "old"
    assert current_cells(one, read_cells(path)) != []
    assert not find_missing(one, path, 1, again=["single"])  # resumed: it is done
    assert "Run again alone: single, by new (2 simulations)." in page(one, read_cells(path), "x")


def test_the_revision_is_that_of_the_sources_and_says_if_they_were_changed(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)  # noqa: S607

    monkeypatch.setattr(store, "_ROOT", tmp_path)
    of = store.revision.__wrapped__
    assert of() == ""
    git("init")
    (tmp_path / "a.py").write_text("1", encoding="utf-8")
    git("add", "a.py")
    git("commit", "-m", "a")
    first = of()
    assert re.fullmatch(r"[0-9a-f]{12}", first)
    (tmp_path / "a.py").write_text("2", encoding="utf-8")
    assert of() == f"{first}-dirty"


def test_the_page_says_which_files_it_rests_on(experiment):
    first, second = (
        cell("two", seed, optimum=0.95, single=0.9)
        | {"data": {"letters": {"files": 3, "bytes": 2e6, "sha256": sha}}}
        for seed, sha in ((0, "ab"), (1, "cd"))
    )
    one, both = page_of(experiment, [first]), page_of(experiment, [first, second])
    assert "- letters: 3 file(s), 2.0 MB, SHA-256 ab.\n" in one
    assert "different files" not in one
    assert "SHA-256 cd.\n" in both
    assert "The cells were made on different files." in both


@pytest.mark.parametrize("picture", ["table", "rounds", "tasks", "sweep"])
def test_every_kind_of_picture_is_drawn(experiment, tmp_path, picture):
    columns = dict(zip(("1", "2"), experiment.columns.values(), strict=True))
    drawn = replace(
        experiment, picture=picture, columns=columns, published={}, measures=["accuracy", "gain"]
    )
    cells = [
        {**cell(column, seed), "methods": {"optimum": STORED, "single": STORED}}
        for column, seed in (("1", 0), ("2", 0), ("1", 1))  # one is still missing
    ]
    if picture == "tasks":
        last = {"4": {**STORED["rounds"]["4"]}}
        cells = [{**one, "methods": {"single": {**STORED, "rounds": last}}} for one in cells]
    draw(drawn, cells, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000
    assert [path.name for path in tmp_path.glob("a.*")] == ["a.png"]


def test_a_picture_of_errors_is_in_their_unit(experiment, tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(pictures, "lines_figure", lambda _, panels, __: found.append(panels))
    monkeypatch.setattr(pictures, "save", lambda *_: None)
    stored = {"rmse": 3.0, "rounds": {"1": {"rmse": 4.0}, "2": {"rmse": 3.0}}}
    cells = [{**cell("two", 0), "methods": {"single": stored}}]
    draw(replace(experiment, picture="rounds"), cells, tmp_path / "a.png")
    (((_, up), lines),) = found[0].items()
    assert up == "RMSE"
    assert lines["single"][1].tolist() == [[4.0, 3.0]]


def test_all_published_numbers_are_drawn_against_ours(experiment, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append((figure, path.name)))
    cells = [cell("two", seed, optimum=0.94 + seed / 50, single=0.93) for seed in range(2)]
    nobodys = replace(experiment, paper="ours")
    draw_agreement([(experiment, cells), (nobodys, cells), (experiment, [])], tmp_path / "all.png")
    assert [name for _, name in drawn] == ["all.png"]
    (panel,) = drawn[0][0]["concat"]
    assert panel["title"]["text"] == ["accuracy %"]
    assert rows_of(panel["layer"][1]) == [
        {"series": "digits", "paper": 94, "ours": 95},
        {"series": "digits", "paper": 88, "ours": 93},
    ]
    drawn.clear()
    draw_agreement([(nobodys, cells)], tmp_path / "all.png")
    assert drawn == []


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
