"""Where a device keeps its models on its own disk."""

from __future__ import annotations

import os
import zlib
from pathlib import Path


def beside(model_path: Path, ending: str) -> Path:
    """Return what belongs to a device's model beside it: of `model.safetensors`, `model` + ending.

    Any other ending of the model's name stays: two devices may have site.1 and site.2 in a folder.
    """
    return model_path.with_name(model_path.name.removesuffix(".safetensors") + ending)


def candidate_path(folder: Path, label: str) -> Path:
    """Return where the model of a strategy, or of one of the values that it tries, waits.

    That is until the device's verdict is known.
    """
    return folder / f"{zlib.crc32(label.encode()):08x}.safetensors"


def check_model_path(path: Path) -> None:
    """Refuse a `model-path` at which no model could be kept; its folder is made.

    Raises
    ------
    ValueError
        If it is a folder, or this account may not write there.
    """
    if path.is_dir():
        raise ValueError(
            f"model-path is {path}, which is a folder: name a file in it, such as "
            f"{path / 'model.safetensors'}."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        may_write = os.access(path.parent, os.W_OK)
    except OSError:
        may_write = False
    if not may_write:
        raise ValueError(
            f"model-path is {path}, but this SuperNode may not write there: make the folder "
            "and give it the right to, or name another one."
        )
