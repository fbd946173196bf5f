"""Code of somebody's own, named by import path: who may run it, and what is tried beforehand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fl_app.config.fits import check_fits
from fl_app.config.run_config import Config
from fl_core.data.settings import SampleKind, known_of
from fl_core.own_code import is_own, load_own
from strategies.catalogue import system_of

if TYPE_CHECKING:  # PyTorch takes seconds: it is imported where it is needed
    from fl_core.data.dataset import Dataset
    from fl_core.federation.federation import Federation

OWN_CODE = "own-code"
"""In a device's `--node-config`: the import paths that its owner allows, by commas."""

_AT_CLIENTS = ("model", "dataset", "features")


def named_at_clients(config: Config) -> dict[str, str]:
    """Return the import paths of somebody's own code that clients run, by run-config key."""
    paths = {key: str(getattr(config, key)) for key in _AT_CLIENTS}
    return {key: path for key, path in paths.items() if is_own(path)}


def refuse_unallowed(config: Config, node_config: Mapping[str, object]) -> None:
    """Refuse code that a node's owner has not allowed: a server says what to run, not what may run.

    The workers of a simulation are its user's own processes, and run what the user names.

    Raises
    ------
    ValueError
        For the first such code: what its owner can do.
    """
    named = named_at_clients(config)
    allowed = allowed_by(node_config) if named else ()
    device = f"{node_config['name']}: " if node_config.get("name") else ""
    for key, path in named.items():
        if path not in allowed and not _is_simulated():
            raise ValueError(
                f'{device}{key} is "{path}", code that the owner of this node does not allow: if '
                f'it may run here, start the SuperNode with {OWN_CODE}="{path}" in its '
                "--node-config (docs/devices.md)."
            )


def allowed_by(node_config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the import paths that a node's owner allows.

    Raises
    ------
    ValueError
        If one is none.
    """
    text = str(node_config.get(OWN_CODE, ""))
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in paths:
        if not is_own(path):
            raise ValueError(
                f'{OWN_CODE} in this node\'s --node-config is "{text}", but "{path}" is no import '
                "path: write MODULE:NAME, several separated by commas, such as "
                '"my_package.models:make_model,my_package:phi".'
            )
    return paths


def _is_simulated() -> bool:
    """Return whether this process is one of Ray's, which no SuperNode ever starts."""
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def check_own_code(config: Config, num_clients: int) -> None:
    """Try the code of somebody's own that a simulation names, as far as data are at hand.

    Data of one's own are read, and spread over the clients; a model and features then take a few
    samples. Of a data set of the package, random samples of its shape stand for those that are not
    read yet; where not even that is known, functions are only looked up.

    Raises
    ------
    ValueError
        If something cannot be imported or fails, returns what it should not, or does not go
        together.
    """
    paths = named_at_clients(config)
    if not paths:
        return
    from clients.features.own_features import random_samples  # noqa: PLC0415

    kind: SampleKind | None = known_of(config.dataset)
    samples = None
    if "dataset" in paths:
        from fl_core.data.own_data import DATASET, read_own, read_twice  # noqa: PLC0415

        kind = dataset = read_twice(DATASET, config.dataset, read_own, "every worker")
        samples = dataset.train_images[:3]
        _check_spread(config, num_clients, dataset)
    if kind is None:
        for key, path in paths.items():
            load_own(key, path)
        return
    if samples is None:
        samples = random_samples(kind.image_shape, is_float=kind.is_float)
    check_fits(config, kind, samples)


def _check_spread(config: Config, num_clients: int, dataset: Dataset) -> None:
    from fl_core.federation.federation import spread  # noqa: PLC0415

    settings = config.federation_settings(num_clients, config.seed)
    check_tasks_are_known(config, spread(settings, dataset))


def check_tasks_are_known(config: Config, federation: Federation) -> None:
    """Refuse strategies that must know the clients' tasks where nobody does, by a ValueError."""
    for name in config.strategy:
        if system_of(name).clustering.needs_tasks and not federation.knows_tasks:
            raise ValueError(
                f"strategy names {name}, but {config.dataset} comes in partitions, and nobody says "
                "their tasks: give Partitions their tasks, or choose a strategy that finds "
                "clusters, or single or local."
            )
