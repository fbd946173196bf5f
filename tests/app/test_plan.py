"""From options to results: in this process or on Ray, with the same results."""

import argparse
import logging
import os

import pytest

from fl_app import cli
from fl_app.plan import SMALL, RunFailedError, prepare
from fl_app.run.log import LEVEL_VARIABLE, log_to_console, log_to_file

OPTIONS = {"strategy": "rcc-pfl,fedhc", "num-clients": 6, "num-tasks": 3, "num-server-rounds": 2}
OPTIONS |= {"model": "mlp-32", "batch-size": 128}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("options", "is_small"),
    [
        ({"num-clients": 25, "num-server-rounds": SMALL // 50}, True),
        ({"num-clients": 25, "num-server-rounds": SMALL // 50 + 1}, False),
        ({"num-clients": 25, "num-server-rounds": 10, "repeats": 2}, False),
        ({"num-clients": 5, "tune": "learning-rate=0.001,0.01,0.1,1"}, True),
        ({"num-clients": 7, "tune": "learning-rate=0.001,0.01,0.1,1"}, False),
    ],
)
def test_a_small_simulation_runs_in_this_process(options, is_small):
    if "tune" in options:
        options = {**options, "validation-share": 0.2}
    plan = prepare({"strategy": "local,single", **options})
    assert (plan.workers == 0) == is_small
    assert prepare({"strategy": "local,single", **options}, workers=3).workers == 3


def test_lines_are_shown_and_the_folder_is_returned(tmp_path, capsys):
    plan = prepare({**OPTIONS, "seed": 3, "output-dir": "out"})
    lines = []
    assert plan.run(lines.append) == tmp_path / "out"
    assert all(line.endswith("\n") for line in lines)
    assert any(line.startswith("rcc-pfl  seed 3  round   2/2") for line in lines)
    assert capsys.readouterr().out == ""
    prepare({**OPTIONS, "output-dir": "again"}).run()
    assert "rcc-pfl  seed 0  round   2/2" in capsys.readouterr().out


def test_a_failure_in_this_process_is_shown_with_its_reason(monkeypatch):
    def fail(*_):
        raise OSError("the disk is full.")

    monkeypatch.setattr("fl_app.run.experiment._Experiment.run", fail)
    lines = []
    with pytest.raises(RunFailedError, match=r"^the disk is full\.$"):
        prepare(OPTIONS).run(lines.append)
    assert lines[-1] == "error: the disk is full.\n"


def test_the_log_of_a_run_says_how_it_failed_and_leaves_levels_as_they_were(tmp_path, capsys):
    level = logging.getLogger("httpx").level
    with pytest.raises(RuntimeError), log_to_console(), log_to_file(tmp_path):
        raise RuntimeError("all clients failed.")
    assert (tmp_path / "log.txt").read_text(encoding="utf-8") == "error: all clients failed.\n"
    assert capsys.readouterr().out == ""
    assert logging.getLogger("httpx").level == level
    options = argparse.Namespace(level=logging.ERROR)
    with cli._shown(options, tmp_path):
        assert os.environ[LEVEL_VARIABLE] == str(logging.ERROR)
    assert LEVEL_VARIABLE not in os.environ


def test_this_process_has_no_cluster_and_no_shares_of_gpus():
    with pytest.raises(ValueError, match="workers is 0, which runs clients in this process, but"):
        prepare(OPTIONS, workers=0, gpus_per_client=0.5)
