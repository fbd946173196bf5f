"""The interactive relevance matrix with its tree, as a Vega-Lite specification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.html.charts import Spec, figure
from fl_app.report.html.reading import Matrix

MOST_CELLS = 120  # on a side: of more clients, neighbours in the tree share one
MOST_LABELS = 40  # clients whose names are written beside the rows
_TREE, _STRIP, _GAP = 0.2, 0.03, 0.012  # of the side of the matrix
_LEFT = 0.2  # of that side, at most, for names
_COLOURS = ("#ffffd9", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#0c2c84")
_INK, _FAINT, _UNKNOWN = "#222222", "#b0b0b0", "#ececec"


def matrix_chart(matrix: Matrix) -> Spec:
    """Return the matrix, ordered by its tree, with clusters framed and true tasks above it.

    Clients that came later are below the tree's, and the tree does not reach them.
    """
    count = len(matrix.names)
    order, links = _tree(matrix)
    side = math.ceil(count / math.ceil(count / MOST_CELLS))
    blocks = [block.tolist() for block in np.array_split(np.array(order), side)]
    cells = _means(matrix.values, blocks)
    low, high = _range(cells if len(blocks) < count else matrix.values)
    labels = [_called([matrix.names[client] for client in block]) for block in blocks]
    written = count <= MOST_LABELS
    left = min(_LEFT, 0.03 + 0.012 * max(map(len, labels))) if written else 0.0
    above = _GAP + (_STRIP + _GAP if matrix.tasks is not None else 0.0)
    top = above + (_TREE if links else 0.0)
    scale = len(blocks) / count  # the tree counts clients, the matrix cells

    across: Spec = {
        "field": "x",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-left * side, side], "nice": False, "zero": False},
    }
    up: Spec = {
        "field": "y",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [-top * side, side], "nice": False, "zero": False, "reverse": True},
    }
    ground: Spec = {
        "data": {"values": [{"start": 0, "end": side}]},
        "mark": {"type": "rect", "color": _UNKNOWN, "tooltip": None, "aria": False},
        "encoding": {
            "x": {**across, "field": "start"},
            "x2": {"field": "end"},
            "y": {**up, "field": "start"},
            "y2": {"field": "end"},
        },
    }
    layers = [ground, _cells(cells, labels, matrix.measure, across, up, (low, high))]
    layers.append(_frames(_blocks_of(matrix, blocks), across, up))
    if matrix.tasks is not None:
        layers.append(_strip(matrix.tasks, order, side, scale, across, up))
    if links:
        layers.append(_links(links, side, above, scale, across, up))
    if written:
        rows = [{"x": -0.1, "y": place + 0.5, "name": name} for place, name in enumerate(labels)]
        layers.append(
            {
                "data": {"values": rows},
                "mark": {
                    "type": "text",
                    "align": "right",
                    "baseline": "middle",
                    "limit": {"expr": f"width * {0.95 * left / (1 + left):.4f}"},
                    "fontSize": 11,
                    "aria": False,
                },
                "encoding": {
                    "x": across,
                    "y": up,
                    "text": {"field": "name", "type": "nominal"},
                },
            }
        )
    usermeta = {
        "ratio": (1 + top) / (1 + left),
        "renderer": "canvas" if len(blocks) > 30 else "svg",
    }
    text = f"{matrix.measure} between {count:,} clients ({matrix.title}), ordered by the merge tree"
    return figure(text, 400, layers, usermeta=usermeta)


def _cells(
    cells: NDArray[np.float64],
    labels: Sequence[str],
    measure: str,
    across: Spec,
    up: Spec,
    limits: tuple[float, float],
) -> Spec:
    """Return the matrix as a layer: numbers only, to which names are looked up by their place."""
    side = len(cells)
    # A number is short for {"data": number}; Vega knows no such short form of null.
    values: list[float | Spec] = [
        {"data": None} if math.isnan(value) else round(value, 3) for value in cells.ravel().tolist()
    ]
    names = {"values": [{"place": place, "name": name} for place, name in enumerate(labels)]}

    def look_up(place: str, field: str) -> Spec:
        return {
            "lookup": place,
            "from": {"data": names, "key": "place", "fields": ["name"]},
            "as": [field],
        }

    return {
        "data": {"values": values},
        "transform": [
            {"window": [{"op": "row_number", "as": "number"}]},
            {"calculate": f"(datum.number - 1) % {side}", "as": "x"},
            {"calculate": f"floor((datum.number - 1) / {side})", "as": "y"},
            # A little more than a cell, or the ground would shine through between them.
            {"calculate": "datum.x + 1.04", "as": "right"},
            {"calculate": "datum.y + 1.04", "as": "bottom"},
            look_up("y", "row"),
            look_up("x", "column"),
        ],
        "mark": {"type": "rect", "aria": False, "strokeWidth": 0},
        "encoding": {
            "x": across,
            "x2": {"field": "right"},
            "y": up,
            "y2": {"field": "bottom"},
            "color": {
                "field": "data",
                "type": "quantitative",
                "scale": {"domain": list(limits), "range": list(_COLOURS), "clamp": True},
                "legend": {
                    "title": measure,
                    "titleFontWeight": "normal",
                    "orient": "bottom",
                    "direction": "horizontal",
                    "gradientLength": 200,
                    "gradientThickness": 10,
                },
            },
            "tooltip": [
                {"field": "row", "type": "nominal", "title": "client"},
                {"field": "column", "type": "nominal", "title": "and"},
                {"field": "data", "type": "quantitative", "title": measure, "format": ".3f"},
            ],
        },
    }


def _frames(runs: Sequence[tuple[int, int]], across: Spec, up: Spec) -> Spec:
    rows = [{"x": start, "y": start, "end": stop} for start, stop in runs]
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "filled": False, "stroke": _INK, "strokeWidth": 1.5}
        | {"tooltip": None, "aria": False},
        "encoding": {"x": across, "x2": {"field": "end"}, "y": up, "y2": {"field": "end"}},
    }


def _strip(
    tasks: Sequence[int], order: Sequence[int], side: int, scale: float, across: Spec, up: Spec
) -> Spec:
    from fl_app.report.pictures.figure import runs_of_equals  # noqa: PLC0415 - needs matplotlib
    from fl_app.report.pictures.style import task_colour  # noqa: PLC0415

    rows = [
        {
            "x": start * scale,
            "end": stop * scale,
            "y": -(_GAP + _STRIP) * side,
            "bottom": -_GAP * side,
            "task": f"{task}",
            "colour": task_colour(task),
        }
        for task, start, stop in runs_of_equals([tasks[client] for client in order])
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "aria": False},
        "encoding": {
            "x": across,
            "x2": {"field": "end"},
            "y": up,
            "y2": {"field": "bottom"},
            "fill": {"field": "colour", "type": "nominal", "scale": None},
            "tooltip": [{"field": "task", "type": "nominal", "title": "true task"}],
        },
    }


def _links(
    links: Sequence[dict[str, Any]],
    side: int,
    above: float,
    scale: float,
    across: Spec,
    up: Spec,
) -> Spec:
    highest = max((height for link in links for height in link["up"]), default=0.0) or 1.0
    room = _TREE * 0.95
    rows = [
        {
            "link": number,
            "corner": corner,
            "x": round(x * scale, 4),
            "y": round(-side * (above + room * height / highest), 4),
            "colour": _FAINT if link["joins"] else _INK,
        }
        for number, link in enumerate(links)
        for corner, (x, height) in enumerate(zip(link["across"], link["up"], strict=True))
    ]
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "strokeWidth": 1.2, "tooltip": None, "aria": False},
        "encoding": {
            "x": across,
            "y": up,
            "detail": {"field": "link", "type": "nominal"},
            "order": {"field": "corner", "type": "quantitative"},
            "stroke": {"field": "colour", "type": "nominal", "scale": None},
        },
    }


def _tree(matrix: Matrix) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the clients in the order of the tree's leaves, and its links, leaf n at n + 1/2.

    A link `joins` if it is between clusters.
    """
    from scipy.cluster.hierarchy import leaves_list  # noqa: PLC0415 - slow to load

    late = list(range(len(matrix.merges) + 1, len(matrix.names)))
    if not len(matrix.merges):
        return sorted(range(len(matrix.names)), key=lambda one: matrix.clusters[one]), []
    members = [{cluster} for cluster in matrix.clusters[: len(matrix.merges) + 1]]
    leaves: list[int] = leaves_list(matrix.merges).tolist()
    # Not by SciPy's dendrogram, which calls itself and fails where a tree is deep.
    places = [0.0] * len(leaves)
    for place, leaf in enumerate(leaves):
        places[leaf] = place + 0.5
    heights = [0.0] * len(leaves)
    links = []
    for left, right, height in matrix.merges[:, :3].tolist():
        a, b = int(left), int(right)
        members.append(members[a] | members[b])
        links.append(
            {
                "across": [places[a], places[a], places[b], places[b]],
                "up": [heights[a], height, height, heights[b]],
                "joins": len(members[-1]) > 1,
            }
        )
        places.append((places[a] + places[b]) / 2)
        heights.append(height)
    return [*leaves, *sorted(late, key=lambda one: matrix.clusters[one])], links


def _means(values: NDArray[np.float64], blocks: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the mean of each pair of blocks, an n × n matrix; NaN where nothing is known."""
    if all(len(block) == 1 for block in blocks):
        order = [client for block in blocks for client in block]
        return values[np.ix_(order, order)]
    shares = np.zeros((len(blocks), len(values)))
    for place, block in enumerate(blocks):
        shares[place, block] = 1
    known = np.isfinite(values)
    counts = shares @ known @ shares.T
    sums = shares @ np.where(known, values, 0) @ shares.T
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _blocks_of(matrix: Matrix, blocks: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return where, in cells, each run of clients of one cluster begins and ends."""
    from fl_app.report.pictures.figure import runs_of_equals  # noqa: PLC0415 - needs matplotlib

    first = [matrix.clusters[block[0]] for block in blocks]
    return [(start, stop) for _, start, stop in runs_of_equals(first)]


def _called(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return ", ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the range of the pairs without the diagonal, as the picture of the run has it."""
    from fl_app.report.pictures.similarity import colour_range  # noqa: PLC0415 - needs matplotlib

    return colour_range(values)
