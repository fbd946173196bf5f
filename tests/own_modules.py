"""Modules of somebody's own, written into a folder that is then the working directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fl_app.client_app import app
from fl_app.config.allowed_code import ALLOWED_CODE, client_code_paths
from fl_app.config.run_config import parse_config
from fl_app.run.experiment import run_experiment
from fl_app.simulation.simulated_clients import Simulation
from fl_core.data import datasets
from fl_core.partitions.federation import simulate_federation
from fl_core.user_code import unload_user_modules
from tests.app_runs import undrawn_pictures
from tests.local_grid import LocalGrid
from tests.toy_app import CorruptedApp

TABLE = """
import numpy as np
from torch import nn


def load(seed=7):
    rng = np.random.default_rng(seed)
    labels = np.arange(400) % 4
    rows = rng.normal(size=(400, 6)).astype(np.float32)
    rows[np.arange(400), labels] += 6
    return rows[:300], labels[:300], rows[300:], labels[300:]


def make_model(shape, num_classes):
    (width,) = shape
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, num_classes))


def phi(samples):
    return 2 * samples
"""
"""Rows of six numbers in four classes, a model and features for them."""


@contextmanager
def own_modules(folder: Path, **texts: str) -> Iterator[None]:
    """Write modules by name, and let them be found while the block runs."""
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        patch.setattr(sys, "dont_write_bytecode", True)  # they may change within a second
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    unload_user_modules()
    datasets.clear_data_caches()
    simulate_federation.cache_clear()


def run_alone(
    run_config: Mapping[str, Any],
    allowed: str | None = None,
    corrupt: Mapping[tuple[str, int], Any] | None = None,
) -> dict[str, Any]:
    """Run the app in this process, on nodes that allow what is named, or `allowed`."""
    named = ", ".join(client_code_paths(parse_config(run_config)))
    corrupted = CorruptedApp(app, corrupt or {})
    grid = LocalGrid(corrupted, int(run_config["num-clients"]), run_config=run_config)
    for context in grid.contexts.values():
        context.node_config[ALLOWED_CODE] = named if allowed is None else allowed
    with undrawn_pictures():
        run_experiment(parse_config(run_config), grid, Simulation)
    folder = Path(run_config["output-dir"])
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary
