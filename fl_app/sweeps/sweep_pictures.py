"""The picture of a sweep: lines over numbers, dots over words, panels for other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fl_app.report import pictures
from fl_app.sweeps.measures import measure_of, measure_title
from fl_app.sweeps.plan import SEED, Sweep
from fl_app.sweeps.sweep_tables import swept_keys
from fl_core.messages import protocol
from fl_core.options import Scalar, key_values, typed

if TYPE_CHECKING:  # it comes by the extra simulation
    from pandas import DataFrame

_MEASURES = ("accuracy", "rmse", protocol.USER_METRIC, "ari")
_MOST_PANELS = 40
_LOGARITHMIC = 50.0  # the largest value is at least so many times the smallest

Float64 = NDArray[np.float64]


def draw(sweep: Sweep, table: DataFrame, path: Path) -> None:
    """Draw accuracy or RMSE, a user-defined metric and ARI if known, as PNG and as PDF for a paper.

    There is none of a sweep over nothing but seeds, or where nothing was tested; an earlier sweep's
    is removed.
    """
    figure = _figure(sweep, table)
    for file in (path, path.with_suffix(".pdf")):
        if figure is None:
            file.unlink(missing_ok=True)
        else:
            pictures.save(figure, file)


def across_key(swept: Mapping[str, Sequence[Scalar]]) -> str:
    """Return the key of the x axis: the one with the most numbers, or else words.

    Examples
    --------
    >>> across_key({"features": ["hog", "raw", "resnet18"], "noise-rate": [0, 0.2]})
    'noise-rate'
    """
    keys = [key for key in swept if key != SEED]
    numbers = [key for key in keys if is_numeric(swept[key])]
    return max(numbers or keys, key=lambda key: len(swept[key]))


def is_numeric(values: Sequence[Scalar]) -> bool:
    """Return whether all values are numbers, not true or false."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _figure(sweep: Sweep, table: DataFrame) -> pictures.Spec | None:
    table = table[table["measure"].isin(_MEASURES)]
    keys = swept_keys(sweep)
    if not keys or table.empty:
        return None
    across = across_key(sweep.swept)
    values = list(sweep.swept[across])
    if is_numeric(values):
        values.sort()
    others = [key for key in keys if key != across]
    panels: dict[tuple[str, str], dict[str, Float64]] = {}
    for place, here in table.groupby(others, sort=False) if others else [((), table)]:
        title = ", ".join(key_values(dict(zip(others, place, strict=True))))
        for name in _MEASURES:
            if (found := here[here["measure"] == name]).size:
                panels[title, measure_title(name)] = _of_panel(found, across, values)
    shown = dict(list(panels.items())[:_MOST_PANELS])
    title = ", ".join(keys)
    if len(shown) < len(panels):
        title += f" (the first {len(shown)} of {len(panels)})"
    limits = {
        measure_title(name): _limits(str(name), found) for name, found in table.groupby("measure")
    }
    numeric = is_numeric(values)
    places = np.array(values, np.float64) if numeric else np.array([typed(v) for v in values])
    lines = {
        panel: {strategy: (places, found) for strategy, found in here.items()}
        for panel, here in shown.items()
    }
    wide = numeric and places.min() > 0 and places.max() / places.min() >= _LOGARITHMIC
    return pictures.lines_figure(title, lines, across, limits, logarithmic=bool(wide))


def _of_panel(found: DataFrame, across: str, values: Sequence[Scalar]) -> dict[str, Float64]:
    """Return a panel's values by strategy, shape (S, V); NaN where a simulation is missing."""
    return {
        str(strategy): here.pivot_table(index=SEED, columns=across, values="value", sort=False)
        .reindex(columns=values)
        .to_numpy(np.float64)
        for strategy, here in found.groupby("strategy", sort=False)
    }


def _limits(name: str, found: DataFrame) -> tuple[float, float]:
    """Return the range of a measure, the same in all of its panels."""
    if (known := measure_of(name).limits) is not None:
        return known
    least, most = found["value"].min(), found["value"].max()
    room = 1.0 if name == "accuracy" else 0.03 * max(abs(least), abs(most))  # a point of accuracy
    pad = max(room, 0.05 * (most - least)) or 1.0
    return float(least - pad), float(most + pad)
