"""How accuracy is spread over the clients, a row of dots per strategy."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_accuracies,
    keep_spines,
    label_axes,
    new_figure,
    percent_axis,
)
from fl_app.report.pictures.style import INK, LABEL_SIZE, MUTED, SMALL_SIZE, strategy_styles


def clients_figure(accuracies: Mapping[str, NDArray[np.float64]]) -> Figure:
    """Draw how accuracy is spread over the clients, one row per strategy.

    Parameters
    ----------
    accuracies : mapping of str to NDArray[np.float64], shape (S, K)
        For each strategy the accuracy of each client in each seed, in [0, 1]. NaN stands for a
        client that was not tested: it gets no dot, and the row says how many there are.
    """
    styles = strategy_styles(accuracies)
    labels = ["\n".join(textwrap.wrap(name, 24)) for name in accuracies]
    lines = 1 + max(label.count("\n") for label in labels)
    row_height = max(0.42, 1.25 * LABEL_SIZE / 72 * lines + 0.06)
    figure = new_figure("Accuracy per client", 1.35 + row_height * len(labels))
    axes = figure.add_subplot()
    for row, (name, values) in enumerate(accuracies.items()):
        check_accuracies(name, values, (len(values), values.shape[-1]))
        known = values[np.isfinite(values)]
        if known.size:
            _draw_dots(axes, row, known, styles[name].colour)
        if known.size > 2:
            _draw_box(axes, row, known)
        _write_mean(axes, row, known, values.size - known.size)
    axes.annotate(
        "mean",
        xy=(1.02, 1),
        xycoords="axes fraction",
        va="bottom",
        xytext=(0, 4),
        textcoords="offset points",
        fontsize=SMALL_SIZE,
        color=MUTED,
        annotation_clip=False,
    )
    _finish_rows(axes, accuracies, labels)
    return figure


def _draw_dots(axes: Axes, row: int, known: NDArray[np.float64], colour: str) -> None:
    # The rank times the golden ratio is never near its neighbours' modulo 1: dots of about the same
    # accuracy lie apart, without a random draw.
    ranks = np.argsort(np.argsort(known, kind="stable"), kind="stable")
    jitter = (ranks * 0.6180339887498949 % 1 - 0.5) * 0.56 if known.size > 1 else np.zeros(1)
    area = float(np.clip(900 / known.size, 5, 16))
    axes.scatter(known, row + jitter, s=area, color=colour, alpha=0.65, lw=0, zorder=2)


def _draw_box(axes: Axes, row: int, known: NDArray[np.float64]) -> None:
    # A white rim keeps the box visible among dark dots. All dots are drawn, so whiskers would tell
    # nothing.
    rim = [withStroke(linewidth=3.0, foreground="white")]
    axes.boxplot(
        known,
        positions=[row],
        orientation="horizontal",
        widths=0.66,
        whis=(25, 75),
        showfliers=False,
        showcaps=False,
        manage_ticks=False,
        patch_artist=True,
        boxprops={"facecolor": "none", "edgecolor": INK, "linewidth": 1.0, "path_effects": rim},
        medianprops={"color": INK, "linewidth": 2.2, "path_effects": rim},
        zorder=3,
    )


def _write_mean(axes: Axes, row: int, known: NDArray[np.float64], untested: int) -> None:
    """Write the mean beside a row, where it is read far better than as a mark among the dots."""
    text = f"{100 * known.mean():.1f} %" if known.size else "–"
    text += f"\n{untested:,} not tested" if untested else ""
    axes.annotate(
        text,
        xy=(1.02, row),
        xycoords=("axes fraction", "data"),
        va="center",
        fontsize=SMALL_SIZE,
        color=INK,
        annotation_clip=False,
    )


def _finish_rows(
    axes: Axes, accuracies: Mapping[str, NDArray[np.float64]], labels: Sequence[str]
) -> None:
    seeds = max(len(values) for values in accuracies.values())
    dot = "one client" if seeds == 1 else "one client in one seed"
    note = f"dot: {dot}; box: quartiles and median"
    axes.set_title(note, loc="left", fontsize=SMALL_SIZE, color=MUTED)
    label_axes(axes, "test accuracy", "")
    axes.set_yticks(range(len(labels)), labels, fontsize=LABEL_SIZE, linespacing=1.05)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    percent_axis(axes.xaxis, accuracies.values())
    keep_spines(axes, "bottom")
