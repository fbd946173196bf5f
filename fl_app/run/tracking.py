"""A run shown elsewhere while it runs: by TensorBoard, MLflow or Weights & Biases."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any

from fl_app.config.run_config import Config
from fl_app.results.run_result import ari_and_nmi
from fl_core.data.settings import name_of_test
from fl_core.extras import load_extra, need_extra
from fl_core.messages.protocol import USER_METRIC
from fl_core.options import Scalar
from fl_core.partitions.federation import Federation
from fl_core.text import one_line
from strategies import RoundReport

_PROJECT = "fedkin"
_MOST_CLUSTERS = 50  # with a curve each
_log = logging.getLogger(__name__)


# Each opens a run elsewhere, from its name, the results folder, its options and how many of its
# rounds are logged already. It returns two functions: one logs the numbers of a round, so that
# others can see them when it returns; the other ends the run, and takes whether it failed.
Log = Callable[[Mapping[str, float], int], object]
Close = Callable[[bool], object]


def _open_tensorboard(
    name: str, folder: Path, options: Mapping[str, Scalar], done: int
) -> tuple[Log, Close]:
    """Write event files; rounds that are trained again replace those of before."""
    load_extra("tensorboard", "track=tensorboard")
    tensorboard: Any = import_module("torch.utils.tensorboard")  # which has no types
    writer = tensorboard.SummaryWriter(folder / "tensorboard" / name, purge_step=done + 1)
    _, start, end = tensorboard.summary.hparams(options, {})
    writer.file_writer.add_summary(start)
    writer.flush()

    def log(values: Mapping[str, float], server_round: int) -> None:
        for key, value in values.items():
            writer.add_scalar(key, value, server_round)
        writer.flush()

    def close(failed: bool) -> None:
        if not failed:
            writer.file_writer.add_summary(end)
        writer.close()

    return log, close


def _open_mlflow(
    name: str, folder: Path, options: Mapping[str, Scalar], _: int
) -> tuple[Log, Close]:
    """Open a run at MLFLOW_TRACKING_URI, or else in `mlflow.db` of the results folder."""
    # A server that does not answer later delays one round at most.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow: Any = load_extra("mlflow", "track=mlflow")
    metric, param = mlflow.entities.Metric, mlflow.entities.Param
    client = mlflow.MlflowClient(
        os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}"
    )
    project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
    found = client.get_experiment_by_name(project)
    experiment = found.experiment_id if found else client.create_experiment(project)
    run = client.create_run(experiment, run_name=name).info.run_id
    client.log_batch(run, params=[param(key, str(value)) for key, value in options.items()])

    def log(values: Mapping[str, float], server_round: int) -> None:
        now = int(1000 * time.time())
        metrics = [metric(key, value, now, server_round) for key, value in values.items()]
        client.log_batch(run, metrics=metrics)

    return log, lambda failed: client.set_terminated(run, "FAILED" if failed else "FINISHED")


def _open_wandb(
    name: str, folder: Path, options: Mapping[str, Scalar], _: int
) -> tuple[Log, Close]:
    """Open a run of WANDB_PROJECT, without data of this machine and without the run's output.

    With WANDB_MODE=offline, it is in the results folder.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    wandb: Any = load_extra("wandb", "track=wandb")
    private = {"console": "off", "host": _PROJECT, "silent": True, "disable_git": True}
    unused = ("x_disable_machine_info", "x_disable_meta", "x_disable_stats")
    private |= {**dict.fromkeys(unused, True), "x_save_requirements": False}
    run = wandb.init(
        name=name,
        group=folder.name,
        config=options,
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        dir=folder,
        reinit="create_new",
        settings=wandb.Settings(**private, finish_timeout=60.0, finish_timeout_raises=True),
    )
    run.define_metric("*", step_metric="round")
    return (
        lambda values, server_round: run.log({"round": server_round, **values}),
        lambda failed: run.finish(exit_code=int(failed)),
    )


TRACKER_OF = {"tensorboard": _open_tensorboard, "mlflow": _open_mlflow, "wandb": _open_wandb}


def check_tracker(name: str) -> None:
    """Refuse a tracker without its package, by a MissingExtraError."""
    if name in TRACKER_OF:
        need_extra(name, f"track={name}", "set track to none")


class Tracking:
    """Sends every round to `config.track`.

    A tracker that fails before the first training is a RuntimeError. Later it is a warning, the
    tracker is not used any more, and the training continues.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open = TRACKER_OF.get(config.track)
        self._log: Log | None = None
        self._has_worked = False

    @contextmanager
    def run(self, name: str, seed: int, done: int, values: Mapping[str, Scalar]) -> Iterator[None]:
        """Track a strategy on a seed, with the values of options that it tries, in the block."""
        if self._open is None:
            yield
            return
        options = {**self._config.as_run_config(), **values, "strategy": name, "seed": seed}
        close: Close = bool
        with self._giving_up():
            run_name, folder = f"{name}-seed-{seed}", Path(self._config.output_dir)
            self._log, close = self._open(run_name, folder, options, done)
        self._has_worked, failed = True, True
        try:
            yield
            failed = False
        finally:
            if self._log is not None:
                self._log = None
                with self._giving_up():
                    close(failed)

    def after_round(
        self, report: RoundReport, seconds: float, federation: Federation | None
    ) -> None:
        """Send the numbers of a round."""
        if self._log is not None:
            with self._giving_up():
                self._log(round_values(report, seconds, federation), report.round)

    @contextmanager
    def _giving_up(self) -> Iterator[None]:
        """Use the tracker no more if the block raises what a library, a disk or a server may."""
        name = self._config.track
        try:
            yield
        except Exception as error:
            if not self._has_worked:
                raise RuntimeError(
                    f"track is {name}, which fails ({one_line(str(error))}): see "
                    "docs/simulation.md for what it needs, or set track to none."
                ) from error
            self._open = self._log = None
            _log.warning(
                "track=%s fails and is not used any more; the run continues: %s",
                *(name, one_line(str(error))),
            )


def round_values(
    report: RoundReport, seconds: float, federation: Federation | None
) -> dict[str, float]:
    """Return the finite numbers of a round, by name.

    `seconds` is the time of the strategy so far. The ARI needs the true tasks of a `federation`.
    """
    tested, clusters, main = report.tested, report.clusters, report.metrics.main
    values: dict[str, float] = {
        "loss/train": report.train_loss,
        "loss/test": report.loss,
        "bytes": report.bytes,
        "seconds": seconds,
        "clusters": len(set(clusters.values())),
    }
    if tested:
        values[f"{main.name}/mean"] = report.score
        values[f"{main.name}/worst-client"] = main.worst(tested.values())
        values[f"{USER_METRIC}/mean"] = report.mean(USER_METRIC)
        of_cluster: dict[int, list[float]] = {}
        for client, score in tested.items():
            of_cluster.setdefault(clusters[client], []).append(score)
        if len(of_cluster) <= _MOST_CLUSTERS:
            values |= {f"{main.name}/cluster-{c}": fmean(s) for c, s in of_cluster.items()}
    if federation is not None and (others := report.other_scores.get(main.name)):
        values[f"{main.name}/mean-{name_of_test(federation.other_test)}"] = fmean(others.values())
    if federation is not None and federation.knows_tasks:
        tasks = federation.tasks_at(report.round).tolist()
        values["ari"] = ari_and_nmi(tasks, clusters, federation.malicious)[0]
    return {name: value for name, value in values.items() if math.isfinite(value)}
