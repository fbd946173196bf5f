"""Sweeps: the product of lists, each simulation run once, even if the rest is stopped."""

import csv
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from fl_app.api import simulate, sweep
from fl_app.cli import main
from fl_app.report import pictures
from fl_app.report.pictures import lines_figure
from fl_app.results.frames import load_sweep
from fl_app.sweeps import measures, running
from fl_app.sweeps.plan import _name, plan_sweep, read_words
from fl_app.sweeps.run_numbers import numbers_of_run
from fl_app.sweeps.running import NUMBERS, default_processes, run_missing, workers_of
from fl_app.sweeps.store import identify_code, resumable, revision
from fl_app.sweeps.sweep_command import _write_report, run_sweep
from fl_app.sweeps.sweep_pictures import across_key, draw
from fl_app.sweeps.sweep_tables import printed_tables, tidy
from fl_core.json_records import to_json
from tests.app_runs import undrawn_pictures
from tests.processes import fedkin, processes_with, wait_for_line

SMALL = {"strategy": "optimum,single", "num-clients": 6, "num-tasks": 3, "model": "mlp-32"}
NOISY = {**SMALL, "noise": "class-dependent", "noise-rate": [0, 0.2, 0.4], "repeats": 2}


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["noise-rate=0,0.2"], {"noise-rate": [0, 0.2]}),
        (["noise-rate=[0, 0.2]"], {"noise-rate": [0, 0.2]}),
        (["noise-rate=0.2"], {"noise-rate": 0.2}),
        (["strategy=rcc-pfl,single"], {"strategy": "rcc-pfl,single"}),
        (["features=hog, raw"], {"features": ["hog", "raw"]}),
        (["num-clusters=3,auto"], {"num-clusters": [3, "auto"]}),
        (["num-clients=6"], {"num-clients": 6}),
        (["secure-aggregation=true,false"], {"secure-aggregation": [True, False]}),
        (["tasks=0,1|2,3"], {"tasks": "0,1|2,3"}),
        (["clients-per-task=5,3,2"], {"clients-per-task": "5,3,2"}),
        (['tasks=["0,1|2,3", "0|1"]'], {"tasks": ["0,1|2,3", "0|1"]}),
        (['clients-per-task=["5,3", "4,4"]'], {"clients-per-task": ["5,3", "4,4"]}),
    ],
)
def test_lists_by_commas_where_the_key_takes_no_commas_itself(words, read):
    assert read_words(words) == read


def test_a_report_of_fewer_values_does_not_outlive_a_sweep_too_large_for_one(tmp_path, monkeypatch):
    def refuse(*args):
        raise ValueError("the report of 999 folders would have 6.1 MB")

    monkeypatch.setattr("fl_app.report.report_page.write_report", refuse)
    (tmp_path / "report.html").write_text("of two cells", encoding="utf-8")
    said = []
    _write_report(plan_sweep({**SMALL, "num-tasks": [2, 3]}), [], tmp_path, said.append)
    assert said == ["\nno report.html: the report of 999 folders would have 6.1 MB"]
    assert not (tmp_path / "report.html").exists()


def test_the_product_of_the_lists_in_order():
    planned = plan_sweep({**SMALL, "num-tasks": [2, 3], "features": ["hog", "raw"]} | {"seed": [4]})
    assert [one.key.cell for one in planned.simulations] == [
        "features=hog,num-tasks=2",
        "features=raw,num-tasks=2",
        "features=hog,num-tasks=3",
        "features=raw,num-tasks=3",
    ]
    given, config = planned.simulations[2].given, planned.simulations[2].config
    assert (config.num_tasks, config.features, config.seed) == (3, "hog", 4)
    assert config.strategy == ("optimum", "single")
    assert given["num-tasks"] == 3


def test_names_of_folders_are_safe_and_differ():
    tasks = ["0,1|2,3", "0,1_2,3", "0/../x", "0" * 300]
    names = [_name({"tasks": one}) for one in tasks]
    assert names[1] == "tasks=0,1_2,3"
    assert len(set(names)) == 4
    assert all(re.fullmatch(r"[\w.,=+-]{1,100}", name) for name in names)


