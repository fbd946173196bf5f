"""Where a device keeps its models on its own disk."""

from __future__ import annotations

import glob
import os
import shutil
import time
import zlib
from contextlib import suppress
from pathlib import Path

# Seconds: so long may a run still have strategies to train while its first one's models wait.
_MAY_WAIT = 7 * 86400.0


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


def remove_left(model_path: Path, own: Path) -> None:
    """Remove the folders of models that no run can be waiting for any more.

    Parameters
    ----------
    model_path : Path
    own : Path
        The folder of the run that asks; those of others that may still go on stay, too.
    """
    name = glob.escape(beside(model_path, "").name)
    for folder in model_path.parent.glob(f"{name}-candidates-*"):
        with suppress(OSError):  # another run removes it just now
            if folder != own and time.time() - folder.stat().st_mtime > _MAY_WAIT:
                shutil.rmtree(folder)


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
