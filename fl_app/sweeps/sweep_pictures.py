"""A sweep's picture: lines over numbers, dots over words, a panel for each of the other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report import pictures
from fl_app.sweeps.measures import in_words, kind_of
from fl_app.sweeps.plan import SEED, Sweep
from fl_app.sweeps.store import Cell
from fl_app.sweeps.sweep_tables import by_values
from fl_core.messages import protocol
from fl_core.options import Scalar, key_values, typed

_MEASURES = ("accuracy", "rmse", protocol.OWN_METRIC, "ari")
_MOST_PANELS = 40
_LOGARITHMIC = 50.0  # the largest value is at least so many times the smallest

Places = Mapping[tuple[Any, ...], Mapping[str, NDArray[np.float64]]]


def draw(sweep: Sweep, cells: Sequence[Cell], path: Path) -> None:
    """Draw accuracy or RMSE, a metric of one's own and ARI if known, as PNG and as PDF for a paper.

    There is none of a sweep over nothing but seeds, or where nothing was tested; an earlier sweep's
    is removed.
    """
    figure = _figure(sweep, cells)
    for own in (path, path.with_suffix(".pdf")):
        if figure is None:
            own.unlink(missing_ok=True)
        else:
            pictures.save(figure, own)


def across_key(swept: Mapping[str, Sequence[Scalar]]) -> str:
    """Return the key that is drawn across: the one with the most numbers, or else words.

    Examples
    --------
    >>> across_key({"features": ["hog", "raw", "resnet18"], "noise-rate": [0, 0.2]})
    'noise-rate'
    """
    keys = [key for key in swept if key != SEED]
    numbers = [key for key in keys if is_numeric(swept[key])]
    return max(numbers or keys, key=lambda key: len(swept[key]))


def is_numeric(values: Sequence[Scalar]) -> bool:
    """Say whether all values are numbers; true and false are none."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _figure(sweep: Sweep, cells: Sequence[Cell]) -> pictures.Spec | None:
    keys = [key for key in sweep.swept if key != SEED]
    if not keys:
        return None
    across = across_key(sweep.swept)
    values = sweep.swept[across]
    if is_numeric(values):
        values = tuple(sorted(values))
    panels: dict[tuple[str, str], dict[str, NDArray[np.float64]]] = {}
    measured = {name: by_values(sweep, cells, name) for name in _MEASURES}
    for others in dict.fromkeys(_without(keys, place, across) for place in measured[_MEASURES[0]]):
        title = ", ".join(key_values(dict(others)))
        for name, places in measured.items():
            if any(np.isfinite(one).any() for here in places.values() for one in here.values()):
                panels[title, in_words(name)] = _of_panel(keys, places, across, values, others)
    if not panels:
        return None
    kept = dict(list(panels.items())[:_MOST_PANELS])
    left = len(panels) - len(kept)
    title = f"{', '.join(keys)}" + (f" (the first {len(kept)} of {len(panels)})" if left else "")
    shown_up = {up for _, up in kept}
    limits = {up: _limits(name, kept) for name in _MEASURES if (up := in_words(name)) in shown_up}
    if not is_numeric(values):
        return pictures.dots_figure(title, kept, across, [typed(v) for v in values], limits)
    numbers = np.array(values, np.float64)
    lines = {
        panel: {strategy: (numbers, found) for strategy, found in here.items()}
        for panel, here in kept.items()
    }
    wide = bool(numbers.min() > 0 and numbers.max() / numbers.min() >= _LOGARITHMIC)
    return pictures.lines_figure(title, lines, across, limits, logarithmic=wide)


def _without(
    keys: Sequence[str], place: tuple[Any, ...], across: str
) -> tuple[tuple[str, Any], ...]:
    return tuple((k, v) for k, v in zip(keys, place, strict=True) if k != across)


def _of_panel(
    keys: Sequence[str],
    places: Places,
    across: str,
    values: Sequence[Scalar],
    others: tuple[tuple[str, Any], ...],
) -> dict[str, NDArray[np.float64]]:
    """Return a panel's values by strategy, shape (S, V); NaN where a simulation is missing."""
    here = {
        dict(zip(keys, place, strict=True))[across]: found
        for place, found in places.items()
        if _without(keys, place, across) == others
    }
    seeds = max(len(one) for found in here.values() for one in found.values())
    lines = {}
    for strategy in dict.fromkeys(name for found in here.values() for name in found):
        columns = [here.get(value, {}).get(strategy, np.empty(0)) for value in values]
        padded = [np.pad(c, (0, seeds - len(c)), constant_values=np.nan) for c in columns]
        lines[strategy] = np.array(padded).T
    return lines


def _limits(
    name: str, panels: Mapping[tuple[str, str], Mapping[str, NDArray[np.float64]]]
) -> tuple[float, float]:
    """Return the range of a measure, the same in all of its panels."""
    if (known := kind_of(name).limits) is not None:
        return known
    found = [
        v[np.isfinite(v)]
        for (_, up), p in panels.items()
        if up == in_words(name)
        for v in p.values()
    ]
    values = np.concatenate(found)
    least = 1.0 if name == "accuracy" else 0.03 * float(abs(values).max())  # a point of accuracy
    pad = max(least, 0.05 * float(np.ptp(values))) or 1.0
    return float(values.min()) - pad, float(values.max()) + pad