def test_the_default_folder_is_the_same_for_more_values_and_another_for_other_options():
    first = plan_sweep(NOISY).folder()
    assert first == plan_sweep({**NOISY, "noise-rate": [0.5, 0.6]}).folder()
    two = {**NOISY, "num-tasks": [2, 3]}
    one_way, other_way = plan_sweep(two), plan_sweep(dict(reversed(two.items())))
    assert one_way.folder() == other_way.folder() != first
    assert {one.key.cell for one in one_way.simulations} == {
        one.key.cell for one in other_way.simulations
    }
    assert first != plan_sweep({**NOISY, "repeats": 3}).folder()
    assert first.name.startswith("sweep-noise-rate-")


@pytest.mark.parametrize("dataset", ["tables", "sites", "folder"])
def test_another_folder_of_local_data_is_another_sweep(dataset, tmp_path, monkeypatch):
    """Published data are the same wherever they lie."""
    local = {**NOISY, "dataset": dataset, "noise-rate": [0.1, 0.2]}
    here, there = (plan_sweep({**local, "data-dir": str(tmp_path / name)}) for name in "ab")
    assert here.folder() != there.folder()
    states = [found.options for one in (here, there) for found in one.simulations]
    assert all(states.count(one) == 1 for one in states)
    monkeypatch.setenv("FL_DATA_DIR", str(tmp_path / "a"))
    assert plan_sweep(local).folder() == here.folder()
    both = {**NOISY, "dataset": ["sites", "tables"]}
    (one, other) = (plan_sweep({**both, "data-dir": str(tmp_path / name)}) for name in "ab")
    assert one.folder() != other.folder()
    roundabout = str(tmp_path / "b" / ".." / "a")
    assert plan_sweep({**local, "data-dir": roundabout}).folder() == here.folder()
    published = [plan_sweep({**NOISY, "data-dir": str(tmp_path / name)}) for name in "ab"]
    assert published[0].folder() == published[1].folder()


def test_equal_numbers_name_the_same_simulations(tmp_path):
    typed = plan_sweep({**NOISY, "noise-rate": [0, 0.2]})
    given = plan_sweep({**NOISY, "noise-rate": [0.0, 0.2]})
    assert [one.key.cell for one in given.simulations] == ["noise-rate=0", "noise-rate=0.2"]
    assert given.simulations == typed.simulations
    assert given.folder() == typed.folder()
    assert given.command(tmp_path) == typed.command(tmp_path)
    once = plan_sweep({**NOISY, "learning-rate": 1})
    assert once.folder() == plan_sweep({**NOISY, "learning-rate": 1.0}).folder()


def test_an_array_is_a_list_of_values(tmp_path, played, undrawn):
    options = {key.replace("-", "_"): value for key, value in NOISY.items()}
    options["noise_rate"] = np.linspace(0, 0.4, 3)
    found = sweep(**options, output=tmp_path / "sweep", progress=False)
    assert list(found.cells) == ["noise-rate=0", "noise-rate=0.2", "noise-rate=0.4"]


