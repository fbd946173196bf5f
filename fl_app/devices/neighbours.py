"""Other devices on the same machine: a folder or a file that two of them share is a mistake."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fl_app.devices.model_places import expand
from fl_core.data.image_folder import few
from fl_core.flower.node import parse_config_args

_REMEDIES = {
    "data-path": "give each device images of its own, or they count twice",
    "model-path": "give each device a file of its own, or the one overwrites what the other keeps",
}


def shared_paths(name: str, paths: Mapping[str, Path | None]) -> list[str]:
    """Return a sentence for each path of a device that other devices of this machine have, too.

    These are known from the command lines of the SuperNodes that run, as far as this account sees
    them: nothing is written anywhere, and a device that starts again is no other. Containers do not
    see each other's.

    Parameters
    ----------
    name : str
        The device's.
    paths : mapping
        From `data-path` and `model-path` to what its `--node-config` says, if it does.
    """
    # Flower reads `name=5` as a number.
    others = [other for other in _supernodes() if str(other.get("name", "")) not in ("", name)]
    found = []
    for key, path in paths.items():
        sharing = {str(other["name"]) for other in others if path and _is_at(path, other.get(key))}
        if sharing:
            found.append(
                f"{key} is {path}, which {few(sorted(sharing))} on this machine has, too: "
                f"{_REMEDIES[key]}."
            )
    return found


def _is_at(path: Path, other: object) -> bool:
    """Return whether another device's path leads to the same place; neither need be there."""
    return bool(other) and os.path.realpath(path) == os.path.realpath(expand(str(other)))


def _supernodes() -> list[Mapping[str, Any]]:
    """Read the `--node-config` of each SuperNode of this machine."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--node-config")
    found: list[Mapping[str, Any]] = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if any(Path(word).name == "flower-supernode" for word in words):
            with suppress(Exception):  # a command line that Flower does not take either
                found.append(parse_config_args([parser.parse_known_args(words)[0].node_config]))
    return found
