"""The accuracy of every client, a row per strategy: a dot each, and the lowest by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

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
# Points: of a dot, the largest that fits is taken; of a row's dots; of the lines of text above and
# below them; and between rows.
_DOTS = (4.6, 3.6, 2.8, 2.0, 1.4)
_MOST_HEIGHTS = (86, 50)  # of up to six strategies, and of more
_HEAD, _QUARTILES, _FOOT, _BETWEEN = 13, 7, 12, 11
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
    most = _MOST_HEIGHTS[len(accuracies) > 6]
    rows = {name: _Row.of(values, axes.get_xlim()) for name, values in accuracies.items()}
    # The same for all, or a row of smaller dots would look like one of fewer clients.
    size = next(
        (one for one in _DOTS if all(row.height(one) <= most for row in rows.values())), None
    )
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
    note = f"dot: {one}" if size else "bars: how many clients; dots: the lowest"
    note += "; line below: from quartile to quartile, with the median"
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

    def piled(self, size: float) -> NDArray[np.float64]:
        """Return how high the middle of each dot lies if those of a column are piled up."""
        low, high = self.limits
        columns = ((self.known - low) / (high - low) * _ACROSS / size).astype(int)  # ascending
        ranks = np.arange(len(columns)) - np.searchsorted(columns, columns)
        return np.asarray(size * (ranks + 0.5), np.float64)

    def height(self, size: float) -> float:
        """Return how high all dots are."""
        return float(self.piled(size).max() + size / 2) if self.known.size else 0.0


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
    """Draw a dot for each client, those with the lowest accuracy ringed; return where they end."""
    height = row.height(size)
    rims = [INK if rank < NAMED else "white" for rank in range(row.known.size)]
    widths = [1.0 if rank < NAMED else 0.3 for rank in range(row.known.size)]
    up = top + height - row.piled(size)
    axes.scatter(row.known, up, s=size**2, color=colour, edgecolors=rims, linewidths=widths)
    return top + height


def _draw_bars(axes: Axes, top: float, row: _Row, colour: str, height: float) -> float:
    """Draw how many clients reached what, and those that reached least; return where they end."""
    counts, edges = np.histogram(row.known, _BARS, row.limits)
    tall = -counts / counts.max() * height
    bottom = top + height
    axes.bar(edges[:-1], tall, np.diff(edges), bottom=bottom, align="edge", color=colour, lw=0)
    up = np.full(min(NAMED, row.known.size), bottom - _DOTS[2] / 2)
    axes.scatter(row.known[:NAMED], up, s=_DOTS[2] ** 2, color=colour, edgecolors=INK, zorder=3)
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