def test_the_command_of_the_page_is_the_sweep():
    given = {**SMALL, "features": ["hog", "raw"], "tasks": ["0,1|2,3", "0|1"]}
    given |= {"weighted-mean": False}
    words = plan_sweep(given).command(Path("a b"))
    typed = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {words}"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert typed[:2] + typed[-2:] == ["fedkin", "sweep", "--output", "a b"]
    assert read_words(typed[2:-2]) == given


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["num-tasks=3"], "nothing is swept: give a key several values"),
        (["num-task=2,3"], "num-task is not a run-config key. Did you mean num-tasks?"),
        (["features=hog,raq"], 'features is "raq", but .* Did you mean raw?'),
        (["num-tasks=2,11"], "num-tasks=11: num-tasks is 11, but mnist-5k has 10 classes"),
        (["num-tasks=2,3", "num-tasks=4"], "num-tasks is given twice"),
        (["num-tasks=[2,"], r"num-tasks is \[2,, which is not a list"),
        (["num-tasks=[[2], [3]]"], "which is not a list of values"),
        (["num-tasks=2,2"], "num-tasks=2 and num-tasks=2 are the same simulation"),
        (["linkage=single,ward", "strategy=single"], "are the same simulation"),
        (["noise-rate=0,0.2"], "noise-rate is swept, but has no effect: .* if noise is not none"),
        (["malicious=0.1,0.2"], "malicious is swept, but has no effect: .* attack is not none"),
        (
            ["num-server-rounds=0,1"],
            "num-server-rounds=0: num-server-rounds is 0, .* use fedkin group",
        ),
        (["device=auto,cuda"], 'device=cuda: device is "cuda", but PyTorch sees'),
        (["seed=0,1", "repeats=2"], "seed is swept, but repeats sets seeds, too"),
        (["seed=0,1", "repeats=1,2"], "seed is swept, but repeats sets seeds, too"),
        (["num-tasks=2,3", "output-dir=here"], "output-dir cannot be given in a sweep"),
        (["num-tasks=2,3", "resume=here"], "resume cannot be given in a sweep"),
        (["num-tasks"], "num-tasks is not of the form KEY=VALUE"),
    ],
)
def test_a_wrong_word_is_refused_before_anything_starts(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "start_simulation", pytest.fail)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["sweep", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error
    assert not list(tmp_path.iterdir())


@pytest.fixture
def undrawn():
    with undrawn_pictures():
        yield


class Ended:
    """A process that has ended."""

    def __init__(self, returncode):
        self.returncode = returncode

    def poll(self):
        return self.returncode

    wait = terminate = poll


@pytest.fixture
def played(monkeypatch):
    """Let simulations be played: their accuracy is what their options say. Return what was run."""
    ran = []

    def play(one, folder, workers, gpus):
        config = one.config
        ran.append(one.key.cell)
        if config.noise_rate == 0.2 and "stopped" in ran:
            raise KeyboardInterrupt
        if config.noise_rate == 0.4 and "broken" in ran:
            (folder / running.LOG).write_text("round 1\nerror: the data are gone\n", "utf-8")
            return Ended(1)
        runs = [
            {
                **{"strategy": name, "seed": seed, "clusters": [0, 1, 0], "accuracy-variance": 0.0},
                **{"accuracy": (score := 0.9 - config.noise_rate / 2 - seed / 100 - place / 10)},
                **{"accuracy-per-client": [score] * 3, "num-clients": 3},
                **{"bytes": {}, "seconds": {}, "failures": []},
                **({"ari": 1.0} if name == "optimum" else {}),
            }
            for place, name in enumerate(config.strategy)
            for seed in range(config.seed, config.seed + config.repeats)
        ]
        for name in ("metrics.csv", "clients.csv"):
            (folder / name).write_text("strategy,seed,round,accuracy,task\n", encoding="utf-8")
        summary = {"version": 1, "config": {}, "runs": runs}
        (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        return Ended(0)

    monkeypatch.setattr(running, "start_simulation", play)
    return ran


def cells_of(folder):
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))["cells"]


def test_a_stopped_sweep_goes_on_where_it_was(tmp_path, played, undrawn, capsys):
    planned, folder = plan_sweep(NOISY), tmp_path / "sweep"
    played += ["stopped"]
    with pytest.raises(KeyboardInterrupt):
        run_sweep(planned, folder, 1)
    assert played == ["stopped", "noise-rate=0", "noise-rate=0.2"]
    assert load_sweep(folder).cells.keys() == {"noise-rate=0"}
    played.clear()
    assert run_sweep(planned, folder, 1) == {}
    assert played == ["noise-rate=0.2", "noise-rate=0.4"]
    undisturbed = tmp_path / "undisturbed"
    assert run_sweep(planned, undisturbed, 3) == {}
    assert (undisturbed / "sweep.csv").read_bytes() == (folder / "sweep.csv").read_bytes()
    played.clear()
    assert run_sweep(planned, folder, 2) == {}
    assert played == []
    assert "3 simulations (12 trainings), 3 finished" in capsys.readouterr().out


