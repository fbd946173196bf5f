"""How many samples of each label each client holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    LEGEND,
    Spec,
    check_shape,
    in_panels,
    picture,
    told_apart,
)
from fl_app.report.pictures.style import FAINT, task_colour

_MOST_CELLS = 10_000  # of all panels
_NOISE = "#D55E00"
_COLOURS = ["#ffffff", "#9ecae1", "#08306b"]


def labels_figure(
    counts: NDArray[np.int64],
    tasks: Sequence[int] | None,
    class_names: Sequence[str],
    true_counts: NDArray[np.int64] | None = None,
    client_names: Sequence[str] = (),
) -> Spec:
    """Draw how many samples of each label each client holds, with the clients grouped by task.

    Of many clients, neighbours share a row, which shows their mean.

    Parameters
    ----------
    counts : NDArray[np.int64], shape (K, C)
        Samples of each label at each client, after label noise.
    tasks : sequence of K int, optional
        The true task of each client, or None when it is not known.
    class_names : sequence of C str
        Names of the labels.
    true_counts : NDArray[np.int64], shape (K, C), optional
        The same before label noise. If given, it is drawn beside `counts`, where the cells that
        gained samples are then outlined.
    client_names : sequence of K str, optional
        What to call the clients that have a row of their own; otherwise their numbers.
    """
    clients, classes = counts.shape
    check_shape("class_names", class_names, (classes,))
    panels = [("", counts)]
    if true_counts is not None:
        check_shape("true_counts", true_counts, (clients, classes))
        changed = 100 * (counts - true_counts).clip(0).sum() / max(1, counts.sum())
        seen = f"labels the client sees ({changed:.0f} % changed)"
        panels = [("true labels", true_counts), (seen, counts)]
    order = list(range(clients))
    if tasks is not None:
        check_shape("tasks", tasks, (clients,))
        order.sort(key=lambda client: tasks[client])
    names = told_apart(class_names, 20)
    side = max(20, _MOST_CELLS // (classes * len(panels)))
    blocks = np.array_split(np.array(order), min(clients, side))
    rows_of_own = len(blocks) == clients == len(client_names)
    called_by = told_apart(client_names, 20) if rows_of_own else [str(c) for c in range(clients)]
    # Many labels would be too narrow side by side.
    beside = len(panels) if classes <= 16 else 1
    tall = round(min(max(12 * len(blocks), 50), 330 if beside == len(panels) else 200))
    most = max(1, *(int(panel.max()) for _, panel in panels))
    layers = _layers(names, most, narrow=beside > 1)
    if tasks is not None:
        layers.append(_strip(sorted(set(tasks))))
    gained = counts > true_counts if true_counts is not None else np.zeros_like(counts, bool)
    parts = []
    for place, (title, panel) in enumerate(panels):
        outlined = [_outline(gained.size)] if gained.any() and place else []
        rows = [
            {"client": called_by[block[0]], "label": name, "samples": count}
            | ({"gained": True} if outlined and gained[block, label].any() else {})
            | ({} if tasks is None else {"task": f"task {tasks[block[0]]}"})
            for block in blocks
            for label, (name, count) in enumerate(
                zip(names, panel[block].mean(axis=0).round(1).tolist(), strict=True)
            )
        ]
        parts.append((title, {"data": {"values": rows}, "layer": [*layers, *outlined]}))
    notes = ["outlined: gained by noise"] if gained.any() else []
    if len(blocks) < clients:
        notes.append(f"a row: the mean of {clients / len(blocks):.0f} clients")
    called = [] if tasks is None else [f"task {task}" for task in sorted(set(tasks))]
    drawn = in_panels(parts, beside, tall)
    if len(parts) == 1:
        drawn["height"] = tall
    return picture("Samples of each label at each client", "; ".join(notes), called, **drawn)


_CLIENT = {
    "field": "client",
    "type": "ordinal",
    "sort": None,
    "title": "client",
    "axis": {"labelOverlap": "greedy", "ticks": False, "domain": False},
}


def _layers(names: Sequence[str], most: int, *, narrow: bool) -> list[Spec]:
    """Return the cells of a panel, coloured by how many samples they have."""
    flat = max(map(len, names)) * len(names) < (36 if narrow else 80)
    axis = {"labelOverlap": "greedy", "ticks": False, "domain": False, "labelLimit": 130}
    colour = {
        "field": "samples",
        "type": "quantitative",
        "scale": {"type": "sqrt", "domain": [0, most], "range": _COLOURS, "interpolate": "rgb"},
        "legend": {"title": "samples (square-root colour scale; white: none)"}
        | {"gradientLength": 240, "gradientThickness": 8},
    }
    across = {"field": "label", "type": "ordinal", "sort": None, "title": "label"}
    return [
        {
            "mark": {"type": "rect", "stroke": FAINT, "strokeWidth": 0.2},
            "encoding": {
                "x": {**across, "axis": {**axis, "labelAngle": 0 if flat else 270}},
                "y": _CLIENT,
                "color": colour,
            },
        }
    ]


def _strip(tasks: Sequence[int]) -> Spec:
    """Return a strip beside the rows, in the colours of their clients' tasks."""
    colours = [task_colour(task) for task in tasks]
    fill = {
        **{"field": "task", "type": "nominal"},
        "scale": {"domain": [f"task {task}" for task in tasks], "range": colours},
        "legend": LEGEND if len({*colours}) == len(tasks) else None,
    }
    return {
        "transform": [{"aggregate": [], "groupby": ["client", "task"]}],
        "mark": {"type": "rect", "x": "width", "xOffset": 3, "width": 6},
        "encoding": {
            "y": _CLIENT,
            "fill": fill,
        },
    }


def _outline(cells: int) -> Spec:
    width = 0.7 if cells > 1000 else 1.2
    return {
        "transform": [{"filter": "isValid(datum.gained)"}],
        "mark": {"type": "rect", "filled": False, "stroke": _NOISE, "strokeWidth": width},
        "encoding": {
            "x": {"field": "label", "type": "ordinal", "sort": None},
            "y": _CLIENT,
        },
    }
