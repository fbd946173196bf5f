"""The app as a stranger runs it: real Ray workers, real images, and no process left behind."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from fl_app.cli import main
from fl_app.launch import run_on_ray
from tests.app_runs import FEWER_STEPS, ROOT, models_of, run, without_seconds
from tests.example_runs import type_commands
from tests.processes import fedkin, processes_with, wait_for_line

pytestmark = pytest.mark.slow
LONG = ["run", "strategy=local", "num-clients=4", "num-server-rounds=500", "--workers", "1"]


# One of each kind of question to clients: eigenvectors, losses, nothing but training; centroids,
# for which an encoder is trained and UMAP compiled. In the others only the server does something
# else; that the order of replies changes nothing there is in app/run/test_systems.py.
@pytest.mark.parametrize(
    "names",
    [
        ["rcc-pfl", "spectral+mean+ditto"],
        pytest.param(["ifca", "fedhc", "flt-graph"], marks=pytest.mark.faults),
    ],
    ids=["cheap", "all"],
)
def test_two_workers_give_the_results_of_a_single_process_and_leave_none(
    names, tmp_path, monkeypatch
):
    """All that clients are asked, and one state that they keep, with Ray."""
    monkeypatch.setenv("LEFT_BEHIND", marker := f"marker-{os.getpid()}")
    options = {"num_tasks": 3, "noise": "class-dependent", "num_server_rounds": 2}
    options |= {"strategy": ",".join(names), "fraction_train": 0.7}
    options |= {"model": "mlp-32", **FEWER_STEPS}
    words = [f"{key.replace('_', '-')}={value}" for key, value in options.items()]
    words += ["num-clients=6", f"output-dir={tmp_path / 'ray'}"]
    assert main(["run", "--workers", "2", *words]) == 0
    assert not processes_with(marker)
    summary = load_summary(tmp_path / "ray")
    alone = run(tmp_path / "alone", clients=6, **options)
    assert without_seconds(summary) == without_seconds(alone)

    runs = {one["strategy"]: one for one in summary["runs"]}
    table = [row["strategy"] for row in summary["table"]]
    assert [*runs] == table == names
    for name, one in runs.items():
        assert one["seconds"]["total"] > 0
        assert min(one["accuracy-per-client"]) >= 0  # all are numbers
        assert one["failures"] == []
        models = models_of(tmp_path / "ray", name)
        assert len(models) >= (6 if name == "flt-graph" else len(set(one["clusters"])))
        others = models_of(tmp_path / "alone", name)
        assert models.keys() == others.keys()
        for file, model in models.items():
            assert all((model[key] == others[file][key]).all() for key in model)
    assert "rcc-pfl" not in runs or runs["rcc-pfl"]["ari"] == 1


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_or_killed_leaves_no_process(tmp_path, number):
    """Ctrl-C takes the same way as SIGTERM."""
    marker = f"stopped-{os.getpid()}-{number}"
    with fedkin([*LONG, f"output-dir={tmp_path}"], LEFT_BEHIND=marker) as running:
        wait_for_line(running, "round   2/500")
        assert any("raylet" in words for words in processes_with(marker))
        running.send_signal(number)
        rest, _ = running.communicate()
    if number == signal.SIGTERM:
        assert running.returncode == 130
        assert rest.endswith("stopped.\n")
    deadline = time.monotonic() + 60
    while (left := processes_with(marker)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left


@pytest.mark.faults
def test_a_run_whose_process_is_killed_says_how_to_go_on(tmp_path, capsys):
    with fedkin([*LONG, "checkpoint-every=1", f"output-dir={tmp_path}"]) as running:
        wait_for_line(running, "round   2/500")
        (server,) = (
            child
            for child in psutil.Process(running.pid).children()
            if "fl_app.launch" in child.cmdline()
        )
        server.kill()
        assert main(["watch", str(tmp_path)]) == 1
        rest, _ = running.communicate()
    assert running.returncode == 1
    expected = f"resume it from its last checkpoints with resume={tmp_path}"
    assert expected in capsys.readouterr().out.replace("\n", "")
    assert "\nerror: the process died unexpectedly" in f"\n{rest}"
    assert expected in rest


@pytest.mark.faults
def test_flwr_run_alone_works(tmp_path):
    """One SuperLink, as `flwr run .` keeps it."""
    words = f'num-server-rounds=3 output-dir="{tmp_path / "out"}"'
    here = "export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1"
    command = f"flwr run . --stream --run-config '{words}'"
    type_commands(f"{here}; {command}", ROOT, tmp_path / "home")
    summary = load_summary(tmp_path / "out")
    assert [(r["strategy"], r["num-clients"]) for r in summary["runs"]] == [
        ("rcc-pfl", 2),
        ("single", 2),
    ]
    assert summary["runs"][0]["ari"] == 1
    assert summary["runs"][0]["accuracy"] > summary["runs"][1]["accuracy"]


def test_an_exception_of_who_is_shown_the_log_does_not_wait_for_the_run():
    def show(line):
        raise KeyError(line)

    with pytest.raises(KeyError, match="error: model is"):
        run_on_ray({"model": "none"}, show, workers=1, gpus=0.0)


def load_summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["noise-rate=2"], "error: noise-rate is 2, but it must be a number of at least 0 and be"),
        (["learning-rat=1"], "error: learning-rat is not a run-config key"),
        (["nonsense"], "error: nonsense is not of the form KEY=VALUE"),
    ],
)
def test_the_command_line_refuses_before_it_starts_anything(arguments, message, capsys):
    assert main(["run", *arguments]) == 2
    assert message in capsys.readouterr().err
