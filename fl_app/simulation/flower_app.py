"""The Flower app as a folder that `flwr run` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fl_app.config.run_config import DEFAULTS


def write_app(folder: Path) -> Path:
    """Write an app folder without code, for `flwr run` in the environment that this code is in.

    The app's modules are found where they are installed. `folder` is made here, and returned.
    """
    project = {
        "name": "fedkin",
        "version": version("fedkin"),
        "description": "Clustered federated learning",
        "license": "Apache-2.0",
    }
    components = {"serverapp": "fl_app.server_app:app", "clientapp": "fl_app.client_app:app"}
    tables: dict[str, Mapping[str, Any]] = {
        "project": project,
        "tool.flwr.app": {"publisher": "fedkin"},
        "tool.flwr.app.components": components,
        "tool.flwr.app.config": DEFAULTS,
    }
    folder.mkdir()
    text = "".join(f"[{name}]\n{toml_lines(table)}\n" for name, table in tables.items())
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def toml_lines(table: Mapping[str, Any]) -> str:
    """Return a table of scalars as TOML.

    Examples
    --------
    >>> print(toml_lines({"seed": 0, "strategy": "flt,single"}), end="")
    seed = 0
    strategy = "flt,single"
    """
    # JSON's scalars are TOML's, but for its escapes of what is not in Unicode's first plane.
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items()
    )
