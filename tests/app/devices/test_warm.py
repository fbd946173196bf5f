"""The process that forks for each message: what a child is, and what is left of it."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from fl_app.devices.site.warm import check_app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a fork that ends with its parent"),
]


def started(what, folder, *more):
    words = [sys.executable, "-m", "tests.warm_site", what, str(folder), *more]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def wait_for(path, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path.name}"
        time.sleep(0.05)
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_node_names_each_app_that_it_runs_and_runs_no_other(caplog):
    caplog.set_level("INFO")
    known, edited = "ab" * 32, "cd" * 32
    check_app(edited, "")
    check_app(known, known)
    lines = [record.message for record in caplog.records]
    assert lines == [f"a message is answered by the app {d}" for d in (edited, known)]
    with pytest.raises(ValueError, match=f"no app but {known} .*, and the run has {edited}: ask"):
        check_app(edited, known)


def test_each_message_has_a_process_of_its_own_of_which_nothing_is_left(tmp_path):
    tokens = ["first", "fails", "killed", "hangs", "last"]
    process = started("answer", tmp_path, *tokens)
    _, said = process.communicate(timeout=60)
    noted = [json.loads((tmp_path / f"{token}.json").read_text()) for token in tokens]
    assert len({one["process"] for one in noted}) == 5
    assert {one["parent"] for one in noted} == {process.pid}
    assert {one["answered"] for one in noted} == {1}
    assert len({one["drawn"] for one in noted}) == 5
    assert all(one["closed"] and one["default"] for one in noted)
    # The one that hangs is ended with the process; the parent itself has answered none.
    assert json.loads((tmp_path / "left").read_text()) == [[], 0]
    assert "as an app does" in said
    assert said.count("ended by SIGKILL: the message fails in a minute") == 1
    assert process.returncode == 0


@pytest.mark.faults
def test_a_message_ends_with_the_process_that_is_killed(tmp_path):
    process = started("answer", tmp_path, "hangs")
    child = psutil.Process(wait_for(tmp_path / "hangs.json")["process"])
    assert child.is_running()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    psutil.wait_procs([child], timeout=10)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_it_keeps_libraries_and_of_the_app_what_is_the_same_in_the_run(tmp_path):
    process = started("warm-up", tmp_path)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    noted = json.loads((tmp_path / "noted").read_text())
    known, _, place = noted.pop("same")
    assert known
    assert place == "same"
    assert noted.pop("other") == [False, "of the run", "other"]
    assert noted == {"ours": [], "cuda": False, "threads": 1, "by-adam": []}


@pytest.mark.faults
def test_its_memory_is_the_same_after_two_hundred_messages(tmp_path):
    process = started("many", tmp_path, "200")
    _, said = process.communicate(timeout=400)
    assert process.returncode == 0, said
    assert len(list(tmp_path.glob("*.json"))) == 200
    sizes = json.loads((tmp_path / "sizes").read_text())
    assert len(sizes) > 200
    assert max(sizes[20:]) == pytest.approx(sizes[20], rel=0.05)
