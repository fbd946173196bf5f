"""TensorBoard, MLflow and Weights & Biases: what each does with the same few things.

They are installed by extras and loaded where they are used.
"""
# ruff: noqa: D102 - `Tracker` says what the methods do

from __future__ import annotations

import csv
import io
import netrc
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from fl_core.extras import load_extra, need_extra
from fl_core.files import replacing
from fl_core.options import Scalar
from fl_core.wire import protocol

Rows = Sequence[Sequence[Any]]
"""A table; its columns are the first row."""

_PROJECT = "fedkin"
_IDENTITY = "tracking-id.txt"
_MLFLOW_LONGEST, _MLFLOW_MOST = 6000, 100  # characters of a parameter, parameters at a time
"""What MLflow allows."""
_WANDB_PATIENCE = 60.0  # seconds for the rest to be sent


@dataclass(frozen=True)
class About:
    """What a tracker is told of one run: a strategy on a seed.

    Attributes
    ----------
    name : str
        Such as `rcc-pfl-seed-0`.
    folder : Path
        The results folder.
    options : mapping
        The configuration.
    done : int
        How many rounds are done already, of a run that was interrupted.
    score : str
        The name of what counts.
    """

    name: str
    folder: Path
    options: Mapping[str, Scalar]
    done: int = 0
    score: str = protocol.ACCURACY

    @property
    def identity(self) -> str:
        """Return a key that is the same after an interruption, and for no other run.

        Not even for one that is written into a folder of the same name later: what is the same lies
        in the folder.
        """
        path = self.folder / _IDENTITY
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(f"{secrets.token_hex(16)}\n", encoding="utf-8")
        own = path.read_text(encoding="utf-8")
        return blake2b(f"{own}\0{self.name}".encode(), digest_size=8).hexdigest()


def as_csv(rows: Rows) -> str:
    """Return a table as the text of a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


class Tracker(Protocol):
    """One run somewhere else. Its constructor opens it; whatever fails raises what it likes."""

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        """Note what a round has come to, so that others can see it when this returns."""

    def add_clusters(self, rows: Rows) -> None:
        """Keep who is in which cluster."""

    def add_picture(self, path: Path) -> None:
        """Keep a PNG file."""

    def close(self, *, failed: bool = False) -> None:
        """End the run."""


class TensorBoard:
    """Event files in `tensorboard/NAME` of the results folder."""

    def __init__(self, about: About) -> None:
        load_extra("tensorboard", "track=tensorboard")
        tensorboard: Any = import_module("torch.utils.tensorboard")  # which has no types
        # Rounds that are trained once more after an interruption take the place of the old ones.
        folder = about.folder / "tensorboard" / about.name
        self._writer = tensorboard.SummaryWriter(folder, purge_step=about.done + 1)
        options = dict(about.options)
        hparams = tensorboard.summary.hparams
        told: list[Any] = [*hparams(options, {f"{about.score}/mean": 0.0})] if options else []
        for summary in told[:-1]:
            self._writer.file_writer.add_summary(summary)
        self._end = told[-1:]
        self._writer.flush()

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, server_round)
        self._writer.flush()

    def add_clusters(self, rows: Rows) -> None:
        # Indented, which is text as it is: names of devices are no markdown.
        lines = as_csv(rows).splitlines()
        self._writer.add_text("members", "\n".join(f"    {line}" for line in lines))

    def add_picture(self, path: Path) -> None:
        import numpy as np  # noqa: PLC0415
        from PIL import Image  # noqa: PLC0415

        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        self._writer.add_image(path.stem, pixels, dataformats="HWC")

    def close(self, *, failed: bool = False) -> None:
        for summary in () if failed else self._end:
            self._writer.file_writer.add_summary(summary)
        self._writer.close()


class Mlflow:
    """A run at MLFLOW_TRACKING_URI, or else in `mlflow.db` of the results folder."""

    def __init__(self, about: About) -> None:
        # One round is the most that may wait for a server which is gone.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        mlflow = load_extra("mlflow", "track=mlflow")
        self._mlflow = mlflow
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        place = None if uri else (about.folder / "mlflow-artifacts").as_uri()
        self._client = mlflow.MlflowClient(uri or f"sqlite:///{about.folder / 'mlflow.db'}")
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT), place)
        wanted = f"tags.`fedkin.run` = '{about.identity}'"
        found = self._client.search_runs([experiment], wanted) if about.done else []
        if found:
            self._id = found[0].info.run_id
            self._client.set_terminated(self._id, "RUNNING")
            return
        tags = {"fedkin.run": about.identity, "fedkin.results": str(about.folder)}
        run = self._client.create_run(experiment, tags=tags, run_name=about.name)
        self._id = run.info.run_id
        param = mlflow.entities.Param
        written = [param(k, str(v)[:_MLFLOW_LONGEST]) for k, v in about.options.items()]
        for start in range(0, len(written), _MLFLOW_MOST):
            self._client.log_batch(self._id, params=written[start : start + _MLFLOW_MOST])

    def _experiment(self, name: str, place: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        made = found.experiment_id if found else self._client.create_experiment(name, place)
        return str(made)

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        metric, now = self._mlflow.entities.Metric, int(1000 * time.time())
        metrics = [metric(name, value, now, server_round) for name, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def add_clusters(self, rows: Rows) -> None:
        self._client.log_text(self._id, as_csv(rows), "clusters.csv")

    def add_picture(self, path: Path) -> None:
        self._client.log_artifact(self._id, str(path))

    def close(self, *, failed: bool = False) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")


class WandB:
    """A run of the project WANDB_PROJECT; with WANDB_MODE=offline, in the results folder."""

    def __init__(self, about: About) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._wandb = load_extra("wandb", "track=wandb")
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            group=about.folder.name,
            name=about.name,
            id=about.identity,
            resume="allow",
            reinit="create_new",
            dir=about.folder,
            config=dict(about.options),
            # Nothing of this machine, and nothing that the run prints: only what is logged here.
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                host=_PROJECT,
                disable_git=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
                finish_timeout=_WANDB_PATIENCE,
                finish_timeout_raises=True,
            ),
        )
        self._run.define_metric("*", step_metric="round")

    def log(self, values: Mapping[str, float], server_round: int) -> None:
        self._run.log({"round": server_round, **values})

    def add_clusters(self, rows: Rows) -> None:
        columns, *data = rows
        self._run.log({"members": self._wandb.Table(columns=columns, data=data)})

    def add_picture(self, path: Path) -> None:
        self._run.log({f"pictures/{path.stem}": self._wandb.Image(str(path))})

    def close(self, *, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


OPENED_BY: dict[str, Callable[[About], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "wandb": WandB,
}


def check_tracker(name: str) -> None:
    """Refuse a tracker that cannot work here; nothing of it is loaded.

    Raises
    ------
    MissingExtraError
        If its package is not installed.
    ValueError
        If W&B would want to know who one is.
    """
    if name not in OPENED_BY:
        return
    need_extra(name, f"track={name}", "set track to none")
    if name == "wandb" and not _wandb_knows_who():
        raise ValueError(
            "track is wandb, but nobody has logged in to Weights & Biases here: run wandb login, "
            "set WANDB_API_KEY, or set WANDB_MODE=offline to keep everything in the results folder."
        )


def _wandb_knows_who() -> bool:
    if os.environ.get("WANDB_MODE") in ("offline", "disabled") or os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        file = netrc.netrc(os.environ.get("NETRC") or None)
    except (OSError, netrc.NetrcParseError):
        return False
    return file.authenticators(host) is not None
