"""What a run writes of itself while it goes on, and what `fedkin watch` makes of it."""

import io
import json
import re
import subprocess
import sys
import threading
import time
from unittest.mock import MagicMock

import pytest
from filelock import FileLock
from flwr.app import Message, RecordDict
from rich.console import Console

from fl_app.cli import main
from fl_app.config.run_config import parse_config
from fl_app.devices import grid as device_grid
from fl_app.devices.grid import DeviceGrid
from fl_app.plan import Plan, RunFailedError
from fl_app.run import experiment, watch
from fl_app.run import progress as progress_module
from fl_app.run.progress import Progress
from fl_app.run.watch import FAILED, FINISHED, LOCK_FILE, RUNNING, SILENT, lines_of, read_status
from strategies import ClientRegistry, RoundReport
from tests.app_runs import DEFAULTS, of_strategy, run
from tests.device_post import Post, good, reply_of
from tests.toy_app import fail

NASTY = "ber\x1b[2J[red]lin[/red]"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def status(clock):
    return Progress(clock)


def messages(nodes, kind="train"):
    return [Message(RecordDict(), dst_node_id=n, message_type=kind, ttl=60.0) for n in nodes]


def roster_of(count, away=(), failures=None):
    registry = ClientRegistry(nodes={c: 100 + c for c in range(count)}, failures=failures or {})
    registry.update_connected(100 + c for c in range(count) if c not in away)
    return registry


def report(number, accuracies, num_rounds=4):
    clusters = dict.fromkeys(accuracies, 0)
    return RoundReport(number, num_rounds, scores={"accuracy": accuracies}, clusters=clusters)


# ------------------------------------------------------------------------- what the server knows


def test_who_has_answered_and_who_is_waited_for(status, clock):
    status.registry = lambda: roster_of(3, away=[2], failures={7: "its survey failed"})
    status.begin_run("single", 0, 0, 4)
    assert status.content()["doing"] == "single, seed 0, pre-round"
    asked = messages([100, 101, 102])
    status.sent(asked, [], 60.0)
    assert status.content()["doing"] == "single, seed 0, round 1"
    clock.now += 2
    status.received([reply_of(asked[1])])
    said = status.content()
    assert said["asking"] == {
        "what": "train",
        "since": 1000.0,
        "until": 1060.0,
        "asked": 3,
        "answered": 1,
    }
    text = "\n".join(lines_of(said, clock.now))
    assert "asked to train: 1 of 3 have answered in 0:00:02, the rest have 0:00:58" in text
    assert "waiting for client 0, client 2" in text
    assert "3 clients take part, 2 are connected\naway: client 2" in text
    assert "left out: client 7 (its survey failed)" in text
    status.ended([])
    said = status.content()
    assert "asking" not in said


def test_the_latest_failures_are_described_and_all_are_counted(status):
    registry = roster_of(3)
    status.registry = lambda: registry
    status.begin_run("single", 0, 0, 4)
    for number in (1, 2, 4):
        registry.log.add(2, "train", number, "no answer in time")
    registry.log.add(0, "evaluate", 3, "its accuracy is 2")
    status.sent(messages([100]), [], 60.0)
    said = status.content()
    assert said["runs"][0]["failures"] == 4
    sentences = [
        "client 0 could not be tested in round 3: its accuracy is 2",
        "client 2 could not train in rounds 1–2, 4: no answer in time",
    ]
    assert said["failures"] == sentences
    assert "\n".join(sentences) in "\n".join(lines_of(said, 1000.0))


def test_a_node_that_never_said_who_it_is_is_listed_as_left_out(status):
    registry = roster_of(2, failures={7: "its survey failed"})
    registry.unknown[12] = "its disk is full"
    status.registry = lambda: registry
    status.begin_run("single", 0, 0, 4)
    status.sent(messages([100]), [], 60.0)
    left_out = "left out: client 7 (its survey failed), node 12 (its disk is full)"
    assert left_out in status.content()["clients"]


