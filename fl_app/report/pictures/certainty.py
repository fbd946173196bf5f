"""How often each pair of clients lands together when their data are drawn again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_shape,
    index_ticks,
    keep_spines,
    label_axes,
    new_figure,
    runs_of_equals,
    short_name,
)
from fl_app.report.pictures.style import INK, MUTED, SMALL_SIZE

MOST_SINGLE = 60
"""More clients than this are drawn as means over clusters."""

_LONGEST_NAME = 16  # characters of a client's name
_MOST_WRITTEN = 12  # clusters whose numbers are written into the squares


def certainty_figure(
    together: NDArray[np.float64],
    clusters: Sequence[int],
    certainty: Sequence[float],
    names: Sequence[str],
) -> Figure:
    """Draw in how many resamples each pair of clients lands together, ordered by cluster.

    In a cluster the surest clients come first; beside the squares is how sure each is. Of more
    than `MOST_SINGLE` clients, the means over clusters are drawn.

    Parameters
    ----------
    together : NDArray[np.float64], shape (K, K)
        Shares, in [0, 1].
    clusters : sequence of K int
    certainty : sequence of K float
        In how many resamples each client lands with its own cluster.
    names : sequence of K str
    """
    count = len(clusters)
    check_shape("together", together, (count, count))
    check_shape("certainty", np.asarray(certainty), (count,))
    order = sorted(range(count), key=lambda c: (clusters[c], -certainty[c], c))
    figure = new_figure("Share of resamples in which each pair is together", 5.2)
    # Not square: names may be long, and all three must fit.
    axes, beside, scale = figure.subplots(1, 3, width_ratios=(10, 1.6, 0.4))
    if count > MOST_SINGLE:
        numbers, members = np.unique(clusters, return_inverse=True)
        table = _means(together, members)
        labels = [f"{n} ({(members == i).sum()})" for i, n in enumerate(numbers.tolist())]
        sure = [float(np.mean(np.array(certainty)[members == i])) for i in range(len(numbers))]
        what = "cluster (its clients)"
    else:
        table = together[np.ix_(order, order)]
        labels = [short_name(names[client], _LONGEST_NAME) for client in order]
        sure = [certainty[client] for client in order]
        what = "client, by cluster"
    image = axes.imshow(table, cmap="YlGnBu", vmin=0, vmax=1, aspect="auto")
    index_ticks(axes.xaxis, labels, inches=4.0)
    index_ticks(axes.yaxis, labels, inches=4.0)
    label_axes(axes, what, "")
    if count > MOST_SINGLE:
        if len(table) <= _MOST_WRITTEN:
            _write(axes, table)
    else:
        _frame(axes, [clusters[client] for client in order])
    _draw_certainty(beside, sure, axes.get_ylim())
    bar = figure.colorbar(image, cax=scale)
    bar.ax.tick_params(labelsize=SMALL_SIZE)
    return figure


def _means(together: NDArray[np.float64], members: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean share of two different clients of each two clusters, shape (C, C)."""
    sizes = np.bincount(members)
    own = np.eye(len(sizes))[members]
    sums = own.T @ together @ own - np.diag(own.T @ together.diagonal())
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    found: NDArray[np.float64] = np.divide(sums, pairs, out=np.ones_like(sums), where=pairs > 0)
    return found


def _write(axes: Axes, table: NDArray[np.float64]) -> None:
    for row, values in enumerate(table):
        for column, value in enumerate(values):
            colour = "white" if value > 0.55 else INK
            axes.text(
                *(column, row, f"{100 * value:.0f}"),
                ha="center",
                va="center",
                fontsize=SMALL_SIZE,
                color=colour,
            )


def _frame(axes: Axes, values: Sequence[int]) -> None:
    for _, start, stop in runs_of_equals(values):
        corner, side = (start - 0.5, start - 0.5), stop - start
        for colour, width in (("white", 3.2), (INK, 1.6)):  # on dark and on light cells alike
            axes.add_patch(
                Rectangle(corner, side, side, fill=False, ec=colour, lw=width, clip_on=False)
            )


def _draw_certainty(beside: Axes, sure: Sequence[float], limits: tuple[float, float]) -> None:
    """Draw how sure each row is, as bars beside the squares."""
    beside.barh(range(len(sure)), sure, height=0.8, color=MUTED)
    beside.set_xlim(0, 1)
    beside.set_ylim(limits)
    beside.set_xticks([0, 1], ["0", "1"], fontsize=SMALL_SIZE)
    beside.set_xlabel("certainty", fontsize=SMALL_SIZE)
    beside.tick_params(axis="y", left=False, labelleft=False)
    keep_spines(beside, "bottom")
