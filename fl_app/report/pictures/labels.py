"""How many samples of each label each client holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from fl_app.report.pictures import style
from fl_app.report.pictures.figure import (
    check_shape,
    index_ticks,
    legend_below,
    new_figure,
    runs_of_equals,
    short_name,
    spread,
)

_NOISE = "#D55E00"
_COUNT_COLOURS = LinearSegmentedColormap.from_list("counts", ("#ffffff", "#9ecae1", "#08306b"))


def labels_figure(
    counts: NDArray[np.int64],
    tasks: Sequence[int] | None,
    class_names: Sequence[str],
    true_counts: NDArray[np.int64] | None = None,
) -> Figure:
    """Draw how many samples of each label each client holds, with the clients grouped by task.

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

    # Many labels would be too narrow side by side.
    rows = len(panels) if classes > 16 else 1
    columns = len(panels) // rows
    tall = min(max(0.17 * clients, 0.7), 4.6 if rows == 1 else 3.0)
    figure = new_figure("Samples of each label at each client", 1.7 + (tall + 0.3) * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    norm = PowerNorm(0.5, 0, max(1, *(panel.max() for _, panel in panels)))
    for axes, (title, panel) in zip(grid.flat, panels, strict=True):
        image = axes.imshow(
            panel[order], cmap=_COUNT_COLOURS, norm=norm, aspect="auto", interpolation="nearest"
        )
        axes.set_title(title, loc="left", fontsize=style.LABEL_SIZE, color=style.INK)
    if tasks is not None:
        values = [tasks[client] for client in order]
        for axes in grid.flat:
            for _, start, _ in runs_of_equals(values)[1:]:
                axes.axhline(start - 0.5, color=style.MUTED, lw=0.8)
        for axes in grid[:, -1]:
            _name_tasks(axes, values, (5.0 / columns, tall))
    if true_counts is not None and (counts > true_counts).any():
        _outline_gains(figure, grid.flat[-1], (counts > true_counts)[order])
    _label_grid(grid, order, class_names, (5.0 / columns, tall))
    _count_bar(figure, grid, image)
    return figure


def _name_tasks(axes: Axes, values: Sequence[int], panel_inches: tuple[float, float]) -> None:
    """Put a bar and the name of each task to the right of its clients."""
    runs = runs_of_equals(values)
    middles = np.array([(start + stop) / 2 / len(values) for _, start, stop in runs])
    wide, tall = panel_inches
    heights = spread(middles, style.LINE_HEIGHT / tall)
    for (task, start, stop), height in zip(runs, heights, strict=True):
        axes.add_patch(
            Rectangle(
                (1 + 0.05 / wide, start - 0.5),
                0.07 / wide,
                stop - start,
                transform=axes.get_yaxis_transform(),
                color=style.task_colour(task),
                lw=0,
                clip_on=False,
            )
        )
        # Rows count downwards, the axes fraction upwards.
        axes.text(
            1 + 0.17 / wide,
            1 - height,
            f"task {task}",
            transform=axes.transAxes,
            va="center",
            fontsize=style.SMALL_SIZE,
            color=style.INK,
        )


def _outline_gains(figure: Figure, axes: Axes, gained: NDArray[np.bool_]) -> None:
    cells = [Rectangle((label - 0.5, row - 0.5), 1, 1) for row, label in np.argwhere(gained)]
    width = 0.7 if gained.size > 1000 else 1.2
    axes.add_collection(
        PatchCollection(cells, facecolor="none", edgecolor=_NOISE, linewidth=width, zorder=3)
    )
    handle = Patch(facecolor="none", edgecolor=_NOISE, linewidth=1.2, label="gained by noise")
    legend_below(figure, [handle])


def _label_grid(
    grid: NDArray[Any],
    order: Sequence[int],
    class_names: Sequence[str],
    panel_inches: tuple[float, float],
) -> None:
    wide, tall = panel_inches
    for axes in grid.flat:
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set(color=style.FAINT, linewidth=0.8)
    for axes in grid[:, 0]:
        index_ticks(axes.yaxis, order, tall)
        axes.set_ylabel("client", fontsize=style.LABEL_SIZE)
    for axes in grid[-1]:
        index_ticks(axes.xaxis, [short_name(name, 100) for name in class_names], wide)
        axes.set_xlabel("label", fontsize=style.LABEL_SIZE)


def _count_bar(figure: Figure, grid: NDArray[Any], image: AxesImage) -> None:
    bar = figure.colorbar(image, ax=grid, location="bottom", aspect=40, pad=0.02)
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.ax.tick_params(labelsize=style.SMALL_SIZE)
    bar.ax.set_xlabel("samples (square-root colour scale; white: none)", fontsize=style.SMALL_SIZE)
