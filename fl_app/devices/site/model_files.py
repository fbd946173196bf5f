"""The files and folders of a device: its models, decoded images and apps."""

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

# Seconds for which the models of a run's first strategies may wait for its other strategies.
_MAY_WAIT = 7 * 86400.0
_TRIAL_BYTES = 2**20


def expand(said: str) -> Path:
    """Replace `~` by the home; if there is no such home, return the relative path as it is."""
    with suppress(RuntimeError):
        return Path(said).expanduser()
    return Path(said)


def beside(model_path: Path, ending: str) -> Path:
    """Return the path of another file of a model: for `model.safetensors`, `model` + ending."""
    return model_path.with_name(model_path.name.removesuffix(".safetensors") + ending)


def candidate_path(folder: Path, label: str) -> Path:
    """Return the path of a strategy's model until the device's verdict is known."""
    return folder / f"{zlib.crc32(label.encode()):08x}.safetensors"


def remove_old_candidates(model_path: Path, current: Path) -> None:
    """Remove the candidates of other runs that have waited for more than a week."""
    name = glob.escape(beside(model_path, "").name)
    for folder in model_path.parent.glob(f"{name}-candidates-*"):
        with suppress(OSError):  # another run is removing it
            if folder != current and time.time() - folder.stat().st_mtime > _MAY_WAIT:
                shutil.rmtree(folder)


def check_model_path(path: Path) -> None:
    """Make the folder of a `model-path`, and refuse it if no model can be written there."""
    try:
        is_folder = path.is_dir()
        if not is_folder:
            _try_to_write(path.parent)
    except OSError as error:
        raise ValueError(
            f"model-path is {path}, but this SuperNode cannot write there "
            f"({error.strerror or error}): make the folder and room, give this account the right "
            "to write, or give another path."
        ) from error
    if is_folder:
        raise ValueError(
            f"model-path is {path}, which is a folder: give a file in it, such as "
            f"{path / 'model.safetensors'}."
        )


def _try_to_write(folder: Path) -> None:
    """Make a folder, and write a temporary file: an empty one has room on a full disk, too."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as trial:
        trial.write(bytes(_TRIAL_BYTES))
        trial.flush()


def check_cache() -> None:
    """Make the folder for decoded images, and check that it can be written."""
    _check(cache_dir, "datasets", "decoded images are stored", "FL_CACHE_DIR")


def check_apps() -> None:
    """Make the folder in which a SuperNode stores apps, and check that it can be written."""
    _check(get_flwr_home, APP_DIR, "a SuperNode stores apps", "FLWR_HOME")


def _check(home: Callable[[], Path], name: str, what: str, variable: str) -> None:
    try:
        _try_to_write(home() / name)
    except (OSError, RuntimeError) as error:  # or there is no home
        raise ValueError(
            f"no file can be written where {what} ({error}): set {variable} to a folder of this "
            "account."
        ) from error
