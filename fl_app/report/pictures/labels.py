"""The number of samples of each label at each client."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    LEGEND,
    Spec,
    channel,
    in_panels,
    layer,
    picture,
    unique_labels,
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
    """Draw the number of samples of each label at each client, (K, C), with clients by task.

    `true_counts` are those before label noise: they stand beside the others, and cells that gained
    samples are outlined. Of many clients, neighbours share a row, which shows their mean.
    """
    clients, classes = counts.shape
    panels = [("", counts)]
    if true_counts is not None:
        changed = 100 * (counts - true_counts).clip(0).sum() / max(1, counts.sum())
        seen = f"labels the client sees ({changed:.0f} % changed)"
        panels = [("true labels", true_counts), (seen, counts)]
    order = list(range(clients))
    if tasks is not None:
        order.sort(key=lambda client: tasks[client])
    names = unique_labels(class_names, 20)
    side = max(20, _MOST_CELLS // (classes * len(panels)))
    blocks = np.array_split(np.array(order), min(clients, side))
    client_labels = [str(client) for client in range(clients)]
    if len(blocks) == clients == len(client_names):
        client_labels = unique_labels(client_names, 20)
    # Many labels would be too narrow side by side.
    beside = len(panels) if classes <= 16 else 1
    tall = round(min(max(12 * len(blocks), 50), 330 if beside == len(panels) else 200))
    flat = max(map(len, names)) * len(names) < (36 if beside > 1 else 80)
    axis = {"labelOverlap": "greedy", "ticks": False, "domain": False}
    angle = {"labelLimit": 130, "labelAngle": 0 if flat else 270}
    x = channel("label:O", sort=None, axis=axis | angle)
    y = channel("client:O", sort=None, axis=axis)
    most = max(1, *(int(panel.max()) for _, panel in panels))
    layers = [_cells(most, x, y)]
    task_names = [] if tasks is None else [f"task {task}" for task in sorted(set(tasks))]
    if tasks is not None:  # a strip beside the rows, in the colours of their clients' tasks
        colours = [task_colour(task) for task in sorted(set(tasks))]
        legend = LEGEND if len({*colours}) == len(colours) else None
        fill = channel("task:N", scale={"domain": task_names, "range": colours}, legend=legend)
        strip = layer("rect", None, {"x": "width", "xOffset": 3, "width": 6}, y=y, fill=fill)
        groups = {"aggregate": [], "groupby": ["client", "task"]}
        layers.append({"transform": [groups], **strip})
    gained = counts > true_counts if true_counts is not None else np.zeros_like(counts, bool)
    look = {"filled": False, "stroke": _NOISE, "strokeWidth": 0.7 if gained.size > 1000 else 1.2}
    outline = layer("rect", None, look, x=x, y=y)
    outline["transform"] = [{"filter": "isValid(datum.gained)"}]
    parts = []
    for place, (title, panel) in enumerate(panels):
        outlined = [outline] if gained.any() and place else []
        rows = [
            {"client": client_labels[block[0]], "label": name, "samples": count}
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
    drawn = in_panels(parts, beside, tall)
    if len(parts) == 1:
        drawn["height"] = tall
    return picture("Samples of each label at each client", "; ".join(notes), task_names, **drawn)


def _cells(most: int, x: Spec, y: Spec) -> Spec:
    """Return the cells of a panel, coloured by their numbers of samples."""
    title = "samples (square-root colour scale; white: none)"
    colour = channel(
        "samples:Q",
        scale={"type": "sqrt", "domain": [0, most], "range": _COLOURS, "interpolate": "rgb"},
        legend={"title": title, "gradientLength": 240, "gradientThickness": 8},
    )
    return layer("rect", None, {"stroke": FAINT, "strokeWidth": 0.2}, x=x, y=y, color=colour)
