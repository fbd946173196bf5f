"""The accuracy of every client, a row per strategy: a dot each, and the lowest by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fl_app.report.dot_layout import piled
from fl_app.report.pictures.figure import (
    check_accuracies,
    check_shape,
    keep_spines,
    label_axes,
    new_figure,
    percent_axis,
    short_name,
    wrapped,
)
from fl_app.report.pictures.style import (
    FAINT,
    INK,
    LABEL_SIZE,
    MUTED,
    SMALL_SIZE,
    WIDTH,
    strategy_styles,
)

NAMED = 3  # of each strategy, those with the lowest accuracy
_ACROSS = 72 * (WIDTH - 0.3)  # points of the axes
# Points: of a dot, the largest that fits is taken; of all rows, so that they fit on a page; of a
# row's dots, and of what is above and below them; and between rows.
_DOTS = (4.6, 3.6, 2.8, 2.0, 1.4)
_ROWS, _LEAST, _MOST = 565, 12, 86
_HEAD, _QUARTILES, _FOOT, _BETWEEN = 12.5, 6, 10.5, 5
_FEW = 10  # dots need no summary
_BARS = 100
_LONGEST_NAME = 22


def clients_figure(
    accuracies: Mapping[str, NDArray[np.float64]],
    names: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Figure:
    """Draw the accuracy of every client, one row per strategy.

    Dots of about the same accuracy are piled up, so that none hides another. Where even the
    smallest dots would be too many, bars show how many clients there are. The clients with the
    lowest accuracy are named below.

    Parameters
    ----------
    accuracies : mapping of str to NDArray[np.float64], shape (S, K)
        For each strategy the accuracy of each client in each seed, in [0, 1]. NaN stands for a
        client that was not tested: it gets no dot, and the row says how many there are.
    names : mapping of str to S sequences of K str, optional
        What to call each client in each seed; by default by their index.
    """
    styles = strategy_styles(accuracies)
    for name, values in accuracies.items():
        check_accuracies(name, values, (len(values), values.shape[-1]))
        if names is not None:
            check_shape(f"names of {name}", names[name], values.shape)
    figure = new_figure("Accuracy of each client", 1.0)
    axes = figure.add_subplot()
    percent_axis(axes.xaxis, accuracies.values())
    most = _ROWS / len(accuracies) - _HEAD - _QUARTILES - _FOOT - _BETWEEN
    most = min(max(most, _LEAST), _MOST)
    rows = {name: _Row.of(values, axes.get_xlim()) for name, values in accuracies.items()}
    # The same for all, or a row of smaller dots would look like one of fewer clients.
    fits = (one for one in _DOTS if all(row.height(one, most) <= most for row in rows.values()))
    size = next(fits, None)
    top = 0.0
    for name, row in rows.items():
        top = _write_head(axes, top, name, row)
        if not row.known.size:
            continue
        colour = styles[name].colour
        top = (
            _draw_bars(axes, top, row, colour, most)
            if size is None
            else _draw_dots(axes, top, row, colour, size)
        )
        top = _draw_quartiles(axes, top, row.known)
        _write_lowest(axes, top, row, None if names is None else names[name])
        top += _FOOT + _BETWEEN
    axes.set_ylim(top, 0)
    figure.set_figheight(figure.get_figheight() + top / 72)
    seeds = max(len(values) for values in accuracies.values())
    one = "one client" if seeds == 1 else "one client in one seed"
    note = f"dot: {one}" if size else "bars: how many clients"
    note += "; hollow: the lowest; line: from quartile to quartile, with the median"
    axes.set_title(note, loc="left", fontsize=SMALL_SIZE, color=MUTED)
    label_axes(axes, "test accuracy", "")
    axes.set_yticks([])
    keep_spines(axes, "bottom")
    return figure


@dataclass(frozen=True, eq=False)
class _Row:
    """A strategy's clients: accuracies, ascending, and where each is in points from the left."""

    values: NDArray[np.float64]
    order: NDArray[np.int64]
    known: NDArray[np.float64]
    limits: tuple[float, float]

    @classmethod
    def of(cls, values: NDArray[np.float64], limits: tuple[float, float]) -> _Row:
        order = np.argsort(values, axis=None, kind="stable")  # NaN come last
        return cls(values, order, np.ravel(values)[order[: np.isfinite(values).sum()]], limits)

    def levels(self, size: float, most: float = math.inf) -> NDArray[np.int64]:
        """Return the level of each dot; neighbours may cover half of each other."""
        low, high = self.limits
        places = (self.known - low) / (high - low) * _ACROSS
        return piled(places, 0.55 * size, most // size)

    def height(self, size: float, most: float) -> float:
        """Return how high all dots are; infinity if that is more than `most`."""
        if not self.known.size:
            return 0.0
        levels = self.levels(size, most)
        return math.inf if levels.min() < 0 else size * float(levels.max() + 1)


def _write_head(axes: Axes, top: float, name: str, row: _Row) -> float:
    """Write above a row what it is, and return where it begins."""
    untested = row.values.size - row.known.size
    mean = f"mean {100 * row.known.mean():.1f} %" if row.known.size else "–"
    mean += f", {untested:,} not tested" if untested else ""
    head = wrapped(name, 48)
    _write(axes, 0, top, head, fontsize=LABEL_SIZE, fontweight="bold")
    _write(axes, 1, top, mean, ha="right")
    return top + _HEAD * (1 + head.count("\n")) + (0 if row.known.size else _BETWEEN)


def _draw_dots(axes: Axes, top: float, row: _Row, colour: str, size: float) -> float:
    """Draw a dot for each client, those with the lowest accuracy hollow; return where they end."""
    levels = row.levels(size)
    bottom = top + size * float(levels.max() + 1)
    named = np.arange(row.known.size) < NAMED
    axes.scatter(
        row.known,
        bottom - size * (levels + 0.5),
        s=np.where(named, (size - 1) ** 2, size**2),
        c=np.where(named, "white", colour),
        edgecolors=np.where(named, colour, "white").tolist(),
        linewidths=np.where(named, 1.3, 0.3).tolist(),
    )
    return bottom


def _draw_bars(axes: Axes, top: float, row: _Row, colour: str, height: float) -> float:
    """Draw how many clients reached what, and those that reached least; return where they end."""
    counts, edges = np.histogram(row.known, _BARS, row.limits)
    tall = -counts / counts.max() * height
    bottom = top + height
    axes.bar(edges[:-1], tall, np.diff(edges), bottom=bottom, align="edge", color=colour, lw=0)
    up = np.full(min(NAMED, row.known.size), bottom - _DOTS[2] / 2)
    axes.scatter(row.known[:NAMED], up, s=_DOTS[2] ** 2, c="white", edgecolors=colour, zorder=3)
    return bottom


def _draw_quartiles(axes: Axes, top: float, known: NDArray[np.float64]) -> float:
    """Draw quartiles and median under the dots, where they hide none; return where they end."""
    if known.size < _FEW:
        return top
    lower, middle, upper = np.percentile(known, (25, 50, 75))
    place = top + _QUARTILES - 2
    axes.hlines(place, lower, upper, color=FAINT, lw=2)
    axes.vlines(middle, place - 2.2, place + 2.2, color=INK, lw=1.6, zorder=3)
    return top + _QUARTILES


def _write_lowest(axes: Axes, top: float, row: _Row, names: Sequence[Sequence[str]] | None) -> None:
    said = []
    for place in row.order[: min(NAMED, row.known.size)].tolist():
        seed, client = divmod(place, row.values.shape[1])
        name = f"client {client}" if names is None else names[seed][client]
        said.append(f"{_shortened(name)}: {100 * row.values[seed, client]:.1f} %")
    _write(axes, 0, top + 1, f"lowest: {'; '.join(said)}", color=MUTED)


def _shortened(name: str) -> str:
    """Return a name without its middle if it is long: what tells names apart is often the end."""
    half = _LONGEST_NAME // 2
    text = name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
    return short_name(text, 6 * _LONGEST_NAME)  # printable, if that takes more


def _write(axes: Axes, x: float, y: float, text: str, **options: Any) -> None:
    """Write text with its upper edge at `y`, from the left edge of the axes or to the right one."""
    defaults: dict[str, Any] = {"fontsize": SMALL_SIZE, "color": INK, "va": "top"}
    written = axes.text(x, y, text, transform=axes.get_yaxis_transform(), **(defaults | options))
    written.set_in_layout(False)  # or a long one would make the axes narrow