def test_rounds_accuracy_and_the_time_left(status, clock):
    status._rounds_left = 8
    status.begin_run("single", 3, 0, 4)
    clock.now += 30
    status.after_round(report(1, {0: 0.5, 1: 0.75}), roster_of(2))
    clock.now += 10
    said = status.content()
    assert said["runs"] == [
        {
            "strategy": "single",
            "seed": 3,
            "round": 1,
            "rounds": 4,
            "failures": 0,
            "clusters": 1,
            "accuracy": 0.625,
            "worst": 0.5,
        }
    ]
    text = "\n".join(lines_of(said, clock.now))
    assert "running for 0:00:40, about 0:03:20 left for 7 rounds" in text
    assert "now: single, seed 3, round 2, for 0:00:10" in text
    assert "no news" not in text
    assert "no news from the server for 0:00:21" in "\n".join(lines_of(said, clock.now + 21))
    status.after_round(report(2, {}), roster_of(2))  # not evaluated: the last stays
    assert status.content()["runs"][0]["accuracy"] == 0.625


def test_of_a_number_the_table_has_errors(status):
    status.begin_run("single", 0, 0, 4)
    scores = {"rmse": {0: 2.0, 1: 4.0}}
    found = RoundReport(1, 4, scores=scores, clusters={0: 0, 1: 0}, is_regression=True)
    status.after_round(found, roster_of(2))
    (run,) = status.content()["runs"]
    assert (run["rmse"], run["worst"]) == (3, 4)
    console = Console(file=io.StringIO(), width=104, color_system=None)
    console.print(watch._table([run]))
    lines = console.file.getvalue().splitlines()
    assert "RMSE ┃ worst client ┃" in lines[1]
    assert "3.000 │        4.000 │" in lines[3]


def test_who_is_left_out_of_secure_sums_is_named(status):
    status.begin_run("single", 0, 0, 4)
    found = report(1, {})
    found.left_out_of_sums = {1: "its keys are none of ours"}
    status.after_round(found, roster_of(2))
    status.sent(messages([100]), [], 60.0)  # until the next round is over
    text = "\n".join(lines_of(status.content(), 1000.0))
    assert "left out of secure sums: client 1 (its keys are none of ours)" in text


def test_ten_thousand_clients_are_counted_and_not_listed(status):
    registry = roster_of(10_000, failures=dict.fromkeys(range(10_000, 20_000), "away"))
    status.registry = lambda: registry
    asked = messages(list(registry.nodes.values()))
    status.sent(asked, asked, 60.0)
    status.received([reply_of(one) for one in asked[:100]])
    said = status.content()
    assert len(json.dumps(said)) < 20_000
    text = "\n".join(lines_of(said, 1000.0))
    assert "100 of 10,000 have answered" in text
    assert "client 119 and 9,880 more" in text
    assert text.count("and 9,980 more") == 2  # late, and left out
    assert len(text) < 5_000


def test_a_late_device_is_named_with_when_it_was_asked(status, monkeypatch):
    monkeypatch.setattr(device_grid, "_PAUSE", 0.01)
    grid = DeviceGrid(Post({100: good, 101: good, 102: lambda message: []}), 0.5)
    grid.listener = status
    status.registry = lambda: roster_of(3)
    status.begin_run("single", 0, 0, 4)
    grid.send_and_receive(messages([100, 101, 102]), timeout=60)
    said = status.content()
    late = r"late, with an earlier answer: client 2 \(asked at \d\d:\d\d:\d\d\)"
    assert re.fullmatch(late, said["clients"][0])
    replies = grid.send_and_receive(messages([100, 101, 102], "evaluate"), timeout=60)
    assert len(list(replies)) == 3
    assert re.fullmatch(late, status.content()["clients"][0])


def test_what_takes_long_is_said_in_lines_that_become_fewer(status, clock):
    status.doing("reading cifar10")
    said = []
    for _ in range(100):
        clock.now += 1
        said.append(status._line())
    assert [line for line in said if line] == [
        f"reading cifar10: {seconds} s so far" for seconds in (10, 20, 40, 80)
    ]
    status.sent(messages([1, 2]), [], 60.0)
    clock.now += 60
    assert status._line() == "reading cifar10: 160 s so far, 0 of 2 have answered"


