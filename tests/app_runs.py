"""Short runs of the whole app in this process, and what is read from their folders."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from clients.signatures.autoencoder import build_autoencoder
from clients.signatures.pretraining import save_autoencoder
from fl_app.client_app import app
from fl_app.config.run_config import parse_config
from fl_app.report import pictures
from fl_app.report import report_page as build
from fl_app.results.layout import models_folder
from fl_app.run.experiment import run_experiment
from fl_app.simulation.simulated_clients import Simulation
from fl_core.files import replacing
from tests.local_grid import LocalGrid, Order
from tests.toy_app import CorruptedApp

ROOT = Path(__file__).parents[1]
DEFAULTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"][
    "app"
]["config"]
SGD = {"optimizer": "sgd", "learning_rate": 0.1}
"""A few rounds are enough, and updates keep their lengths."""
ALL_STEPS = {key.replace("-", "_"): DEFAULTS[key] for key in ("batch-size", "learning-rate")}
FEWER_STEPS = {"batch_size": 128, "learning_rate": 0.004}
LARGE_STEPS = SGD | {"batch_size": 128, "learning_rate": 0.3}
"""A quarter of the steps, each on four times as many images."""


def run(
    folder: Path,
    *,
    clients: int = 6,
    corrupt: Mapping[tuple[str, int], Any] | None = None,
    order: Order = list,
    drawn: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run the app and return its summary; three tasks and two rounds unless told otherwise.

    It is told how many clients there are, and so does not wait for more. It takes a quarter of the
    steps that the app would, each four times as long. Without `drawn`, pictures' files are empty.
    """
    run_config = {
        **DEFAULTS,
        "num-clients": clients,
        "num-tasks": 3,
        "num-server-rounds": 2,
        "output-dir": str(folder),
        **{key.replace("_", "-"): value for key, value in (FEWER_STEPS | options).items()},
    }
    grid = LocalGrid(CorruptedApp(app, corrupt or {}), clients, run_config=run_config, order=order)
    with nullcontext() if drawn else undrawn_pictures():
        run_experiment(parse_config(run_config), grid, Simulation)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


@contextmanager
def undrawn_pictures() -> Iterator[None]:
    """Describe pictures, but leave their files empty: to draw them takes longer than a short run.

    The report is there, but for the library that draws its pictures, which takes seconds to make.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_library", str)
        patch.setattr(pictures, "save", _touched)
        yield


def _touched(spec: pictures.Spec, path: Path) -> Path:
    json.dumps(spec, allow_nan=False)
    with replacing(path) as partial:  # for its owner alone, as a real one is
        partial.touch()
    return path


def without_seconds(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what is the same in two runs of the same options."""
    runs = [{k: v for k, v in run.items() if k != "seconds"} for run in summary["runs"]]
    config = {k: v for k, v in summary["config"].items() if k != "output-dir"}
    return {**summary, "runs": runs, "config": config}


def whole_space(signatures: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Stands in for UMAP, which compiles for ten seconds: centroids stay where they are."""
    return [own.astype(np.float64) for own in signatures]


def untrained_encoder(folder: Path, seed: int = 0) -> dict[str, Any]:
    """Return the options with which FLT finds digits by random features, without pre-training.

    Centroids of one task are then within 0.08 of each other, others 0.12 and more apart (three
    tasks, 12 clients).
    """
    path = folder / f"encoder-{seed}.safetensors"
    save_autoencoder(build_autoencoder(1, seed), path)
    return {"encoder": str(path), "graph_threshold": 0.09, "fine_tune": "never"}


def of_strategy(summary: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the first run of a strategy."""
    return next(one for one in summary["runs"] if one["strategy"] == name)


def per_round(folder: Path, strategy: str, column: str) -> list[float]:
    """Return a column of metrics.csv for one strategy, round by round."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row[column]) for row in csv.DictReader(file) if row["strategy"] == strategy]


def models_of(folder: Path, strategy: str, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    """Return the saved models of a strategy on a seed, by file name."""
    files = sorted(models_folder(folder, strategy, seed).glob("*.safetensors"))
    return {path.stem: load_file(path) for path in files}
