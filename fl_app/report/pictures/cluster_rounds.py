"""Accuracy of each cluster over the rounds, a panel per strategy and a line per cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_accuracies,
    keep_spines,
    new_figure,
    percent_axis,
    spread,
    wrapped,
)
from fl_app.report.pictures.style import LABEL_SIZE, LINE_HEIGHT, SMALL_SIZE, darker, task_colour

ClusterCurves = tuple[NDArray[np.int64], Mapping[int, NDArray[np.float64]]]

_MOST_PANELS, _MOST_LINES, _ACROSS = 15, 6, 3


def cluster_rounds_figure(curves: Mapping[str, ClusterCurves], seed: int) -> Figure:
    """Draw the accuracy of each cluster over the rounds, a panel per strategy.

    The first fifteen strategies are shown, and the first six clusters of each.

    Parameters
    ----------
    curves : mapping of str to ClusterCurves
        For each strategy the rounds, (R,), and by cluster, the largest first, the mean accuracy of
        its clients there, (R,), in [0, 1]; NaN where it has none.
    seed : int
        Whose run that is.

    Raises
    ------
    ValueError
        If there is no strategy, or accuracies have another shape or are not in [0, 1].
    """
    if not curves:
        raise ValueError("there is no strategy to draw")
    shown = {
        name: (rounds, {cluster: of_cluster[cluster] for cluster in list(of_cluster)[:_MOST_LINES]})
        for name, (rounds, of_cluster) in list(curves.items())[:_MOST_PANELS]
    }
    rows = math.ceil(len(shown) / _ACROSS)
    height = min(2.6, 7.6 / rows)
    figure = new_figure(f"Accuracy per cluster, seed {seed}", 1.0 + height * rows)
    panels = figure.subplots(
        rows, min(_ACROSS, len(shown)), sharex=True, sharey=True, squeeze=False
    ).ravel()
    values = [line for _, of_cluster in shown.values() for line in of_cluster.values()]
    for axes, (name, (rounds, of_cluster)) in zip(panels, shown.items(), strict=False):
        axes.set_title(wrapped(name, 26), loc="left", fontsize=LABEL_SIZE)
        axes.tick_params(labelsize=SMALL_SIZE)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
        percent_axis(axes.yaxis, [np.empty(0), *values])
        keep_spines(axes, "left", "bottom")
        for place, (cluster, line) in enumerate(sorted(of_cluster.items())):
            check_accuracies(f"cluster {cluster} of {name}", line, rounds.shape)
            axes.plot(rounds, line, ".-", color=task_colour(place), lw=1.5, ms=4)
        _label_ends(axes, of_cluster, height)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    for axes in panels[max(0, len(shown) - _ACROSS) : len(shown)]:  # the lowest of each column
        axes.tick_params(labelbottom=True)
    figure.supylabel("mean test accuracy", fontsize=LABEL_SIZE)
    figure.supxlabel(f"round\n{_note(curves)}", fontsize=SMALL_SIZE)
    return figure


def _note(curves: Mapping[str, ClusterCurves]) -> str:
    parts = ["the number beside a line is its cluster's"]
    if any(len(of_cluster) > _MOST_LINES for _, of_cluster in curves.values()):
        parts.append(f"of each strategy, the {_MOST_LINES} largest clusters")
    if len(curves) > _MOST_PANELS:
        parts.append(f"{_MOST_PANELS} of {len(curves)} strategies")
    return "; ".join(parts)


def _label_ends(
    axes: Axes, of_cluster: Mapping[int, NDArray[np.float64]], panel_height: float
) -> None:
    """Write each cluster's number beside the end of its line, in the line's colour."""
    low, high = axes.get_ylim()
    ends = {
        cluster: (place, (known[-1] - low) / (high - low))
        for place, (cluster, line) in enumerate(sorted(of_cluster.items()))
        if (known := line[np.isfinite(line)]).size
    }
    if not ends:
        return
    wanted = np.array([end for _, end in ends.values()])
    heights = spread(wanted, LINE_HEIGHT / (panel_height - 0.4))
    for (cluster, (place, _)), height in zip(ends.items(), heights, strict=True):
        axes.annotate(
            str(cluster),
            xy=(1.03, height),
            xycoords="axes fraction",
            va="center",
            fontsize=SMALL_SIZE,
            color=darker(task_colour(place)),
            annotation_clip=False,
        )
