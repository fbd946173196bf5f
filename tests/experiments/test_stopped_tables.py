"""What stops a table costs little of it, and what stopped it is said."""

import pytest

from experiments import cells as cells_module
from experiments.__main__ import main
from experiments.cells import find_missing, run_missing
from experiments.experiment_file import read_experiment
from fl_app.run.writer import ResultsFolder
from fl_app.sweeps import store
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
            return main([str(path), "--workers", "0"])

    call.path, call.numbers = path, tmp_path / "results/digits.json.xz"
    return call


@pytest.fixture
def once(monkeypatch):
    """Let a method raise after its first call has returned; the calls after that are as before."""

    def corrupt(kind, name, error):
        method, called = getattr(kind, name), []

        def spoiled(self, *given):
            found = method(self, *given)
            called.append(name)
            if len(called) == 1:
                raise error
            return found

        monkeypatch.setattr(kind, name, spoiled)

    return corrupt


def finished(experiment, path, **more):
    """Write what a simulation leaves, as if all had been run."""
    cells = []
    for one in find_missing(experiment, path, 1):
        ran = {"workers": 0, "seconds": 1.0, "versions": {}, **more}
        methods = {"optimum": {"accuracy": 0.9}, "single": {"accuracy": 0.8}}
        made = {"options": dict(one.options), "revision": "a"}
        cells.append({**vars(one.key), **made, **ran, "methods": methods})
    store.write_cells(path, cells)


def test_of_few_rounds_one_that_was_stopped_after_a_strategy_restarts(table, once, capsys):
    once(ResultsFolder, "add_run", KeyboardInterrupt())
    assert table() == 130
    assert not table.numbers.exists()
    assert table() == 0
    assert set(store.read_cells(table.numbers)[0]["methods"]) == {"optimum", "single"}
    assert table() == 0
    assert "1 of 1 simulations are finished.\n" in capsys.readouterr().out


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


def test_a_simulation_is_stored_until_its_numbers_are_written(table, monkeypatch):
    table.path.write_text(TEXT.format(rounds=8), encoding="utf-8")
    experiment, written = read_experiment(table.path), []

    def run(experiment, one, folder, *_):
        (folder / "checkpoint").write_text("hours of work")
        return {"methods": {"optimum": {}, "single": {}}}

    def full(*_):
        written.append(list(table.numbers.parent.glob(".digits.running/checkpoint")))
        raise OSError("the disk is full")

    monkeypatch.setattr(cells_module, "_run", run)
    monkeypatch.setattr(store, "write_cells", full)
    with pytest.raises(OSError, match="full"):
        list(run_missing(experiment, table.numbers, find_missing(experiment, table.numbers, 1), 0))
    assert written == [list(table.numbers.parent.glob(".digits.running/checkpoint"))]
    assert len(written[0]) == 1


def test_other_files_or_another_revision_do_not_resume_a_simulation(table, monkeypatch):
    table.path.write_text(TEXT.format(rounds=8), encoding="utf-8")
    experiment, rests = read_experiment(table.path), []

    def run(experiment, one, folder, *_):
        rests.append([path.name for path in folder.glob("rest")])
        (folder / "rest").write_text("half a simulation")
        raise RuntimeError("stopped")

    monkeypatch.setattr(cells_module, "_run", run)
    for digest, revision in (
        ("a", "1"),
        ("a", "1"),
        ("b", "1"),
        ("b", "2"),
        *[("b", "2-dirty")] * 2,
        *[("b", "")] * 2,
    ):
        records = {"mnist": {"sha256": digest}}
        monkeypatch.setattr(cells_module, "records_of", lambda _, records=records: records)
        monkeypatch.setattr(cells_module, "revision", lambda revision=revision: revision)
        with pytest.raises(RuntimeError, match="stopped"):
            missing = find_missing(experiment, table.numbers, 1)
            list(run_missing(experiment, table.numbers, missing, 0))
    assert rests == [[], ["rest"], *[[]] * 6]
