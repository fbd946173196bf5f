"""What pictures of a square matrix share: cells, frames and names, in cells from the top left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import Spec, runs_of_equals, told_apart
from fl_app.report.pictures.style import GRID, INK

_COLOURS = ("#ffffd9", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#0c2c84")
_MOST_NAMES = 25  # beside the rows; of more, every second, third …
_LETTERS = 14  # of such a name, without its number


def rects(rows: Sequence[Spec], mark: Spec, **encoding: Spec) -> Spec:
    """Return a layer of rectangles, each from (x, y) to (x2, y2)."""
    corner = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "aria": False, "tooltip": None, **mark},
        "encoding": {**corner, **encoding},
    }


def placed(
    layers: Sequence[Spec], across: tuple[float, float], up: tuple[float, float]
) -> dict[str, Any]:
    """Return layers with the place of each mark, over these ranges of cells, and their ratio."""
    common = {"type": "quantitative", "axis": None}
    x = {**common, "field": "x", "scale": {"domain": list(across), "nice": False, "zero": False}}
    y: Spec = {**common, "field": "y", "scale": {"domain": list(up), "nice": False, "zero": False}}
    y["scale"]["reverse"] = True
    return {
        "layer": [{**one, "encoding": {"x": x, "y": y, **one["encoding"]}} for one in layers],
        "resolve": {"scale": {"fill": "independent", "stroke": "independent"}},
        "usermeta": {"ratio": (up[1] - up[0]) / (across[1] - across[0])},
    }


def cells(
    values: NDArray[np.float64],
    names: Sequence[str],
    measure: str,
    limits: tuple[float, float],
) -> list[Spec]:
    """Return the matrix as layers: numbers only, to which names are looked up by their place."""
    side = len(values)
    # A number is short for {"data": number}; Vega knows no such short form of null.
    numbers: list[float | Spec] = [
        {"data": None} if math.isnan(value) else round(value, 3)
        for value in values.ravel().tolist()
    ]
    called = {"values": [{"place": place, "name": name} for place, name in enumerate(names)]}

    def look_up(place: str, field: str) -> Spec:
        return {
            "lookup": place,
            "from": {"data": called, "key": "place", "fields": ["name"]},
            "as": [field],
        }

    ground = rects([{"x": 0, "x2": side, "y": 0, "y2": side}], {"color": GRID})
    colour = {
        "field": "data",
        "type": "quantitative",
        "scale": {"domain": list(limits), "range": list(_COLOURS), "clamp": True},
        "legend": {"title": measure, "gradientLength": 160, "gradientThickness": 8},
    }
    tooltip = [
        {"field": "row", "type": "nominal", "title": "client"},
        {"field": "column", "type": "nominal", "title": "and"},
        {"field": "data", "type": "quantitative", "title": measure, "format": ".3f"},
    ]
    drawn = rects([], {"strokeWidth": 0, "tooltip": {"content": "encoding"}})
    drawn["encoding"] |= {"color": colour, "tooltip": tooltip}
    drawn["data"]["values"] = numbers
    drawn["transform"] = [
        {"window": [{"op": "row_number", "as": "number"}]},
        {"calculate": f"(datum.number - 1) % {side}", "as": "x"},
        {"calculate": f"floor((datum.number - 1) / {side})", "as": "y"},
        # A little more than a cell, or the ground would shine through between them.
        {"calculate": f"min(datum.x + 1.04, {side})", "as": "x2"},
        {"calculate": f"min(datum.y + 1.04, {side})", "as": "y2"},
        look_up("y", "row"),
        look_up("x", "column"),
    ]
    return [ground, drawn]


def frames(clusters: Sequence[int]) -> list[Spec]:
    """Return a frame around each run of cells of one cluster, seen on dark and on light cells."""
    rows = [
        {"x": start, "x2": stop, "y": start, "y2": stop}
        for _, start, stop in runs_of_equals(clusters)
    ]
    return [
        rects(rows, {"filled": False, "stroke": colour, "strokeWidth": width})
        for colour, width in (("white", 3), (INK, 1.5))
    ]


def names_beside(names: Sequence[str], left: float) -> Spec:
    """Return the names of rows, as many as are legible, in so much room, as a share of the side."""
    step = math.ceil(len(names) / _MOST_NAMES)
    gap = -0.01 * len(names)
    rows = [
        {"x": gap, "y": place + 0.5, "name": name}
        for place, name in enumerate(told_apart(names, _LETTERS))
    ]
    return {
        "data": {"values": rows[::step]},
        "mark": {
            "type": "text",
            "align": "right",
            "baseline": "middle",
            "limit": {"expr": f"width * {0.9 * left / (1 + left):.4f}"},
            "aria": False,
        },
        "encoding": {"text": {"field": "name", "type": "nominal"}},
    }


def room_of(names: Sequence[str]) -> float:
    """Return the room that names need beside the rows, as a share of the side."""
    return 0.03 + 0.017 * max(map(len, told_apart(names, _LETTERS)))
