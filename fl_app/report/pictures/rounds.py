"""Accuracy over the rounds, a line per strategy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    check_accuracies,
    keep_spines,
    label_axes,
    label_ends,
    legend_below,
    new_figure,
    percent_axis,
)
from fl_app.report.pictures.style import DASHED, MUTED, SMALL_SIZE, Style, strategy_styles

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]

_HEIGHT = 3.9


@dataclass(frozen=True)
class _Summary:
    """One strategy's curve over its seeds."""

    rounds: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    seeds: int

    @property
    def end(self) -> tuple[float, float]:
        """The last point that has a value; NaN when there is none."""
        known = np.flatnonzero(np.isfinite(self.mean))
        if known.size == 0:
            return math.nan, math.nan
        return float(self.rounds[known[-1]]), float(self.mean[known[-1]])


def rounds_figure(curves: Mapping[str, Curve]) -> Figure:
    """Draw the accuracy over the rounds: a line for the mean of the seeds, a band from min to max.

    Parameters
    ----------
    curves : mapping of str to Curve
        For each strategy the rounds, (R,), and the accuracy there, (S, R) for S seeds, in [0, 1].
        NaN is left out.
    """
    summaries = {name: _summary(name, *curve) for name, curve in curves.items()}
    styles = strategy_styles(summaries)
    figure = new_figure("Accuracy per round", _HEIGHT)
    axes = figure.add_subplot()
    handles = []
    for index, (name, summary) in enumerate(summaries.items()):
        if summary.seeds > 1:
            _draw_band(axes, summary, styles[name].colour)
        every = _stagger(index, len(summaries), len(summary.rounds))
        handles += axes.plot(
            summary.rounds, summary.mean, label=name, markevery=every, **_line_options(styles[name])
        )
    axes.set_title(_rounds_note(summaries), loc="left", fontsize=SMALL_SIZE, color=MUTED)
    label_axes(axes, "round", "mean test accuracy")
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    percent_axis(axes.yaxis, [value for s in summaries.values() for value in (s.low, s.high)])
    keep_spines(axes, "left", "bottom")
    rounds = np.concatenate([summary.rounds for summary in summaries.values()])
    if rounds.min() == rounds.max():
        axes.set_xlim(rounds[0] - 1, rounds[0] + 1)
        axes.set_xticks(rounds[:1])
    else:
        axes.margins(x=0.02)
    ends = {name: summary.end for name, summary in summaries.items()}
    if not label_ends(axes, ends, styles, _HEIGHT - 0.9):
        legend_below(figure, handles)
    return figure


def _draw_band(axes: Axes, summary: _Summary, colour: str) -> None:
    if len(summary.rounds) > 1:
        axes.fill_between(
            summary.rounds, summary.low, summary.high, color=colour, alpha=0.2, linewidth=0
        )
    else:
        # A band over a single round has no width.
        axes.vlines(summary.rounds, summary.low, summary.high, color=colour, alpha=0.3, lw=6)


def _summary(name: str, rounds: NDArray[np.int64], accuracy: NDArray[np.float64]) -> _Summary:
    check_accuracies(name, accuracy, (len(accuracy), len(rounds)))
    known = np.ma.masked_invalid(accuracy)
    mean, low, high = (
        part.filled(np.nan) for part in (known.mean(axis=0), known.min(axis=0), known.max(axis=0))
    )
    return _Summary(rounds, mean, low, high, len(accuracy))


def _rounds_note(summaries: Mapping[str, _Summary]) -> str:
    seeds = [summary.seeds for summary in summaries.values()]
    fewest, most = min(seeds), max(seeds)
    if most == 1:
        return "one seed"
    count = str(most) if fewest == most else f"{fewest} to {most}"
    return f"lines: mean of {count} seeds; bands: lowest to highest seed"


def _stagger(index: int, lines: int, rounds: int) -> tuple[int, int]:
    """Return the points of a line to mark: not those of the other lines, in case they are equal."""
    step = max(lines, rounds // 6)
    return (index * step // lines) % rounds, step


def _line_options(style: Style) -> dict[str, Any]:
    dashed = style.dashes == DASHED
    return {
        "color": style.colour,
        "linestyle": style.dashes,
        "linewidth": style.width,
        "marker": style.marker,
        # The line on top has the larger, open marker: a tie then looks like a ring around a dot.
        "markersize": 8.0 if dashed else 5.5,
        "markerfacecolor": "none" if dashed else style.colour,
        "markeredgecolor": style.colour if dashed else "white",
        "markeredgewidth": 1.2 if dashed else 0.7,
        # Narrow over wide, so that equal lines both show.
        "zorder": 4 - style.width / 4,
    }
