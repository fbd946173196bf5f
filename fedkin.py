"""The public names of fedkin: simulations, their results, and what a strategy is made of.

`docs/python.md` describes the first six. `docs/adding.md` shows how a strategy, an aggregation or
an option is written with the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import fl_app  # noqa: F401 - says if another folder shadows a package

if TYPE_CHECKING:
    from fl_app.api import simulate, sweep
    from fl_app.results.frames import Results, SweepResults, load_results, load_sweep
    from fl_core.options import option
    from strategies import (
        Aggregation,
        ClusteredStrategy,
        Clustering,
        Clusters,
        Round,
        Update,
        make_strategy,
    )

_MODULES = {
    "fl_app.api": ("simulate", "sweep"),
    "fl_app.results.frames": ("Results", "SweepResults", "load_results", "load_sweep"),
    "fl_core.options": ("option",),
    "strategies": (
        *("Aggregation", "ClusteredStrategy", "Clustering", "Clusters"),
        *("Round", "Update", "make_strategy"),
    ),
}
__all__ = [
    "Aggregation",
    "ClusteredStrategy",
    "Clustering",
    "Clusters",
    "Results",
    "Round",
    "SweepResults",
    "Update",
    "load_results",
    "load_sweep",
    "make_strategy",
    "option",
    "simulate",
    "sweep",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is used: a device has no pandas, and `import fedkin` loads no torch."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
