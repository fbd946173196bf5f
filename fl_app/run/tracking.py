"""A run shown elsewhere while it runs: by TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass
class Tracker:
    """One strategy on one seed, shown elsewhere; `done` of its rounds are logged already."""

    name: str
    folder: Path
    options: dict[str, Scalar]
    done: int = 0

    def __post_init__(self) -> None:
        """Open the run."""

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        """Log the numbers of a round, so that others can see them when this returns."""

    def close(self, *, failed: bool = False) -> None:
        """End the run."""


class TensorBoard(Tracker):
    """Event files in `tensorboard/NAME` of the results folder."""

    def __post_init__(self) -> None:
        """Write the options; rounds that are trained again replace those of before."""
        load_extra("tensorboard", "track=tensorboard")
        tensorboard: Any = import_module("torch.utils.tensorboard")  # which has no types
        folder = self.folder / "tensorboard" / self.name
        self._writer = tensorboard.SummaryWriter(folder, purge_step=self.done + 1)
        _, start, self._end = tensorboard.summary.hparams(self.options, {})
        self._writer.file_writer.add_summary(start)
        self._writer.flush()

    def log(self, values: Mapping[str, float], server_round: int) -> None:  # noqa: D102
        for name, value in values.items():
            self._writer.add_scalar(name, value, server_round)
        self._writer.flush()

    def close(self, *, failed: bool = False) -> None:  # noqa: D102
        if not failed:
            self._writer.file_writer.add_summary(self._end)
        self._writer.close()


class MLflow(Tracker):
    """A run at MLFLOW_TRACKING_URI, or else in `mlflow.db` of the results folder."""

    def __post_init__(self) -> None:
        """Open it; a server that does not answer later delays one round at most."""
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow: Any = load_extra("mlflow", "track=mlflow")
        self._metric, param = mlflow.entities.Metric, mlflow.entities.Param
        uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.folder / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(uri)
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        found = self._client.get_experiment_by_name(project)
        experiment = found.experiment_id if found else self._client.create_experiment(project)
        self._run = self._client.create_run(experiment, run_name=self.name).info.run_id
        options = [param(key, str(value)) for key, value in self.options.items()]
        self._client.log_batch(self._run, params=options)

    def log(self, values: Mapping[str, float], server_round: int) -> None:  # noqa: D102
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, server_round) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, *, failed: bool = False) -> None:  # noqa: D102
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class WandB(Tracker):
    """A run of the project WANDB_PROJECT; with WANDB_MODE=offline, in the results folder."""

    def __post_init__(self) -> None:
        """Open it without data of this machine, and without the run's output."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb: Any = load_extra("wandb", "track=wandb")
        private = {"console": "off", "host": _PROJECT, "silent": True, "disable_git": True}
        unused = ("x_disable_machine_info", "x_disable_meta", "x_disable_stats")
        private |= {**dict.fromkeys(unused, True), "x_save_requirements": False}
        self._run = wandb.init(
            name=self.name,
            group=self.folder.name,
            config=self.options,
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=self.folder,
            reinit="create_new",
            settings=wandb.Settings(**private, finish_timeout=60.0, finish_timeout_raises=True),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, values: Mapping[str, float], server_round: int) -> None:  # noqa: D102
        self._run.log({"round": server_round, **values})

    def close(self, *, failed: bool = False) -> None:  # noqa: D102
        self._run.finish(exit_code=int(failed))


TRACKER_OF = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


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
        self._tracker: Tracker | None = None
        self._has_worked = False

    def begin_run(self, name: str, seed: int, done: int, values: Mapping[str, Scalar]) -> None:
        """Open a run for a strategy on a seed, with the values of options that it tries."""
        if self._open is None:
            return
        options = {**self._config.as_run_config(), **values, "strategy": name, "seed": seed}
        folder = Path(self._config.output_dir)
        try:
            self._tracker = self._open(f"{name}-seed-{seed}", folder, options, done)
        except Exception as error:
            if not self._has_worked:
                raise RuntimeError(
                    f"track is {self._config.track}, which fails ({one_line(str(error))}): see "
                    "docs/simulation.md for what it needs, or set track to none."
                ) from error
            self._give_up(error)
        self._has_worked = True

    def after_round(
        self, report: RoundReport, seconds: float, federation: Federation | None
    ) -> None:
        """Send the numbers of a round."""
        if self._tracker is not None:
            try:
                self._tracker.log(round_values(report, seconds, federation), report.round)
            except Exception as error:  # of a library, a disk or a server
                self._give_up(error)

    def close(self) -> None:
        """End a run that is still open: it failed."""
        self.end_run(failed=True)

    def end_run(self, *, failed: bool = False) -> None:
        """End the run, if one is open."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            try:
                tracker.close(failed=failed)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = self._open = None
        _log.warning(
            "track=%s fails and is not used any more; the run continues: %s",
            *(self._config.track, one_line(str(error))),
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
