"""Several panels of dots: a measure of each strategy, beside each other for each word."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_shape,
    keep_spines,
    label_axes,
    legend_below,
    new_figure,
    short_name,
)
from fl_app.report.pictures.style import GRID, LABEL_SIZE, SMALL_SIZE, strategy_styles

_HEIGHT = 2.5  # inches of a row of panels
_LETTERS = 60  # that fit below all panels of a row together


def dots_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, NDArray[np.float64]]],
    across: str,
    words: Sequence[str],
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw a small dot for each seed, and a large one for their mean.

    Parameters
    ----------
    title : str
    panels : mapping of (str, str) to mapping of NDArray[np.float64], shape (S, W)
        By a panel's title and what it shows upwards, then by strategy: a row per seed, a column per
        word; NaN where there is none.
    across : str
        What the words are.
    words : sequence of str
    limits : mapping of (float, float), optional
        The range of some of what is shown upwards.

    Raises
    ------
    ValueError
        If there is nothing to draw, or values have another number of columns.
    """
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    styles = strategy_styles(names)
    columns = 1 if max(map(len, words)) * len(words) > _LETTERS // 2 else min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(title, 0.6 + _HEIGHT * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    step = 0.7 / len(names)
    seeds = 1
    longest = max(3, _LETTERS // columns // len(words))
    for axes, ((name, up), found) in zip(grid, panels.items(), strict=False):
        for rank, method in enumerate(names):
            if method not in found:
                continue
            values = found[method]
            check_shape(f"{up} of {method}", values, (len(values), len(words)))
            seeds = max(seeds, len(values))
            places = np.arange(len(words)) + (rank - (len(names) - 1) / 2) * step
            look = styles[method]
            for row in values if len(values) > 1 else ():
                axes.plot(places, row, ls="", marker=".", ms=4, color=look.colour, alpha=0.5)
            means = np.ma.masked_invalid(values).mean(axis=0).filled(np.nan)
            axes.plot(places, means, ls="", marker=look.marker, ms=6, color=look.colour)
        axes.set_title(name, loc="left", fontsize=LABEL_SIZE)
        label_axes(axes, across, up)
        axes.set_xticks(
            range(len(words)), [short_name(w, longest) for w in words], fontsize=SMALL_SIZE
        )
        axes.set_xlim(-0.5, len(words) - 0.5)
        if limits and up in limits:
            axes.set_ylim(limits[up])
        axes.grid(axis="y", color=GRID, lw=0.8)
        axes.set_axisbelow(True)
        keep_spines(axes, "left", "bottom")
    handles = [
        Line2D([], [], ls="", marker=s.marker, color=s.colour, label=n) for n, s in styles.items()
    ]
    if seeds > 1:
        handles.append(Line2D([], [], ls="", label=f"small dots: up to {seeds} seeds"))
    legend_below(figure, handles)
    return figure
