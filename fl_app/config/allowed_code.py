"""Code of somebody's own, named by import path: who may run it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from fl_app.config.run_config import Config
from fl_core.user_code import is_import_path

OWN_CODE = "own-code"
"""In a device's `--node-config`: the import paths that its owner allows, by commas."""

_AT_CLIENTS = ("model", "dataset", "features", "loss", "metric")


def named_at_clients(config: Config) -> dict[str, str]:
    """Return the import paths of somebody's own code that clients run, by run-config key."""
    paths = {key: str(getattr(config, key)) for key in _AT_CLIENTS}
    return {key: path for key, path in paths.items() if is_import_path(path)}


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
        if not is_import_path(path):
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
