"""Lines: a measure against rounds, or against what was swept; a line per strategy or cluster."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    POINT,
    Spec,
    by_series,
    channel,
    in_panels,
    layer,
    picture,
    rounded,
    score_axis,
)
from fl_app.report.pictures.style import Style, strategy_styles
from fl_core.metrics import OF_CLASSES, Metric

_LETTERS = 30  # of words that fit below one of two panels
_MOST_TICKS = 8  # at the places themselves
_MOST_PLACES = 250  # of a line: more cannot be distinguished

Line = tuple[NDArray[Any], NDArray[np.float64]]
"""Numbers or words on the x axis, (R,), and values, (S, R) for S seeds; NaN where there is none."""


def lines_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, Line]],
    across: str,
    limits: Mapping[str, tuple[float, float]] | None = None,
    *,
    logarithmic: bool = False,
) -> Spec:
    """Draw each method's mean over the seeds, and a band from the lowest to the highest.

    `panels` go by their titles and the titles of their y axes, then by method; `limits` are the
    ranges of y axes by their titles. Words on the x axis, titled `across`, have points alone.
    """
    styles = strategy_styles(list(dict.fromkeys(m for lines in panels.values() for m in lines)))
    every = [place for lines in panels.values() for places, _ in lines.values() for place in places]
    words = [str(place) for place in dict.fromkeys(every)] if isinstance(every[0], str) else []
    wide = max(map(len, words), default=0) * len(words) > _LETTERS
    parts = []
    for (name, up), lines in panels.items():
        domain = {"domain": limits[up]} if limits and up in limits else {}
        y = channel("mean:Q", up, axis={"tickCount": 5}, scale={"zero": False, **domain})
        parts.append((name, _curves(lines, styles, across, y, words, logarithmic=logarithmic)))
    seeds = max(len(values) for lines in panels.values() for _, values in lines.values())
    what = ("points", "lines") if words else ("lines", "bands")
    note = f"{what[0]}: mean of up to {seeds} seeds; {what[1]}: lowest to highest"
    return picture(
        title, note if seeds > 1 else "", styles, **in_panels(parts, 1 if wide else 2, 125)
    )


def rounds_figure(lines: Mapping[str, Line], metric: Metric = OF_CLASSES.main) -> Spec:
    """Draw a metric over the rounds; a click in the legend fades the other strategies."""
    styles = strategy_styles(lines)
    seeds = sorted({len(means) for _, means in lines.values()})
    count = " to ".join(str(one) for one in dict.fromkeys((seeds[0], seeds[-1])))
    note = f"lines: mean of {count} seeds; bands: lowest to highest seed"
    values = [means for _, means in lines.values()]
    y = score_axis("mean", metric, values, f"mean test {metric.title}")
    panel = _curves(lines, styles, "round", y)
    for one in panel["layer"]:
        shown = one["mark"].get("opacity", 1)
        chosen = {"param": "chosen", "value": shown, "empty": True}
        one["encoding"]["opacity"] = {"condition": chosen, "value": 0.15 * shown}
    by_name = {"type": "point", "fields": ["series"]}
    panel["layer"][-1]["params"] = [{"name": "chosen", "select": by_name, "bind": "legend"}]
    note = note if seeds[-1] > 1 else "one seed"
    return picture(f"{metric.heading} per round", note, styles, height=230, **panel)


def _curves(
    lines: Mapping[str, Line],
    styles: Mapping[str, Style],
    across: str,
    y: Spec,
    words: Sequence[str] = (),
    *,
    logarithmic: bool = False,
) -> Spec:
    """Return a panel of lines, with bands if there are several seeds; wide lines lie below."""
    rows = [
        row
        for name in sorted(lines, key=lambda name: -styles[name].width)
        for row in _points(name, *lines[name], styles[name].width)
    ]
    places = [row["place"] for row in rows]
    scale: Spec = {"nice": False, "zero": False, "padding": 8}
    if not places:  # or nothing would have a place, not even the axis
        scale = {"domain": [0, 1]}
    elif logarithmic:
        scale = {"type": "log"}
    axis: Spec = {"grid": False, "tickCount": 6, "labelExpr": "toString(datum.value)"}
    if len(set(places)) <= _MOST_TICKS:
        axis["values"] = sorted(set(places))
    look = partial(by_series, styles, symbolType="stroke", symbolSize=300)
    place = {"x": channel("place:Q", across, axis=axis, scale=scale), "color": look("colour")}
    if words:
        axis = {"labelAngle": 0, "labelOverlap": False, "ticks": False}
        slots = {"domain": list(words), "paddingInner": 0.15}
        place["x"] = channel("place:N", across, sort=None, axis=axis, scale=slots)
        place["xOffset"] = channel("series:N", sort=None, scale={"domain": list(styles)})
    # Over a single place, a band has no width.
    is_area = len(set(places)) > 1 and not words
    mark, width = ("area", {}) if is_area else ("rule", {"strokeWidth": 6})
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    bands = layer(
        mark, None, {"opacity": round(0.9 / max(5, len(styles)), 2), **width}, **place, **ends
    )
    bands["transform"] = [{"filter": "isValid(datum.low)"}]
    strokes = {"strokeDash": look("dashes"), "strokeWidth": look("width") | {"type": "ordinal"}}
    form = ".1%" if "labelExpr" in y["axis"] else "~r"  # shares are shown as percent
    line = layer("line", None, {"strokeJoin": "round"}, **place, y=y, **strokes)
    tooltip = [
        channel("series", "strategy"),
        channel("place", across),
        channel("mean", format=form),
        channel("low", "lowest", format=form),
        channel("high", "highest", format=form),
        channel("seeds"),
    ]
    size = channel("size:Q", scale=None)
    return {
        "data": {"values": rows},
        "layer": [
            *([bands] if any(row.get("seeds", 0) > 1 for row in rows) else []),
            *([] if words else [line]),
            layer("point", None, POINT, **place, y=y, size=size, tooltip=tooltip),
        ],
    }


def _points(
    name: str, places: NDArray[Any], values: NDArray[np.float64], width: float
) -> list[Spec]:
    """Return a row for each place; the line is broken where no value is known."""
    # Of few places; dots of many hide each other, and their line.
    size = 8 + 12 * width if len(places) <= 15 else width**2
    rows = []
    step = max(1, math.ceil(len(places) / _MOST_PLACES))
    shown = slice((len(places) - 1) % step, None, step)  # the last one is among them
    for place, column in zip(places[shown].tolist(), values.T[shown], strict=True):
        known = column[np.isfinite(column)]
        row: Spec = {"series": name, "place": place, "mean": None, "size": size}
        if known.size:
            row |= {"mean": rounded(known.mean()), "seeds": known.size}
            row |= {"low": rounded(known.min()), "high": rounded(known.max())}
        rows.append(row)
    return rows
