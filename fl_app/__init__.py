"""The roof: the Flower app that joins clients and strategies, its configuration and its results."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fl_app.api import simulate, sweep
    from fl_app.results.frames import Results, SweepResults, load_results, load_sweep

__all__ = ["Results", "SweepResults", "load_results", "load_sweep", "simulate", "sweep"]


def __getattr__(name: str) -> Any:
    """Import what is for scripts and notebooks where it is used: a device has no pandas."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    where = "api" if name in ("simulate", "sweep") else "results.frames"
    return getattr(import_module(f"fl_app.{where}"), name)