def test_only_what_has_changed_is_run_again(tmp_path, played, undrawn, monkeypatch, capsys):
    folder = tmp_path / "sweep"
    run_sweep(plan_sweep(NOISY), folder, 1)
    played.clear()
    run_sweep(plan_sweep({**NOISY, "noise-rate": [0.2, 0.3, 0.4]}), folder, 1)
    assert played == ["noise-rate=0.3"]
    assert len(cells_of(folder)) == 4
    played.clear()
    shutil.rmtree(folder / "cells/noise-rate=0.2")  # without results
    run_sweep(plan_sweep(NOISY), folder, 1)
    assert played == ["noise-rate=0.2"]
    played.clear()
    other = plan_sweep({**NOISY, "learning-rate": 0.1})
    capsys.readouterr()
    run_sweep(other, folder, 1, dry_run=True)
    assert capsys.readouterr().out.count("(again)") == 3
    assert played == []
    assert running.finished_cells(other, folder) == []  # those of other options are not shown
    run_sweep(other, folder, 1)
    assert len(played) == 3
    played.clear()
    run_sweep(other, folder, 1)
    assert played == []
    run_sweep(other, folder, 1, again=True)
    assert len(played) == 3
    assert len(cells_of(folder)) == 4


def test_one_that_is_stopped_in_its_second_time_is_not_finished(
    tmp_path, played, undrawn, monkeypatch
):
    planned, folder = plan_sweep(NOISY), tmp_path / "sweep"
    run_sweep(planned, folder, 1)
    shutil.rmtree(folder / "cells/noise-rate=0.2")
    assert "noise-rate=0.2" not in load_sweep(folder).cells
    assert len(running.finished_cells(planned, folder)) == 2

    def stop(one, results, *_):
        summary = {"config": {}, "runs": [], "table": []}  # a run writes it after each strategy
        (results / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        raise KeyboardInterrupt

    play = running.start_simulation
    monkeypatch.setattr(running, "start_simulation", stop)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(planned, folder, 1)
    assert len(running.finished_cells(planned, folder)) == 2
    monkeypatch.setattr(running, "start_simulation", play)
    played.clear()
    run_sweep(planned, folder, 1)
    assert played == ["noise-rate=0.2"]


def test_of_many_clients_no_similarity_is_stored(tmp_path):
    for name in ("metrics.csv", "clients.csv"):
        (tmp_path / name).write_text("strategy,seed,round,accuracy,task\n", encoding="utf-8")
    np.savez(tmp_path / "similarity-rcc-pfl-seed-0.npz", clients=np.arange(3))
    run = {"strategy": "rcc-pfl", "seed": 0, "tasks": [0, 1, 1], "accuracy": 0.5}
    assert "similarity-per-task" not in numbers_of_run(run, tmp_path)


def test_one_that_fails_is_named_and_the_others_are_stored(tmp_path, played, undrawn, capsys):
    played += ["broken"]
    folder = tmp_path / "sweep"
    words = [f"{key}={value}" for key, value in NOISY.items() if key != "noise-rate"]
    arguments = ["sweep", *words, "noise-rate=0,0.4,0.2", "--processes", "1"]
    assert main([*arguments, "--output", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "[2/3] noise-rate=0.4: failed, the data are gone\n" in said
    with pytest.raises(RuntimeError, match=r"1 simulations failed, the first, noise-rate=0\.4: "):
        sweep(**{key.replace("-", "_"): value for key, value in NOISY.items()}, output=folder)
    played.remove("broken")
    assert main([*arguments, "--output", str(folder)]) == 0
    assert [cell["cell"] for cell in cells_of(folder)][-1] == "noise-rate=0.4"


def test_two_at_once_and_folders_of_others(tmp_path, played, undrawn, monkeypatch):
    planned, folder = plan_sweep(NOISY), tmp_path / "sweep"
    begun, end = Event(), Event()
    play = running.start_simulation

    def wait(*arguments):
        begun.set()
        assert end.wait(30)
        return play(*arguments)

    monkeypatch.setattr(running, "start_simulation", wait)
    first = Thread(target=run_sweep, args=(planned, folder, 1))
    first.start()
    assert begun.wait(30)
    with pytest.raises(RuntimeError, match="another process runs the sweep"):
        run_missing(planned.simulations, folder, print, processes=1, workers=1)
    end.set()
    first.join()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").touch()
    with pytest.raises(ValueError, match=r"holds letter\.txt and no sweep"):
        run_sweep(planned, tmp_path / "mine", 1)
    (folder / NUMBERS).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a file of finished"):
        run_sweep(planned, folder, 1)


def test_the_tables_and_the_picture_show_what_was_found(tmp_path, played, capsys):
    options = {**NOISY, "features": ["hog", "raw"]}
    folder = tmp_path / "sweep"
    run_sweep(plan_sweep(options), folder, 2)
    found = load_sweep(folder)
    columns = ["cell", "noise-rate", "features", "strategy", "seed", "measure", "value"]
    assert list(found.table.columns) == columns
    names = ["accuracy", "ari", "clusters", "variance"]
    assert sorted(set(found.table["measure"])) == names
    assert not found.table["value"].isna().any()
    # Three noise rates, two features, two seeds and two strategies; one knows its ARI.
    assert len(found.table) == 3 * 2 * 2 * (4 + 3)
    accuracy = found.table[found.table["measure"] == "accuracy"]
    means = accuracy.groupby(["noise-rate", "strategy"])["value"].mean()
    assert means[0.4, "single"] == pytest.approx(59.5)
    assert means[0.0, "optimum"] == pytest.approx(89.5)
    assert list(found.cells)[:2] == ["features=hog,noise-rate=0", "features=raw,noise-rate=0"]
    assert list(found.figures()) == ["sweep"]
    assert (folder / "sweep.pdf").read_bytes()[:5] == b"%PDF-"
    said = capsys.readouterr().out
    assert "accuracy %, mean ± std over 2 seeds\n" in said
    assert "│ 0.4        │ raw      │ 69.5 ± 0.7* │ 59.5 ± 0.7 │" in said
    # One strategy's alone is not the best of any.
    assert "│ 0.4        │ raw      │ 1.00 ± 0.00 │" in said


def test_errors_in_a_small_unit_are_stored_shown_and_starred(tmp_path):
    """In metres, as others in micrometres."""
    for name in ("metrics", "clients"):
        (tmp_path / f"{name}.csv").write_text("strategy,seed,round\n", encoding="utf-8")
    planned = plan_sweep({"strategy": "single,local,ditto", "num-tasks": [2, 3]})
    errors = {"single": 1.234567e-7, "local": 2.1e-5, "ditto": 1.23449e-7}
    runs = [
        {"strategy": name, "seed": seed, "rmse": error, "mae": 12.3456789, "clusters": [0]}
        for name, error in errors.items()
        for seed in (0, 1)
    ]
    stored = [{**run, **numbers_of_run(run, tmp_path)} for run in runs]
    assert [run["rmse"] for run in stored[::2]] == [1.23457e-7, 2.1e-5, 1.23449e-7]
    assert stored[0]["mae"] == 12.345679
    cells = [{"cell": "", "values": dict(planned.simulations[0].key.values), "runs": stored}]
    row = "1.235e-07 ± 0.000 │ 2.100e-05 ± 0.000 │ 1.234e-07 ± 0.000* │"
    assert row in printed_tables(planned, tidy(planned, cells), cells)
    for run in stored[::2]:
        run["rmse"] *= 1.1
    # By hand: a tenth, over √2.
    best = "│ 1.296e-07 ± 8.730e-09 │ 2.205e-05 ± 1.485e-06 │ 1.296e-07 ± 8.729e-09* │"
    assert best in (printed := printed_tables(planned, tidy(planned, cells), cells))
    assert printed.count("*: the best") == 1


def test_a_mean_has_as_many_digits_as_its_spread_says_something_of():
    assert measures.format_measure("rmse", 12345.678, 3.2, 0.5) == "12345.7 ± 3.200 [± 0.5000]"
    assert measures.format_measure("rmse", 12345.678) == "1.235e+04"
    assert measures.format_measure("mae", 0.5012345, 0.0034) == "0.5012 ± 0.003400"


def test_seeds_that_are_swept_are_seeds(tmp_path, played, undrawn, capsys):
    options = {**SMALL, "seed": [0, 1], "num-tasks": [2, 3]}
    run_sweep(plan_sweep(options), tmp_path, 1)
    with (tmp_path / "sweep.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["cell", "num-tasks", "strategy", "seed", "measure", "value"]
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert "│ 3         │ 77.0 ± 0.7* │ 67.0 ± 0.7 │" in capsys.readouterr().out


def encodings_of(spec):
    """Return the encoding of the marks of each panel."""
    return [panel["layer"][-1]["encoding"] for panel in spec["concat"]]


def test_numbers_are_drawn_across_and_words_side_by_side():
    assert across_key({"model": ["cnn", "mlp"], "noise-rate": [0, 1]}) == "noise-rate"
    assert across_key({"seed": [0, 1, 2], "num-tasks": [2, 3]}) == "num-tasks"
    assert across_key({"model": ["cnn", "mlp"], "noise": ["a", "b", "c"]}) == "noise"
    assert across_key({"weighted-mean": [True, False]}) == "weighted-mean"

    line = {("", "up"): {"single": (np.array([0.001, 0.1]), np.array([[80.0, 90.0]]))}}
    for logarithmic, expected in ((False, None), (True, "log")):
        spec = lines_figure("t", line, "x", logarithmic=logarithmic)
        assert spec["layer"][0]["encoding"]["x"]["scale"].get("type") == expected


def test_a_panel_for_each_value_of_the_other_keys(tmp_path, played, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "save", lambda spec, path: drawn.append(spec))
    rates = {"noise-rate": [0.01, 0.2, 0.9], "features": ["hog", "raw"], "repeats": 1}
    run_sweep(plan_sweep({**NOISY, **rates}), tmp_path / "rates", 2)
    titles = [panel["title"]["text"] for panel in drawn[0]["concat"]]
    assert titles == [["features=hog"]] * 2 + [["features=raw"]] * 2
    found = encodings_of(drawn[0])
    assert [one["y"]["title"] for one in found] == ["accuracy %", "ARI"] * 2
    assert found[0]["x"]["scale"]["type"] == "log"
    assert found[0]["y"]["scale"] == found[2]["y"]["scale"]
    rows = drawn[0]["concat"][0]["data"]["values"]
    means = [row["mean"] for row in rows if row["series"] == "optimum"]
    np.testing.assert_allclose(means, [89.5, 80, 45])
    words = {**SMALL, "features": ["raw", "hog"]}
    run_sweep(plan_sweep(words), tmp_path / "words", 2)
    assert encodings_of(drawn[-1])[0]["x"]["scale"]["domain"] == ["raw", "hog"]


def test_where_nothing_was_tested_there_is_no_picture(tmp_path):
    planned = plan_sweep({**SMALL, "num-tasks": [2, 3]})
    runs = [{"strategy": "single", "seed": 0, "rounds": {}, "clusters": [0]}]
    places = [one.key for one in planned.simulations]
    cells = [{"cell": p.cell, "values": p.values, "runs": runs} for p in places]
    for name in ("sweep.png", "sweep.pdf"):
        (tmp_path / name).write_text("an earlier sweep's", encoding="utf-8")
    table = tidy(planned, cells)
    draw(planned, table, tmp_path / "sweep.png")
    assert not list(tmp_path.iterdir())
    assert printed_tables(planned, table, cells).strip() == ""


def test_cpus_are_shared(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert [default_processes(count) for count in (1, 3, 20)] == [1, 3, 8]
    assert [workers_of(count) for count in (1, 3, 8, 20)] == [8, 2, 0, 0]


@pytest.mark.slow
def test_simulations_are_separate_runs_and_end_with_the_sweep(tmp_path, capsys):
    folder = tmp_path / "sweep"
    planned = plan_sweep({**SMALL, "num-server-rounds": 1, "learning-rate": [0.01, 0.1]})
    assert run_sweep(planned, folder, 2) == {}
    said = capsys.readouterr().out
    assert re.search(r"\[[12]/2\] learning-rate=0.01: optimum \d+.*, single \d+.*, aft", said)
    cell = folder / "cells/learning-rate=0.1"
    assert "round   1/1" in (cell / running.LOG).read_text(encoding="utf-8")
    assert not (cell / "report.html").exists()
    one = resumable(planned.simulations[0], tmp_path / "alone")
    process = running.start_simulation(one, tmp_path / "alone", 0, None)
    process.terminate()
    assert process.wait(60) != 0


def numbers_of(summary):
    runs = (json.loads(to_json(run)) for run in summary.runs)
    return [{k: v for k, v in run.items() if k != "seconds"} for run in runs]


@pytest.mark.slow
@pytest.mark.faults
def test_killed_and_called_again_it_has_the_numbers_of_an_undisturbed_run(tmp_path):
    """The second cell is killed in its middle, and goes on there; another run finds the same."""
    folder = tmp_path / "sweep"
    words = ["noise-rate=0,0.4", "noise=class-dependent", "strategy=rcc-pfl,single"]
    words += ["num-clients=6", "num-tasks=3", "num-server-rounds=2", "model=mlp-32"]
    words += ["--output", str(folder), "--processes", "1"]
    command, marker = ["sweep", *words], f"sweep-{os.getpid()}"
    with fedkin(command, LEFT_BEHIND=marker) as first:
        wait_for_line(first, "[2/2] noise-rate=0.4: starts")
        log = folder / "cells/noise-rate=0.4/log.txt"
        while not log.exists() or "single   seed 0  round   1/2" not in log.read_text():
            time.sleep(0.05)
        first.kill()
    assert [cell["cell"] for cell in cells_of(folder)] == ["noise-rate=0"]
    begun = (folder / "cells/noise-rate=0/summary.json").read_bytes()
    with fedkin(command, LEFT_BEHIND=marker) as second:
        said, _ = second.communicate()
    assert second.returncode == 0, said
    assert "2 simulations (4 trainings), 1 finished" in said
    assert "[1/1] noise-rate=0.4: starts" in said
    assert (folder / "cells/noise-rate=0/summary.json").read_bytes() == begun
    resumes = identify_code(revision()) == revision()
    assert ("resumed after round" in log.read_text(encoding="utf-8")) == resumes
    assert not (folder / "cells/noise-rate=0.4/checkpoints").exists()

    found = []
    options = {"noise": "class-dependent", "noise_rate": 0.4, "num_clients": 6, "num_tasks": 3}
    options |= {"num_server_rounds": 2, "model": "mlp-32", "strategy": ["rcc-pfl", "single"]}

    def run():
        lines = []
        results = simulate(**options, output_dir=tmp_path / "alone", progress=lines.append)
        found.append((results, lines))

    thread = Thread(target=run)  # where no signal can be handled
    thread.start()
    thread.join()
    ((alone, lines),) = found
    assert any("round   2/2" in line for line in lines)
    cell = load_sweep(folder).cells["noise-rate=0.4"]
    assert numbers_of(cell.summary) == numbers_of(alone.summary)
    assert cell.accuracy.equals(alone.accuracy)
    assert cell.clients.equals(alone.clients)
    assert not processes_with(marker)
