"""Pictures of a square matrix: cells, frames and names, in units of cells from the top left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import Spec, channel, layer, runs_of_equals, unique_labels
from fl_app.report.pictures.style import GRID, INK

_COLOURS = ("#ffffd9", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#0c2c84")
_MOST_NAMES = 25  # beside the rows; of more, every second, third …
_LETTERS = 14  # of such a name, without its number


def rects(rows: Sequence[Any], look: Spec, **encoding: Any) -> Spec:
    """Return a layer of rectangles, each from (x, y) to (x2, y2)."""
    return layer("rect", rows, look, x2=channel("x2"), y2=channel("y2"), **encoding)


def placed(
    layers: Sequence[Spec], across: tuple[float, float], up: tuple[float, float]
) -> dict[str, Any]:
    """Return layers with the place of each mark, over these ranges of cells, and their ratio."""
    fixed = {"nice": False, "zero": False}
    x = channel("x:Q", axis=None, scale={**fixed, "domain": list(across)})
    y = channel("y:Q", axis=None, scale={**fixed, "domain": list(up), "reverse": True})
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
    """Return the matrix as layers of numbers, with the names looked up by index."""
    side = len(values)
    # A number is short for {"data": number}; Vega knows no such short form of null.
    numbers: list[float | Spec] = [
        {"data": None} if math.isnan(value) else round(value, 3)
        for value in values.ravel().tolist()
    ]
    labels = {"values": [{"place": place, "name": name} for place, name in enumerate(names)]}
    source = {"data": labels, "key": "place", "fields": ["name"]}
    scale = {"domain": list(limits), "range": list(_COLOURS), "clamp": True}
    legend = {"title": measure, "gradientLength": 160, "gradientThickness": 8}
    drawn = rects(
        numbers,
        {"strokeWidth": 0},
        color=channel("data:Q", scale=scale, legend=legend),
        tooltip=[
            channel("row:N", "client"),
            channel("column:N", "and"),
            channel("data:Q", measure, format=".3f"),
        ],
    )
    drawn["transform"] = [
        {"window": [{"op": "row_number", "as": "number"}]},
        {"calculate": f"(datum.number - 1) % {side}", "as": "x"},
        {"calculate": f"floor((datum.number - 1) / {side})", "as": "y"},
        # A little more than a cell, or the ground would shine through between them.
        {"calculate": f"min(datum.x + 1.04, {side})", "as": "x2"},
        {"calculate": f"min(datum.y + 1.04, {side})", "as": "y2"},
        {"lookup": "y", "from": source, "as": ["row"]},
        {"lookup": "x", "from": source, "as": ["column"]},
    ]
    return [rects([{"x": 0, "x2": side, "y": 0, "y2": side}], {"color": GRID}), drawn]


def frames(clusters: Sequence[int]) -> list[Spec]:
    """Return a frame around each run of cells of one cluster, visible on dark and light cells."""
    rows = [
        {"x": start, "x2": stop, "y": start, "y2": stop}
        for _, start, stop in runs_of_equals(clusters)
    ]
    return [
        rects(rows, {"filled": False, "stroke": colour, "strokeWidth": width})
        for colour, width in (("white", 3), (INK, 1.5))
    ]


def texts(rows: Sequence[Spec], field: str, look: Spec, **encoding: Any) -> Spec:
    """Return a layer of texts, each with its middle at the height of (x, y)."""
    look = {"baseline": "middle", **look}
    return layer("text", rows, look, text=channel(f"{field}:N"), **encoding)


def names_beside(names: Sequence[str], left: float) -> Spec:
    """Return as many names of rows as are legible, in a width that is a share of the side."""
    rows = [
        {"x": -0.01 * len(names), "y": place + 0.5, "name": name}
        for place, name in enumerate(unique_labels(names, _LETTERS))
    ]
    limit = {"expr": f"width * {0.9 * left / (1 + left):.4f}"}
    step = math.ceil(len(names) / _MOST_NAMES)
    return texts(rows[::step], "name", {"align": "right", "limit": limit})


def room_of(names: Sequence[str]) -> float:
    """Return the width of the names beside the rows, as a share of the side."""
    return 0.03 + 0.017 * max(map(len, unique_labels(names, _LETTERS)))


def block_means(
    values: NDArray[np.float64], blocks: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the mean of each pair of blocks, (n, n); NaN where no value is known."""
    if all(len(block) == 1 for block in blocks):
        order = [client for block in blocks for client in block]
        return values[np.ix_(order, order)]
    members = np.zeros((len(blocks), len(values)))
    for place, block in enumerate(blocks):
        members[place, block] = 1
    known = np.isfinite(values)
    counts = members @ known @ members.T
    sums = members @ np.where(known, values, 0) @ members.T
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
