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
    """Draw a small dot for each seed, and a large one for their mean.

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
    looks: list[tuple[str, Spec, Spec]] = [
        ("seed", {"size": 14, "opacity": 0.5}, {"shape": {"value": "circle"}}),
        ("mean", {"size": 50, "opacity": 1}, {}),
    ]
    parts = []
    for (name, up), found in panels.items():
        rows: list[Spec] = []
        for method, values in found.items():
            check_shape(f"{up} of {method}", values, (len(values), len(words)))
            for word, column in zip(words, values.T, strict=True):
                row = {"series": method, "slot": method, "word": word}
                known = column[np.isfinite(column)]
                rows += [{**row, "seed": v} for v in known.tolist() if len(values) > 1]
                rows += [{**row, "mean": float(known.mean())}] if known.size else []
        encoding = over_words(styles, list(styles), words, across, WIDTH / columns)
        up_axis: Spec = {"type": "quantitative", "title": up, "axis": {"tickCount": 5}}
        domain = {"domain": limits[up]} if limits and up in limits else {}
        up_axis["scale"] = {"zero": False, **domain}
        layers = []
        for field, look, more in looks:
            mark: Spec = {"type": "point", "filled": True, "aria": False, **look}
            own: Spec = {**encoding, **more, "y": {**up_axis, "field": field}}
            shown = [{"filter": f"isValid(datum.{field})"}]
            layers.append({"transform": shown, "mark": mark, "encoding": own})
        parts.append((name, {"data": {"values": rows}, "layer": layers}))
    seeds = max(len(values) for found in panels.values() for values in found.values())
    note = f"small dots: up to {seeds} seeds" if seeds > 1 else ""
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
