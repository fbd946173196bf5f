"""What stops a table costs little of it, and what stopped it is said."""

import hashlib
import json

import pytest

from fl_app.cli import main
from fl_app.results.folder import ResultsFolder
from fl_app.run.checkpoints import Checkpoints
from fl_app.studies.reproduce import cells as cells_module
from fl_app.studies.reproduce import keeping
from fl_app.studies.reproduce.cells import (
    current_cells,
    find_missing,
    read_cells,
    run_missing,
)
from fl_app.studies.reproduce.code_state import state_of
from fl_app.studies.reproduce.experiment_file import read_experiment
from tests.app_runs import undrawn_pictures

TEXT = """
paper = "Somebody"
title = "Two tasks"
source = "Somebody, 2020, Table 1"
seeds = 1
picture = "none"
[options]
strategy = "optimum,single"
num-clients = 4
model = "mlp-32"
local-epochs = 1
batch-size = 256
num-server-rounds = {rounds}
[rows.digits]
dataset = "mnist-5k"
[columns.two]
num-tasks = 2
"""


@pytest.fixture
def table(tmp_path):
    """Return what writes the table's file and calls the command; it returns the status."""
    path = tmp_path / "digits.toml"

    def call(rounds=2, old="", new=""):
        path.write_text(TEXT.format(rounds=rounds).replace(old, new), encoding="utf-8")
        with undrawn_pictures():
            return main(["reproduce", str(path), "--workers", "0"])

    call.path, call.numbers = path, tmp_path / "results/digits.json"
    return call


@pytest.fixture
def once(monkeypatch):
    """Let a method raise after its first call has returned; the calls after that are as before."""

    def spoil(kind, name, error):
        method, called = getattr(kind, name), []

        def spoiled(self, *given):
            found = method(self, *given)
            called.append(name)
            if len(called) == 1:
                raise error
            return found

        monkeypatch.setattr(kind, name, spoiled)

    return spoil


def finished(experiment, path, **more):
    """Write what a simulation leaves, as if all had been run."""
    cells = []
    for one in find_missing(experiment, path, 1):
        state, code = state_of(one.config)
        ran = {"workers": 0, "seconds": 1.0, "versions": {}, **more}
        methods = {"optimum": {"accuracy": 0.9}, "single": {"accuracy": 0.8}}
        given = {"given": dict(one.given), "state": state, "code": code}
        cells.append({**vars(one.wanted), **given, **ran, "methods": methods})
    keeping.write_numbers(path, cells)


def test_of_few_rounds_one_that_was_stopped_after_a_strategy_begins_anew(table, once, capsys):
    once(ResultsFolder, "add_run", KeyboardInterrupt())
    assert table() == 130
    assert not table.numbers.exists()
    assert table() == 0
    assert set(read_cells(table.numbers)[0]["methods"]) == {"optimum", "single"}
    assert table() == 0
    assert "1 of 1 simulations are finished.\n" in capsys.readouterr().out


def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_next_time(table, once):
    once(Checkpoints, "_forget_personal", OSError("the disk is full"))
    assert table(rounds=8) == 2
    for path in table.numbers.with_name(".digits.running").glob("checkpoints/*.safetensors"):
        path.unlink()
    assert table(rounds=8) == 0


def test_the_hours_are_those_that_were_worked():
    spent = {"pre_round": 1.0, "train": 6.0, "evaluate": 2.0}
    trained = {"seconds": 10.0, "strategy": {"seconds": spent, "same-as": ""}}
    taken_over = {"seconds": 10.0, "strategy": {"seconds": spent, "same-as": "optimum"}}
    assert keeping.worked_seconds(trained) == 10
    assert keeping.worked_seconds(taken_over) == 2


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(RuntimeError("all clients failed"), 2, "all clients failed"), (KeyboardInterrupt(), 130, "")],
)
def test_why_it_stopped_is_said_though_no_number_is_of_these_options(
    table, monkeypatch, capsys, error, status, said
):
    table.path.write_text(TEXT.format(rounds=2), encoding="utf-8")
    finished(read_experiment(table.path), table.numbers)

    def stop(*_, **__):
        raise error

    monkeypatch.setattr(cells_module, "_run", stop)
    assert table(rounds=3) == status
    out, err = capsys.readouterr()
    assert "no numbers of this experiment" not in out + err
    assert said in err


def test_a_simulation_is_kept_until_its_numbers_are_written(table, monkeypatch):
    table.path.write_text(TEXT.format(rounds=8), encoding="utf-8")
    experiment, written = read_experiment(table.path), []

    def run(one, folder, *_, **__):
        (folder / "checkpoint").write_text("hours of work")
        return {"seconds": 1.0, "versions": {}, "methods": {"optimum": {}, "single": {}}}

    def full(*_):
        written.append(list(table.numbers.parent.glob(".digits.running/checkpoint")))
        raise OSError("the disk is full")

    monkeypatch.setattr(cells_module, "_run", run)
    monkeypatch.setattr(keeping, "write_numbers", full)
    with pytest.raises(OSError, match="full"):
        list(run_missing(experiment, table.numbers, find_missing(experiment, table.numbers, 1), 0))
    assert written == [list(table.numbers.parent.glob(".digits.running/checkpoint"))]
    assert len(written[0]) == 1


def test_what_was_trained_on_other_files_is_not_taken_over(table, monkeypatch):
    table.path.write_text(TEXT.format(rounds=8), encoding="utf-8")
    experiment, places = read_experiment(table.path), []

    def run(one, folder, workers, trainings, **_):
        places.append((sorted(path.name for path in folder.glob("rest")), trainings))
        (folder / "rest").write_text("half a simulation")
        raise RuntimeError("stopped")

    monkeypatch.setattr(cells_module, "_run", run)
    for digest in ("a", "a", "b"):
        records = {"mnist": {"sha256": digest}}
        monkeypatch.setattr(cells_module, "records_of", lambda _, records=records: records)
        with pytest.raises(RuntimeError, match="stopped"):
            missing = find_missing(experiment, table.numbers, 1)
            list(run_missing(experiment, table.numbers, missing, 0))
    (first, of_first), (second, of_second), (third, of_third) = places
    assert (first, second, third) == ([], ["rest"], [])
    assert of_first == of_second != of_third
    name = hashlib.sha256(json.dumps({"mnist": {"sha256": "b"}}).encode()).hexdigest()
    assert of_third.name == name


def test_a_default_that_is_written_out_and_places_of_files_do_not_count(table):
    def read(rounds=2, more=""):
        text = TEXT.format(rounds=rounds).replace("[rows.digits]", f"{more}\n[rows.digits]")
        table.path.write_text(text, encoding="utf-8")
        return read_experiment(table.path)

    finished(read(), table.numbers)
    for experiment, missing in ((read(more='features = "auto"'), 0), (read(rounds=3), 1)):
        assert len(find_missing(experiment, table.numbers, 1)) == missing
        assert len(find_missing(experiment, table.numbers, 1, any_code=True)) == missing
        assert len(current_cells(experiment, read_cells(table.numbers))) == 1 - missing
    cell = {"given": {"data-dir": "/here", "num-tasks": 2}}
    assert keeping.has_options(cell, {"data-dir": "/there", "num-tasks": 2})
    assert not keeping.has_options(cell, {"data-dir": "/here", "num-tasks": 3})
