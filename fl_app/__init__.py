"""The Flower app that joins clients and strategies: its configuration, its runs and its results."""

from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parents[1]


def _check_packages() -> None:
    """Say which folder Python finds in place of one of fedkin's packages, if any."""
    for name in ("fl_core", "clients", "strategies"):
        spec = find_spec(name)
        found = [Path(path) for path in (spec and spec.submodule_search_locations) or []]
        if found and _HERE / name not in found:
            raise ImportError(
                f"{found[0]} hides fedkin's package {name}: rename that folder, or start Python "
                f"in another one (the package is in {_HERE})."
            )


_check_packages()
