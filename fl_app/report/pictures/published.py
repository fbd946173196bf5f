"""What was published and what was measured again, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    keep_spines,
    label_axes,
    legend_below,
    new_figure,
    wrapped,
)
from fl_app.report.pictures.style import GRID, LABEL_SIZE, MUTED, SMALL_SIZE, Style, strategy_styles

Stated = Mapping[str, tuple[float, float | None]]
"""By strategy, a mean and its standard deviation, if any."""
Group = tuple[str, Stated, Mapping[str, NDArray[np.float64]]]
"""A name, what was published, and what was measured: by strategy, a value per seed."""


def published_figure(title: str, panels: Mapping[str, Sequence[Group]], up: str) -> Figure:
    """Draw a panel for each row of a table: hollow marks are the paper's, full ones ours.

    Parameters
    ----------
    title : str
    panels : mapping of str to sequence of Group
        The columns of each row. Lines are one standard deviation to either side.
    up : str
        What is measured, with its unit.

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    names = dict.fromkeys(
        name
        for groups in panels.values()
        for _, stated, measured in groups
        for name in (*stated, *measured)
    )
    styles = strategy_styles(names)
    figure = new_figure(title, 0.6 + 2.4 * len(panels))
    rows = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (panel, groups) in zip(rows, panels.items(), strict=True):
        for place, (_, stated, measured) in enumerate(groups):
            _draw_group(axes, place, list(names), styles, stated, measured)
        axes.set_title(wrapped(panel, 70), loc="left", fontsize=LABEL_SIZE)
        label_axes(axes, "", up)
        axes.set_xticks(range(len(groups)), [name for name, _, _ in groups], fontsize=SMALL_SIZE)
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.grid(axis="y", color=GRID, lw=0.8)
        axes.set_axisbelow(True)
        keep_spines(axes, "left", "bottom")
    marks = [
        Line2D([], [], ls="", marker=s.marker, color=s.colour, label=n) for n, s in styles.items()
    ]
    if any(stated for groups in panels.values() for _, stated, _ in groups):
        marks.append(
            Line2D([], [], ls="", marker="o", mfc="none", color=MUTED, label="hollow: the paper")
        )
    legend_below(figure, marks)
    return figure


def _draw_group(
    axes: Axes,
    place: int,
    names: Sequence[str],
    styles: Mapping[str, Style],
    stated: Stated,
    measured: Mapping[str, NDArray[np.float64]],
) -> None:
    """Draw one column's strategies beside each other."""
    step = 0.8 / len(names)
    for rank, name in enumerate(names):
        across = place + (rank - (len(names) - 1) / 2) * step
        look = styles[name]
        for shift, hollow, found in (
            (-0.2, True, stated.get(name)),
            (0.2, False, _mean_and_std(measured.get(name))),
        ):
            if found is None:
                continue
            mean, std = found
            axes.errorbar(
                across + shift * step,
                mean,
                yerr=std or 0.0,
                marker=look.marker,
                color=look.colour,
                markerfacecolor="none" if hollow else look.colour,
                markersize=5,
                elinewidth=1,
                alpha=0.75 if hollow else 1.0,
            )


def _mean_and_std(values: NDArray[np.float64] | None) -> tuple[float, float | None] | None:
    if values is None or not len(values):
        return None
    return float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
