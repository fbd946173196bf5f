"""Several panels of lines: a measure against rounds, or against what was swept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    Spec,
    check_shape,
    colours,
    in_panels,
    picture,
    rounded,
    ticks,
)
from fl_app.report.pictures.style import Style, strategy_styles

_MOST_PLACES = 250  # of a line: more are told apart by nobody

Line = tuple[NDArray[Any], NDArray[np.float64]]
"""Places, (R,), and values there, (S, R) for S seeds; NaN where there is none."""


def lines_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, Line]],
    across: str,
    limits: Mapping[str, tuple[float, float]] | None = None,
    *,
    logarithmic: bool = False,
) -> Spec:
    """Draw each method's mean over the seeds, and a band from the lowest to the highest.

    Parameters
    ----------
    title : str
    panels : mapping of (str, str) to mapping of Line
        By a panel's title and what it shows upwards, then by method.
    across : str
        What the places are.
    limits : mapping of (float, float), optional
        The range of some of what is shown upwards.
    logarithmic : bool
        Whether places are as far apart as their logarithms.

    Raises
    ------
    ValueError
        If there is nothing to draw, or values have another shape than their places.
    """
    styles = strategy_styles(list(dict.fromkeys(m for lines in panels.values() for m in lines)))
    parts = []
    for (name, up), lines in panels.items():
        for method, (places, values) in lines.items():
            check_shape(f"{up} of {method}", values, (len(values), len(places)))
        domain = {"domain": limits[up]} if limits and up in limits else {}
        upwards: Spec = {"type": "quantitative", "title": up, "axis": {"tickCount": 5}}
        upwards["scale"] = {"zero": False, **domain}
        parts.append((name, curves(lines, styles, across, upwards, logarithmic=logarithmic)))
    seeds = max(len(values) for lines in panels.values() for _, values in lines.values())
    note = f"lines: mean of up to {seeds} seeds; bands: lowest to highest" if seeds > 1 else ""
    return picture(title, note, styles, **in_panels(parts, 2, 125))


def curves(
    lines: Mapping[str, Line],
    styles: Mapping[str, Style],
    across: str,
    upwards: Spec,
    *,
    logarithmic: bool = False,
) -> Spec:
    """Return a panel of lines, with a band for each of several seeds; the wide ones lie below."""
    rows = [
        row
        for name in sorted(lines, key=lambda name: -styles[name].width)
        for row in _points(name, *lines[name], styles[name].width)
    ]
    places = [row["place"] for row in rows]
    x: Spec = {
        "field": "place",
        "type": "quantitative",
        "title": across,
        "axis": {"grid": False, "values": ticks(places, 6), "labelExpr": "toString(datum.value)"},
        "scale": {"type": "log"} if logarithmic else {"nice": False, "zero": False, "padding": 8},
    }
    if not places:  # or nothing would have a place, not even the axis
        x["scale"] = {"domain": [0, 1]}
    y = {**upwards, "field": "mean"}
    colour = colours(styles)
    colour["legend"] = {**colour["legend"], "symbolType": "stroke", "symbolSize": 300}
    own = {key: colour[key] for key in ("field", "type", "legend")}
    form = ".1%" if "labelExpr" in upwards["axis"] else "~r"  # shares are shown as percent
    # Over a single place, a band has no width.
    band = {"type": "area"} if len(set(places)) > 1 else {"type": "rule", "strokeWidth": 6}
    bands = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {**band, "opacity": 0.18, "aria": False, "tooltip": None},
        "encoding": {
            **{"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour}
        },
    }
    means = {
        "mark": {"type": "line", "aria": False, "strokeJoin": "round"},
        "encoding": {
            **{"x": x, "y": y, "color": colour},
            "strokeDash": own | {"scale": _scale(styles, "dashes")},
            "strokeWidth": own | {"type": "ordinal", "scale": _scale(styles, "width")},
        },
    }
    points = {
        "mark": {"type": "point", "filled": True, "opacity": 1, "aria": False},
        "encoding": {
            **{"x": x, "y": y, "color": colour},
            "size": {"field": "size", "type": "quantitative", "scale": None},
            "tooltip": [
                {"field": "series", "title": "strategy"},
                {"field": "place", "title": across},
                *(
                    {"field": field, "title": title, "format": form}
                    for field, title in (("mean", "mean"), ("low", "lowest"), ("high", "highest"))
                ),
                {"field": "seeds", "title": "seeds"},
            ],
        },
    }
    layers = [bands] if any(row["seeds"] > 1 for row in rows if "seeds" in row) else []
    return {"data": {"values": rows}, "layer": [*layers, means, points]}


def chosen_in_legend(panel: Spec) -> Spec:
    """Return a panel of lines of which a click in the legend fades all others."""
    faded: Spec = {"condition": {"param": "chosen", "value": 1, "empty": True}, "value": 0.12}
    chosen = {"name": "chosen", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}
    bands = {"condition": {**faded["condition"], "value": 0.18}, "value": 0.03}
    layers = [
        {
            **layer,
            "encoding": {
                **layer["encoding"],
                "opacity": bands
                if "opacity" in layer["mark"] and "y2" in layer["encoding"]
                else faded,
            },
        }
        for layer in panel["layer"]
    ]
    layers[-2]["params"] = [chosen]
    return {**panel, "layer": layers}


def _scale(styles: Mapping[str, Style], what: str) -> Spec:
    return {
        "type": "ordinal",
        "domain": list(styles),
        "range": [getattr(one, what) for one in styles.values()],
    }


def _points(
    name: str, places: NDArray[Any], values: NDArray[np.float64], width: float
) -> list[Spec]:
    """Return a row for each place; where nothing is known, the line is broken."""
    # Of few places; dots of many hide each other, and their line.
    size = 8 + 12 * width if len(places) <= 15 else width**2
    rows = []
    step = max(1, math.ceil(len(places) / _MOST_PLACES))
    kept = slice((len(places) - 1) % step, None, step)  # the last one is among them
    for place, column in zip(places[kept].tolist(), values.T[kept], strict=True):
        known = column[np.isfinite(column)]
        row: Spec = {"series": name, "place": place, "mean": None, "size": size}
        if known.size:
            row |= {"mean": rounded(known.mean()), "seeds": known.size}
            row |= {"low": rounded(known.min()), "high": rounded(known.max())}
        rows.append(row)
    return rows
