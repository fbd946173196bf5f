"""Several panels of lines: a measure against rounds, or against what was swept."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_shape,
    keep_spines,
    label_axes,
    legend_below,
    new_figure,
    wrapped,
)
from fl_app.report.pictures.style import GRID, LABEL_SIZE, strategy_styles

Line = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Places, (R,), and values there, (S, R) for S seeds; NaN where there is none."""

_HEIGHT = 2.5  # inches of a row of panels


def lines_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, Line]],
    across: str,
    limits: Mapping[str, tuple[float, float]] | None = None,
    *,
    logarithmic: bool = False,
) -> Figure:
    """Draw each method's mean over the seeds, and a band from the lowest to the highest.

    Parameters
    ----------
    title : str
    panels : mapping of (str, str) to mapping of Line
        By a panel's title and what it shows upwards, then by method.
    across : str
        What the places are; whole numbers only if all of them are.
    limits : mapping of (float, float), optional
        The range of some of what is shown upwards.
    logarithmic : bool
        Whether places are as far apart as their logarithms.

    Raises
    ------
    ValueError
        If there is nothing to draw, or values have another shape than their places.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    styles = strategy_styles(names)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(title, 0.6 + _HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    seeds = 1
    for axes, ((name, up), lines) in zip(grid, panels.items(), strict=False):
        for place, (method, (places, values)) in enumerate(lines.items()):
            check_shape(f"{up} of {method}", values, (len(values), len(places)))
            seeds = max(seeds, len(values))
            known = np.ma.masked_invalid(values)
            look = styles[method]
            axes.plot(
                places,
                known.mean(axis=0).filled(np.nan),
                color=look.colour,
                linestyle=look.dashes,
                linewidth=look.width,
                marker=look.marker,
                markersize=4,
                markevery=_marks(place, len(lines), len(places)),
                zorder=4 - look.width / 4,
            )
            low, high = (part.filled(np.nan) for part in (known.min(axis=0), known.max(axis=0)))
            axes.fill_between(places, low, high, color=look.colour, alpha=0.15, linewidth=0)
        axes.set_title(wrapped(name, 60 // columns), loc="left", fontsize=LABEL_SIZE)
        label_axes(axes, across, up)
        if logarithmic:
            axes.set_xscale("log")
        elif all(np.all(places == np.round(places)) for places, _ in lines.values()):
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        if limits and up in limits:
            axes.set_ylim(limits[up])
        axes.grid(color=GRID, lw=0.8)
        axes.set_axisbelow(True)
        keep_spines(axes, "left", "bottom")
    handles = [
        Line2D([], [], color=s.colour, ls=s.dashes, lw=s.width, marker=s.marker, label=n)
        for n, s in styles.items()
    ]
    if seeds > 1:
        note = f"lines: mean of up to {seeds} seeds; bands: lowest to highest"
        handles.append(Line2D([], [], ls="", label=note))
    legend_below(figure, handles)
    return figure


def _marks(place: int, lines: int, points: int) -> tuple[int, int]:
    """Return which points to mark: all of a few, and of many those that other lines leave."""
    step = 1 if points <= 10 else points // 6
    return (place * step // max(1, lines)) % points, step