# --------------------------------------------------------------------- a run that is killed


def begun(folder, clock):
    """Write what a run writes that has begun and finished a round, and been silent since."""
    clock.now = time.time() - SILENT - 60.0
    status = Progress(clock)
    status.begin_run("rcc-pfl", 0, 0, 4)
    status.after_round(report(1, {0: 0.5}), roster_of(1))
    clock.now += 60.0 - 1.0
    status.write_to(folder)
    return folder


def killed(folder):
    """Leave the lock of a run that was killed."""
    program = (
        "import os, signal, sys; from filelock import FileLock; "
        "FileLock(sys.argv[1]).acquire(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(folder / LOCK_FILE)], check=False)


def with_checkpoint(folder):
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/rcc-pfl-seed-0.safetensors").touch()


def test_a_run_that_was_killed_has_failed_and_says_how_to_go_on(tmp_path, clock, capsys):
    killed(begun(tmp_path, clock))
    assert main(["watch", str(tmp_path), "--once"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "failed after 0:00:59: the process died unexpectedly" in said
    assert "start it again, since it has no checkpoint (see checkpoint-every)." in said
    with_checkpoint(tmp_path)
    assert main(["watch", str(tmp_path)]) == 1
    said = capsys.readouterr().out.replace("\n", "")
    assert f"resume it from its last checkpoints with resume={tmp_path}" in said


def test_a_run_that_hangs_or_ends_in_order_was_not_killed(tmp_path, clock):
    begun(tmp_path, clock)
    lock = tmp_path / LOCK_FILE
    assert read_status(tmp_path)["state"] == RUNNING  # it has let its lock go, and ends
    with FileLock(lock):
        assert read_status(tmp_path)["state"] == RUNNING
    killed(tmp_path)
    clock.now = time.time()  # heard of a moment ago, from a machine whose locks are not seen here
    Progress(clock).write_to(tmp_path)
    assert read_status(tmp_path)["state"] == RUNNING


def test_a_simulation_whose_process_was_killed_says_how_to_go_on(tmp_path, clock, monkeypatch):
    with_checkpoint(begun(tmp_path, clock))
    options = {"output-dir": str(tmp_path)}
    plan = Plan(parse_config({**DEFAULTS, **options}), options, (), workers=1)

    def said_after(ending):
        said = []
        monkeypatch.setattr("fl_app.plan.Plan._run_on_ray", lambda _, show: ending(show))
        with pytest.raises(RunFailedError):
            plan.run(said.append)
        return said

    assert said_after(lambda show: None) == []  # it let its lock go
    (line,) = said_after(lambda show: killed(tmp_path))
    assert line.startswith("error: the process died unexpectedly")
    assert line.endswith(f"resume it from its last checkpoints with resume={tmp_path}.\n")
    # The next one says what is wrong by itself, before it takes the lock that is still there.
    refused = "error: num-tasks is 2, but …\n"
    assert said_after(lambda show: show(refused)) == [refused]


# -------------------------------------------------------------------------------- a whole run


def test_a_run_says_how_it_ended(tmp_path):
    summary = run(tmp_path, strategy="rcc-pfl,single", repeats=2)
    said = read_status(tmp_path)
    assert said["state"] == FINISHED
    assert [(one["strategy"], one["seed"]) for one in said["runs"]] == [
        (name, seed) for seed in (0, 1) for name in ("rcc-pfl", "single")
    ]
    first = said["runs"][0]
    assert (first["round"], first["rounds"]) == (2, 2)
    assert first["accuracy"] == of_strategy(summary, "rcc-pfl")["accuracy"]
    assert first["worst"] == min(of_strategy(summary, "rcc-pfl")["accuracy-per-client"])
    assert said["rounds-left"] == 0


def test_a_run_that_fails_says_why(tmp_path):
    with pytest.raises(RuntimeError, match="no client sent a usable model"):
        run(tmp_path, strategy="single", corrupt={("train", c): fail for c in range(6)})
    said = read_status(tmp_path)
    assert said["state"] == FAILED
    assert said["error"] == "no client sent a usable model in round 1: the disk is full"
    assert main(["watch", str(tmp_path)]) == 1


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_run_that_is_stopped_from_outside_says_how_to_go_on(status, tmp_path, checkpoints):
    """As by Flower, once the SuperLink that started the run has gone."""
    if checkpoints:
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints/single-seed-0.safetensors").touch()
    with pytest.raises(KeyboardInterrupt), status.running():
        status.write_to(tmp_path)
        raise KeyboardInterrupt
    wanted = f"resume={tmp_path}" if checkpoints else "start it again, since it has no checkpoint"
    assert read_status(tmp_path)["error"].startswith("it was stopped from outside: ")
    assert wanted in read_status(tmp_path)["error"]


def test_a_resumed_run_is_in_its_round_at_once(status):
    status.begin_run("rcc-pfl", 0, 2, 4)
    assert status.content()["doing"] == "rcc-pfl, seed 0, round 3"
    status.begin_run("rcc-pfl", 1, 4, 4)
    assert status.content()["doing"] == "rcc-pfl, seed 1, results"


def test_a_status_that_cannot_be_written_is_one_warning(tmp_path, monkeypatch, caplog):
    def full(path):
        raise OSError("No space left on device")

    monkeypatch.setattr(progress_module, "replacing", full)
    monkeypatch.setattr(progress_module, "_TICK", 0.001)
    summary = run(tmp_path, strategy="single")
    assert summary["runs"]
    assert caplog.text.count("cannot write the status for fedkin watch: No space left") == 1


# ------------------------------------------------------------------------------- fedkin watch


def written(folder, status):
    status._folder = folder
    status._write()


def test_one_snapshot_is_plain_text(status, tmp_path, capsys):
    registry = roster_of(2)
    registry.names[0] = NASTY
    status.registry = lambda: registry
    status.begin_run("rcc-pfl", 0, 0, 4)
    status.after_round(report(1, {0: 0.5, 1: 0.75}), registry)
    status.sent(messages([100, 101]), [], 60.0)
    written(tmp_path, status)
    assert main(["watch", str(tmp_path), "--once"]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert r"ber\x1b[2J[red]lin[/red], client 1" in said
    row = next(line for line in said.splitlines() if "rcc-pfl" in line and "1/4" in line)
    assert row.replace("│", "").split() == ["rcc-pfl", "0", "1/4", "62.5", "50.0", "1", "0"]


def test_a_folder_without_a_run_is_said_or_waited_for(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "none"), "--once"]) == 2
    assert "has no status.json: give the results folder of a run" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["watch", str(tmp_path / "file")]) == 2
    assert "is a file: give a run's results folder." in capsys.readouterr().err
    (tmp_path / "summary.json").touch()
    assert main(["watch", str(tmp_path)]) == 2
    assert "results of a run without status.json" in capsys.readouterr().err
    for text in ("{", '{"version": 99}', "[]"):
        (tmp_path / "status.json").write_text(text, encoding="utf-8")
        assert main(["watch", str(tmp_path)]) == 2
        assert "was not written by this version of fedkin" in capsys.readouterr().err


def test_the_display_waits_for_a_run_follows_it_and_ends_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(watch, "_LOOK_AGAIN", 0.01)
    folder = tmp_path / "later"
    thread = threading.Timer(0.3, lambda: run(folder, strategy="single"))
    thread.start()
    assert main(["watch", str(folder)]) == 0
    thread.join()
    said = capsys.readouterr().out
    assert said.startswith(f"waiting for a run to start in {folder}, which does not exist yet;")
    assert "finished after 0:00:" in said
    assert "2/2" in said
    assert said.endswith("┘\n")


def test_the_server_tells_its_grid_whom_to_tell(monkeypatch):
    heard = []
    monkeypatch.setattr(experiment, "_Experiment", MagicMock())
    grid = DeviceGrid(Post({}))
    experiment.run_experiment(
        parse_config(DEFAULTS), grid, lambda config, grid, _: heard.append(grid)
    )
    assert isinstance(heard[0].listener, Progress)
