"""What accuracy costs: a point per strategy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_accuracies,
    check_shape,
    keep_spines,
    label_axes,
    label_ends,
    legend_below,
    new_figure,
    percent_axis,
)
from fl_app.report.pictures.style import MUTED, SMALL_SIZE, strategy_styles

_HEIGHT = 3.9


def traffic_figure(
    found: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> Figure:
    """Draw the final accuracy against the bytes: a point for the mean, a line from min to max.

    Parameters
    ----------
    found : mapping of str to tuple of NDArray[np.float64], shapes (S,) and (S,)
        For each strategy and seed, the megabytes that a client sent and received, and the mean
        accuracy, in [0, 1]. NaN is left out.
    """
    styles = strategy_styles(found)
    figure = new_figure("Accuracy against bytes", _HEIGHT)
    axes = figure.add_subplot()
    ends, handles = {}, []
    for name, (megabytes, accuracy) in found.items():
        check_accuracies(name, accuracy, (len(accuracy),))
        check_shape(f"megabytes of {name}", megabytes, accuracy.shape)
        known = np.isfinite(accuracy)
        if not known.any():
            continue
        values = accuracy[known]
        ends[name] = float(megabytes[known].mean()), float(values.mean())
        look = styles[name]
        axes.vlines(ends[name][0], values.min(), values.max(), color=look.colour, alpha=0.4, lw=2)
        handles += axes.plot(
            *ends[name],
            look.marker,
            color=look.colour,
            markersize=7,
            markeredgecolor="white",
            markeredgewidth=0.7,
            label=name,
        )
    seeds = max(len(accuracy) for _, accuracy in found.values())
    note = (
        f"points: mean of {seeds} seeds; lines: lowest to highest seed" if seeds > 1 else "one seed"
    )
    axes.set_title(note, loc="left", fontsize=SMALL_SIZE, color=MUTED)
    label_axes(
        axes, "MB that a client sends and receives, up to the end of training", "test accuracy"
    )
    percent_axis(axes.yaxis, [accuracy for _, accuracy in found.values()])
    axes.set_xlim(0, 1.05 * max((x for x, _ in ends.values()), default=1.0) or 1.0)
    keep_spines(axes, "left", "bottom")
    if ends and not label_ends(axes, ends, styles, _HEIGHT - 0.9, most_lines=8):
        legend_below(figure, handles)
    return figure
