"""Short runs of the whole app in this process, and what is read from their folders."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from clients.autoencoder import build_autoencoder, save_autoencoder
from tests import test_app_experiment
from tests.test_app_experiment import DEFAULTS, without_seconds

__all__ = ["DEFAULTS", "without_seconds"]

SGD = {"optimizer": "sgd", "learning_rate": 0.1}
"""A few rounds are enough, and updates keep their lengths."""


def run(folder: Path, *, clients: int = 6, **options: Any) -> dict[str, Any]:
    """Run the app and return its summary; three tasks and two rounds unless told otherwise.

    It is told how many clients there are, and so does not wait for more.
    """
    options = {"clients": clients, "num_clients": clients} | options
    summary: dict[str, Any] = test_app_experiment.run(folder, **options)
    return summary


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


def models_of(folder: Path, strategy: str) -> dict[str, dict[str, np.ndarray]]:
    """Return the saved models of a strategy on seed 0, by file name."""
    files = sorted((folder / "models" / strategy / "seed-0").glob("*.safetensors"))
    return {path.stem: load_file(path) for path in files}
