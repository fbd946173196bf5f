"""Strategies in a file of somebody's own: read where a run is started, and in its processes.

Whoever starts a process names the file, in its environment: a run configuration, which travels
from a server to devices, cannot.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from strategies import catalogue
from strategies.aggregation import Aggregation
from strategies.clustering import Clustering

VARIABLE = "FEDKIN_STRATEGIES"
_MODULE = "fedkin_own_strategies"


def add_strategies(path: Path) -> list[str]:
    """Run a Python file and let its clusterings and aggregations be named in pairs.

    Their fields that are options, or that the app finds out (`fl_app.systems.FOUND`), are given;
    options of their own keep their defaults. A file that has changed is read again.

    Parameters
    ----------
    path : Path
        A file of one's own: its code is run.

    Returns
    -------
    list of str
        The names: `bias` for `strategy=bias+mean`.

    Raises
    ------
    ValueError
        If it is no such file, cannot be run, declares nothing, or takes a name that is there.
    """
    spec = spec_from_file_location(f"{_MODULE}_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"strategies are to be read from {path}, which is no Python file.")
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        # Not by the loader, which may take a compiled file of the same second.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)  # noqa: S102
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}.") from error
    declared = [one for one in vars(module).values() if _is_declared(one, module.__name__)]
    if not declared:
        raise ValueError(
            f"{path} declares neither a Clustering nor an Aggregation: docs/adding-a-strategy.md "
            "has an example."
        )
    forget_strategies()
    for half in declared:
        known: dict[str, Any] = (
            catalogue.CLUSTERINGS if issubclass(half, Clustering) else catalogue.AGGREGATIONS
        )
        if not half.name or half.name in known:
            raise ValueError(
                f'{path} declares {half.__name__} with the name "{half.name}", but it must be one '
                f"that is none of {', '.join(known)}."
            )
        known[half.name] = half
    return [half.name for half in declared]


def forget_strategies() -> None:
    """Let names that files of somebody's own have added mean nothing any more."""
    for names in (catalogue.CLUSTERINGS, catalogue.AGGREGATIONS):
        for name in [name for name, half in names.items() if _is_own(half)]:
            del names[name]


@lru_cache(maxsize=1)
def add_named_strategies() -> None:
    """Add those of the file that the environment names, once in each process."""
    if named := os.environ.get(VARIABLE):
        add_strategies(Path(named))


def _is_own(half: type) -> bool:
    return half.__module__.startswith(_MODULE)


def _is_declared(one: Any, module: str) -> bool:
    halves: tuple[Callable[..., Any], ...] = (Clustering, Aggregation)
    return isinstance(one, type) and issubclass(one, halves) and one.__module__ == module  # type: ignore[arg-type]
