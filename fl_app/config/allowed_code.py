"""Whether a node's owner allows the user-defined code that a run names."""

import sys
from collections.abc import Mapping
from typing import Any

from fl_app.config.run_config import Config
from fl_core.user_code import is_import_path

ALLOWED_CODE = "own-code"
"""In a device's `--node-config`: the import paths that its owner allows, by commas."""

_AT_CLIENTS = ("model", "dataset", "features", "loss", "metric")


def client_code_paths(config: Config) -> dict[str, str]:
    """Return the run-config keys of user-defined code that clients run, by import path."""
    keys = {str(getattr(config, key)): key for key in _AT_CLIENTS}
    keys |= dict.fromkeys(objective_paths(config), "strategy")
    return {path: key for path, key in keys.items() if is_import_path(path)}


def objective_paths(config: Config) -> list[str]:
    """Return the import paths of the strategies' local objectives."""
    third = [name.rpartition("+")[2] for name in config.strategy if name.count("+") == 2]
    return [name for name in dict.fromkeys(third) if is_import_path(name)]


def check_code_allowed(config: Config, node_config: Mapping[str, object]) -> None:
    """Refuse user-defined code that a node's owner has not allowed, by a ValueError.

    The workers of a simulation are its user's processes: they run all code that the user names.
    """
    named = client_code_paths(config)
    allowed = allowed_paths(node_config) if named else ()
    device = f"{node_config['name']}: " if node_config.get("name") else ""
    for path, key in named.items():
        if path not in allowed and not _is_simulated():
            raise ValueError(
                f'{device}{key} is "{path}", code that the owner of this node does not allow: to '
                f'allow it, start the SuperNode with {ALLOWED_CODE}="{path}" in its '
                "--node-config (docs/devices.md)."
            )


def allowed_paths(node_config: Mapping[str, object]) -> tuple[str, ...]:
    """Return the import paths that a node's owner allows; a ValueError if one is malformed."""
    text = str(node_config.get(ALLOWED_CODE, ""))
    paths = tuple(path.strip() for path in text.split(",") if path.strip())
    for path in paths:
        if not is_import_path(path):
            raise ValueError(
                f'{ALLOWED_CODE} in this node\'s --node-config is "{text}", but "{path}" is not '
                "an import path: write MODULE:NAME, several separated by commas, such as "
                '"my_package.models:make_model,my_package:phi".'
            )
    return paths


def _is_simulated() -> bool:
    """Return whether this is a worker of Ray, which no SuperNode starts."""
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
