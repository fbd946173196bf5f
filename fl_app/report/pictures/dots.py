"""Several panels of dots: a measure of each strategy, beside each other for each word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import Spec, check_shape, colours, in_panels, picture, shapes
from fl_app.report.pictures.style import WIDTH, Style, strategy_styles

_LETTERS = 60  # that fit below all panels of a row together


def dots_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, NDArray[np.float64]]],
    across: str,
    words: Sequence[str],
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Spec:
    """Draw a point for each seed, and a line for their mean.

    Parameters
    ----------
    title : str
    panels : mapping of (str, str) to mapping of NDArray[np.float64], shape (S, W)
        By a panel's title and what it shows upwards, then by strategy: a row per seed, a column per
        word; NaN where there is none.
    across : str
        What the words are.
    words : sequence of str
    limits : mapping of (float, float), optional
        The range of some of what is shown upwards.

    Raises
    ------
    ValueError
        If there is nothing to draw, or values have another number of columns.
    """
    styles = strategy_styles(list(dict.fromkeys(m for found in panels.values() for m in found)))
    columns = 1 if max(map(len, words)) * len(words) > _LETTERS // 2 else min(2, len(panels))
    parts = []
    for (name, up), found in panels.items():
        rows: list[Spec] = []
        for method, values in found.items():
            check_shape(f"{up} of {method}", values, (len(values), len(words)))
            for word, column in zip(words, values.T, strict=True):
                row = {"series": method, "slot": method, "word": word}
                rows += [{**row, "value": v} for v in column[np.isfinite(column)].tolist()]
        over = over_words(styles, list(styles), words, across, WIDTH / columns)
        axis: Spec = {"field": "value", "type": "quantitative", "title": up}
        axis |= {"axis": {"tickCount": 5}, "scale": {"zero": False}}
        if limits and up in limits:
            axis["scale"]["domain"] = limits[up]
        point = {"type": "point", "filled": True, "size": 20, "opacity": 0.6, "aria": False}
        mean = {"type": "tick", "thickness": 2, "size": 12, "aria": False}
        layers: list[Spec] = [
            {"mark": point, "encoding": {**over, "y": axis}},
            {"mark": mean, "encoding": {**over, "y": {**axis, "aggregate": "mean"}}},
        ]
        del layers[1]["encoding"]["shape"]
        parts.append((name, {"data": {"values": rows}, "layer": layers}))
    note = "point: one seed; line: their mean"
    return picture(title, note, styles, **in_panels(parts, columns, 125))


def over_words(
    styles: Mapping[str, Style],
    slots: Sequence[str],
    words: Sequence[str],
    across: str,
    width: float,
) -> Spec:
    """Return the encoding of marks over words, those of one word beside each other in slots."""
    axis = {"labelAngle": 0, "labelOverlap": False, "labelLimit": width / len(words) - 6}
    return {
        "x": {
            **{"field": "word", "type": "nominal", "title": across, "sort": None},
            "axis": {**axis, "ticks": False},
            "scale": {"domain": list(words), "paddingInner": 0.15},
        },
        "xOffset": {"field": "slot", "type": "nominal", "sort": None, "scale": {"domain": slots}},
        "color": colours(styles),
        "shape": shapes(styles),
    }
