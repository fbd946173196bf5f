"""Where a device keeps its models, and what it has read, on its own disk."""

from __future__ import annotations

import glob
import shutil
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from fl_core.data.folders import cache_dir
from fl_core.flower.node import APP_DIR, get_flwr_home

# Seconds: so long may a run still have strategies to train while its first one's models wait.
_MAY_WAIT = 7 * 86400.0
_TRIAL_BYTES = 2**20


def expand(said: str) -> Path:
    """Return a path with the home for its `~`; where there is no such home, as it is: relative."""
    with suppress(RuntimeError):
        return Path(said).expanduser()
    return Path(said)


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


def clear_old(model_path: Path, own: Path) -> None:
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
    """Refuse a `model-path` at which no model could be kept; its folder is made."""
    try:
        is_folder = path.is_dir()
        if not is_folder:
            _try(path.parent)
    except OSError as error:
        raise ValueError(
            f"model-path is {path}, but this SuperNode cannot write there "
            f"({error.strerror or error}): make the folder and room, give it the right to, or name "
            "another one."
        ) from error
    if is_folder:
        raise ValueError(
            f"model-path is {path}, which is a folder: name a file in it, such as "
            f"{path / 'model.safetensors'}."
        )


def _try(folder: Path) -> None:
    """Make a folder, and write in it what is gone at once: nothing has room on a full disk, too."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as trial:
        trial.write(bytes(_TRIAL_BYTES))
        trial.flush()


def check_cache() -> Path:
    """Return the folder in which decoded images will be kept, and try it out; it is made."""
    return _check(
        cache_dir, "datasets", "~/.cache/fedkin", "decoded images are kept", "FL_CACHE_DIR"
    )


def check_apps() -> Path:
    """As `check_cache`, for the folder in which a SuperNode will keep the apps of runs."""
    return _check(get_flwr_home, APP_DIR, "~/.flwr", "a SuperNode keeps runs' apps", "FLWR_HOME")


def _check(home: Callable[[], Path], name: str, usual: str, what: str, variable: str) -> Path:
    folder = Path(usual)
    try:
        folder = home()
        _try(folder / name)
    except (OSError, RuntimeError) as error:  # or there is no home
        raise ValueError(
            f"{folder} cannot be written ({getattr(error, 'strerror', None) or error}), where "
            f"{what}: name a folder of this account by {variable}."
        ) from error
    return folder
