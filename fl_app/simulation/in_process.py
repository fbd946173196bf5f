"""A simulation in this process: nothing is started, so a small one is over in seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.clientapp import ClientApp

from clients.accelerator import one_thread
from fl_app.config.allowed_code import OWN_CODE, named_at_clients
from fl_app.config.run_config import DEFAULTS, parse_config
from fl_app.run.experiment import run_experiment
from fl_app.simulation.in_process_grid import InProcessGrid
from fl_app.simulation.simulated_clients import Simulation


def simulate_in_process(
    app: ClientApp,
    run_config: Mapping[str, Any],
    num_clients: int,
    settings: Mapping[str, str],
) -> Path:
    """Run an app, one client after the other, and return the folder of its results.

    They are those of Flower's simulation, to the last bit; without a SuperLink and Ray, a
    simulation begins some twenty seconds earlier.

    Parameters
    ----------
    app : ClientApp
        Of the clients.
    run_config : mapping
        Overrides the app's defaults.
    settings : mapping of str
        More variables of the environment in which it runs.

    Raises
    ------
    ValueError, OSError, RuntimeError, ImportError
        As `run_experiment`.
    """
    given = {**DEFAULTS, **run_config}
    config = parse_config(given)
    # Who runs a simulation is its user, who may run what the user names.
    shared = {"num-partitions": num_clients, OWN_CODE: ",".join(named_at_clients(config).values())}
    nodes = [{"partition-id": client, **shared} for client in range(num_clients)]
    # As Ray's workers do: sums of several threads may differ in the last bit.
    with one_thread(), _environment(settings):
        return run_experiment(config, InProcessGrid(app, nodes, given), Simulation)


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
