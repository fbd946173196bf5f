"""TensorBoard, MLflow and W&B have what metrics.csv has, read by their own readers."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from fl_app.cli import main
from fl_app.config.run_config import DEFAULTS, parse_config
from fl_app.run.tracking import TRACKER_OF, Tracking, round_values
from fl_core import extras
from fl_core.extras import MissingExtraError
from strategies import RoundReport
from tests.app_runs import LARGE_STEPS, of_strategy, per_round, run

# MLflow's, of SQLAlchemy 2.1 and of Python.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The ``noload`` loader"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # TensorBoard's thread raises once more what it has told the run.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
NAMES = tuple(TRACKER_OF)


def needs(name):
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )


@pytest.fixture(autouse=True)
def nobody_elses(monkeypatch, tmp_path):
    """No server, project or login of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("MLFLOW_", "WANDB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    # Set by the trackers themselves: taken back at the end.
    for name in ("WANDB_ERROR_REPORTING", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, {"WANDB": "false"}.get(name[:5], "true"))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


# ------------------------------------------------------------------------------ what is told


def test_the_second_test_is_told_by_its_name():
    others = {"accuracy": {0: 0.25, 1: 0.5}}
    report = RoundReport(3, 3, scores={"accuracy": {0: 0.5}}, clusters={0: 0}, other_scores=others)
    federation = SimpleNamespace(other_test="own", knows_tasks=False)
    told = round_values(report, 1, federation)
    assert (told["accuracy/mean"], told["accuracy/mean-on-its-own-data"]) == (0.5, 0.375)
    assert not any("on-its" in name for name in round_values(report, 1, None))


def test_the_numbers_of_a_round():
    report = RoundReport(
        *(3, 5),
        train_loss=0.25,
        scores={"accuracy": {0: 0.5, 1: 1.0, 2: 0.75}, "loss": {0: 1.0, 1: 3.0}},
        clusters={0: 0, 1: 0, 2: 4, 3: 4},
        bytes=700,
    )
    assert round_values(report, 12.5, None) == {
        "accuracy/mean": 0.75,
        "accuracy/worst-client": 0.5,
        "accuracy/cluster-0": 0.75,
        "accuracy/cluster-4": 0.75,
        "loss/train": 0.25,
        "loss/test": 2.0,
        "bytes": 700,
        "seconds": 12.5,
        "clusters": 2,
    }


def test_what_is_not_known_is_not_told():
    assert round_values(RoundReport(1, 5), 1.0, None) == {"bytes": 0, "seconds": 1.0, "clusters": 0}


def test_a_cluster_for_each_of_many_clients_has_no_curve():
    clients = dict.fromkeys(range(60), 0.5)
    report = RoundReport(1, 1, scores={"accuracy": clients}, clusters={c: c for c in clients})
    assert not [name for name in round_values(report, 1.0, None) if "cluster-" in name]


# ------------------------------------------------------------------------- read back for real


def first_run(folder, name):
    """Run two strategies, and return the summary and what rcc-pfl's accuracies were."""
    summary = run(folder, strategy="rcc-pfl,single", track=name)
    return summary, per_round(folder, "rcc-pfl", "accuracy")


@needs("tensorboard")
@pytest.mark.slow
def test_tensorboard_has_it_all(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    summary, accuracies = first_run(tmp_path, "tensorboard")
    runs = tmp_path / "tensorboard"
    assert {path.name for path in runs.iterdir()} == {"rcc-pfl-seed-0", "single-seed-0"}
    events = EventAccumulator(str(runs / "rcc-pfl-seed-0"))
    events.Reload()
    points = events.Scalars("accuracy/mean")
    assert [point.step for point in points] == [1, 2]
    assert [point.value for point in points] == pytest.approx(accuracies)
    assert events.Scalars("ari")[-1].value == of_strategy(summary, "rcc-pfl")["ari"]
    worst = min(of_strategy(summary, "rcc-pfl")["accuracy-per-client"])
    assert events.Scalars("accuracy/worst-client")[-1].value == pytest.approx(worst)
    assert events.Scalars("bytes")[-1].value == per_round(tmp_path, "rcc-pfl", "bytes")[-1]
    parameters = hyperparameters(events)
    assert parameters["strategy"] == "rcc-pfl"
    assert parameters["num-tasks"] == 3


def hyperparameters(events):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # noqa: PLC0415

    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    return {key: getattr(value, value.WhichOneof("kind")) for key, value in found.items()}


@needs("mlflow")
@pytest.mark.slow
def test_mlflow_has_it_all(tmp_path):
    from mlflow import MlflowClient  # noqa: PLC0415

    summary, accuracies = first_run(tmp_path, "mlflow")
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("fedkin").experiment_id
    found = {one.info.run_name: one for one in client.search_runs([experiment])}
    assert set(found) == {"rcc-pfl-seed-0", "single-seed-0"}
    one = found["rcc-pfl-seed-0"]
    assert one.info.status == "FINISHED"
    assert one.data.params["strategy"] == "rcc-pfl"
    assert one.data.params.keys() == summary["config"].keys()
    history = client.get_metric_history(one.info.run_id, "accuracy/mean")
    assert [(point.step, point.value) for point in history] == [
        (number, pytest.approx(accuracy)) for number, accuracy in enumerate(accuracies, 1)
    ]
    assert one.data.metrics["ari"] == of_strategy(summary, "rcc-pfl")["ari"]


@needs("wandb")
@pytest.mark.slow
def test_wandb_has_a_run_for_each_strategy_offline(tmp_path):
    first_run(tmp_path, "wandb")
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2
    files = {path.name for path in tmp_path.glob("wandb/offline-run-*/files/*")}
    assert files <= {"config.yaml", "wandb-summary.json", "media"}  # nothing of this machine


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs(name)) for name in ("tensorboard", "mlflow")]
)
@pytest.mark.slow
def test_an_interrupted_run_continues_in_tensorboard_and_is_a_new_run_elsewhere(name, tmp_path):
    for done, last in ((0, 3), (2, 4)):
        log, close = TRACKER_OF[name]("a", tmp_path, {"seed": 0}, done)
        for number in range(done + 1, last + 1):
            log({"accuracy/mean": number + done / 10}, number)
        close(not done)
    before, after = [(1, 1.0), (2, 2.0)], [(3, 3.2), (4, 4.2)]
    if name == "tensorboard":
        assert _of_tensorboard(tmp_path) == before + after
    else:
        assert sorted(_of_mlflow(tmp_path)) == [[*before, (3, 3.0)], after]


def _of_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import (  # noqa: PLC0415
        EventAccumulator,
    )

    events = EventAccumulator(str(folder / "tensorboard/a"))
    events.Reload()
    return [(one.step, pytest.approx(one.value)) for one in events.Scalars("accuracy/mean")]


def _of_mlflow(folder):
    from mlflow import MlflowClient  # noqa: PLC0415

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("fedkin").experiment_id])
    assert {one.info.status for one in runs} == {"FAILED", "FINISHED"}
    for one in runs:
        history = client.get_metric_history(one.info.run_id, "accuracy/mean")
        yield [(point.step, point.value) for point in history]


# ---------------------------------------------------------------------------- what goes wrong


class Failing:
    """Fails at some call."""

    def __init__(self, at):
        self.at, self.calls = at, []

    def __call__(self, name, folder, options, done):
        self.calls.append(name)
        if len(self.calls) == self.at:
            raise OSError("no such server")
        return self.log, self.close

    def log(self, values, server_round):
        self.calls.append(server_round)
        if len(self.calls) == self.at:
            raise OSError("No space left\non device")

    def close(self, failed):
        self.log({}, "failed" if failed else "end")


@pytest.mark.parametrize("at", [2, 4, 5, 0])
def test_a_tracker_that_fails_on_the_way_ends_no_training(at, tmp_path, monkeypatch, caplog):
    failing = Failing(at)
    monkeypatch.setitem(TRACKER_OF, "tensorboard", failing)
    monkeypatch.setattr("fl_app.run.experiment.check_tracker", lambda name: None)
    summary = run(tmp_path, strategy="single,local", track="tensorboard", **LARGE_STEPS)
    assert len(summary["runs"]) == 2
    calls = ["single-seed-0", 1, 2, "end", "local-seed-0", 1, 2, "end"]
    assert failing.calls == (calls[:at] if at else calls)
    if not at:
        return
    assert caplog.text.count("track=tensorboard fails and is not used any more") == 1
    assert ("no such server" if at == 5 else "No space left on device") in caplog.text


def test_one_that_fails_at_once_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(TRACKER_OF, "wandb", Failing(1))
    monkeypatch.setattr("fl_app.run.experiment.check_tracker", lambda name: None)
    with pytest.raises(RuntimeError, match=r"track is wandb, which fails \(no such server\): see"):
        run(tmp_path, track="wandb")


def test_each_of_the_values_that_are_tried_is_told_as_such(tmp_path, monkeypatch):
    told = []
    never = Failing(0)
    monkeypatch.setitem(TRACKER_OF, "mlflow", lambda *about: told.append(about) or never(*about))
    monkeypatch.setattr("fl_app.run.experiment.check_tracker", lambda name: None)
    tune = {"tune": "learning-rate=0.003,0.03", "validation_share": 0.2}
    run(tmp_path, track="mlflow", strategy="local,single", num_server_rounds=1, **tune)
    assert [name.partition("=")[2] for name, *_ in told] == 2 * ["0.003-seed-0", "0.03-seed-0"]
    assert [options["learning-rate"] for _, _, options, _ in told] == 2 * [0.003, 0.03]


def test_a_training_that_fails_is_a_failed_run(tmp_path, monkeypatch):
    failing = Failing(0)
    monkeypatch.setitem(TRACKER_OF, "mlflow", failing)
    config = parse_config({**DEFAULTS, "output-dir": str(tmp_path), "track": "mlflow"})
    with pytest.raises(KeyboardInterrupt), Tracking(config).run("single", 0, 0, {}):
        raise KeyboardInterrupt
    assert failing.calls == ["single-seed-0", "failed"]


# --------------------------------------------------------------------- what is known beforehand


@pytest.mark.parametrize("name", NAMES)
def test_a_package_that_is_missing_is_said_before_anything_starts(name, monkeypatch, capsys):
    there = extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda one: None if one == name else there(one))
    assert main(["run", f"track={name}"]) == 2
    said = capsys.readouterr().err
    assert f"track={name} needs the package {name}, which is not installed" in said
    assert f"pip install '.[{name}]'" in said
    with pytest.raises(MissingExtraError):
        run(Path("nowhere"), track=name)
    assert not Path("nowhere").exists()
