"""A run shown elsewhere while it runs: by TensorBoard, MLflow or Weights & Biases."""
# ruff: noqa: D102 - `Tracker` says what the methods do

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from fl_core.extras import load_extra, need_extra
from fl_core.options import Scalar

_PROJECT = "fedkin"


@dataclass
class Tracker:
    """One run somewhere else, a strategy on a seed; `done` of its rounds are logged already."""

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

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, server_round)
        self._writer.flush()

    def close(self, *, failed: bool = False) -> None:
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

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(name, value, now, server_round) for name, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, *, failed: bool = False) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


class WandB(Tracker):
    """A run of the project WANDB_PROJECT; with WANDB_MODE=offline, in the results folder."""

    def __post_init__(self) -> None:
        """Open it without anything of this machine, and without what the run prints."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb: Any = load_extra("wandb", "track=wandb")
        about = {"name": self.name, "group": self.folder.name, "config": self.options}
        private = {"console": "off", "host": _PROJECT, "silent": True, "disable_git": True}
        unused = ("x_disable_machine_info", "x_disable_meta", "x_disable_stats")
        private |= {**dict.fromkeys(unused, True), "x_save_requirements": False}
        self._run = wandb.init(
            **about,
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=self.folder,
            reinit="create_new",
            settings=wandb.Settings(**private, finish_timeout=60.0, finish_timeout_raises=True),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        self._run.log({"round": server_round, **values})

    def close(self, *, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


TRACKER_OF = {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WandB}


def check_tracker(name: str) -> None:
    """Refuse a tracker without its package (MissingExtraError), and W&B without a login.

    Raises
    ------
    ValueError
        If W&B would ask who one is.
    """
    if name not in TRACKER_OF:
        return
    need_extra(name, f"track={name}", "set track to none")
    if name == "wandb" and not _is_logged_in():
        raise ValueError(
            "track is wandb, but nobody has logged in to Weights & Biases here: run wandb login, "
            "set WANDB_API_KEY, or set WANDB_MODE=offline to keep everything in the results folder."
        )


def _is_logged_in() -> bool:
    from requests.utils import get_netrc_auth  # noqa: PLC0415 - wandb brings it

    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    is_offline = os.environ.get("WANDB_MODE") in ("offline", "disabled")
    return is_offline or "WANDB_API_KEY" in os.environ or get_netrc_auth(host) is not None
