"""What the pictures share: the figure, its axes and legend, the checks and the file."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from fl_app.report.pictures import style
from fl_core.files import replacing
from fl_core.text import printable

_TITLE_LETTERS = 60  # that are as wide as a figure
# What would differ from day to day, or with the version of matplotlib.
_UNSAID = {
    "png": ("Software",),
    "pdf": ("Creator", "Producer", "CreationDate"),
    "svg": ("Creator", "Date"),
}


def new_figure(title: str, height: float) -> Figure:
    """Return a figure as wide as all others, and as high as told, in inches.

    A title that is wider is broken into lines, for which the figure is higher.
    """
    lines = textwrap.wrap(title, _TITLE_LETTERS) or [""]
    height += (len(lines) - 1) * 1.2 * style.TITLE_SIZE / 72
    figure = Figure(figsize=(style.WIDTH, height), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(
        "\n".join(lines),
        x=0.01,
        ha="left",
        fontsize=style.TITLE_SIZE,
        fontweight="bold",
        color=style.INK,
    )
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write what the path's ending says, PNG, PDF or SVG, the same bytes each time; return it."""
    kind = path.suffix.removeprefix(".")
    with replacing(path) as partial, rc_context({"svg.hashsalt": "fedkin"}):
        figure.savefig(partial, format=kind, metadata=dict.fromkeys(_UNSAID[kind]))
    return path


def runs_of_equals(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (value, start, stop) of each run of equal values."""
    runs, start = [], 0
    for value, members in itertools.groupby(values):
        stop = start + sum(1 for _ in members)
        runs.append((value, start, stop))
        start = stop
    return runs


def spread(wanted: NDArray[np.float64], gap: float) -> NDArray[np.float64]:
    """Move positions in [0, 1] as little as possible until neighbours are a gap apart."""
    order = np.argsort(wanted, kind="stable")
    steps = gap * np.arange(len(wanted))
    # With the wanted gaps taken off, "far enough apart" is "not decreasing".
    placed = np.clip(isotonic_regression(wanted[order] - steps).x, 0, max(0, 1 - steps[-1])) + steps
    heights = np.empty_like(wanted)
    heights[order] = placed
    return heights


def index_ticks(axis: Axis, labels: Sequence[object], inches: float) -> None:
    """Label as many of the cells along an axis as are legible, from the first one on."""
    texts = [str(label) for label in labels]
    room = inches / len(texts)
    # Digits and letters are about 0.62 of the font size wide.
    width = (0.62 * max(map(len, texts)) + 0.3) * style.SMALL_SIZE / 72
    flat = isinstance(axis, XAxis) and width <= room
    step = 1 if flat else math.ceil(0.9 * style.LINE_HEIGHT / room)
    rotation = 90 if isinstance(axis, XAxis) and not flat else 0
    axis.set_ticks(
        range(0, len(texts), step), texts[::step], fontsize=style.SMALL_SIZE, rotation=rotation
    )


def percent_axis(axis: Axis, groups: Iterable[NDArray[Any]]) -> None:
    """Show fractions as percent, over the range of the data and at least ten points."""
    known = np.concatenate([np.ravel(group) for group in groups])
    known = known[np.isfinite(known)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    widen = max(0.0, 0.1 - (high - low)) / 2
    pad = 0.03 * max(high - low, 0.1)
    # A little beyond 0 and 100 %, so that dots there are not cut.
    low, high = max(low - widen - pad, -0.02), min(high + widen + pad, 1.02)
    if isinstance(axis, XAxis):
        axis.axes.set_xlim(low, high)
    else:
        axis.axes.set_ylim(low, high)
    # At least ten points in at most eight steps of 2, 5 or 10: the ticks are whole percents.
    axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    axis.grid(color=style.GRID, lw=0.8)
    axis.axes.set_axisbelow(True)


def wrapped(text: str, letters: int) -> str:
    """Return a title in lines of at most so many letters, as matplotlib shows it."""
    lines = textwrap.wrap(printable(text), letters)
    return "\n".join(lines).replace("$", r"\$")


def label_axes(axes: Axes, across: str, up: str) -> None:
    """Name both axes."""
    axes.set_xlabel(across, fontsize=style.LABEL_SIZE)
    axes.set_ylabel(up, fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.SMALL_SIZE)


def short_name(name: str, longest: int) -> str:
    """Return a name of at most so many characters, as matplotlib shows it."""
    name = printable(name)
    shown = name if len(name) <= longest else name[: longest - 1] + "…"
    return shown.replace("$", r"\$")  # or matplotlib would read a formula


def keep_spines(axes: Axes, *sides: str) -> None:
    """Show only these sides of the frame, and mute them."""
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(style.MUTED)


def label_ends(
    axes: Axes,
    ends: Mapping[str, tuple[float, float]],
    styles: Mapping[str, style.Style],
    inches: float,
    most_lines: float = 2,
) -> bool:
    """Write each name to the right of the axes, which are so high, with a leader to its point.

    False, and nothing is written, if names are too long, points unknown, or names would have to
    stand more than `most_lines` lines of text from their points.
    """
    low, high = axes.get_ylim()
    gap = style.LINE_HEIGHT * 1.1 / inches
    wanted = (np.array([end[1] for end in ends.values()]) - low) / (high - low)
    if max(map(len, ends)) > 20 or not np.isfinite(wanted).all() or len(ends) * gap > 1:
        return False
    heights = spread(wanted, gap)
    if np.abs(heights - wanted).max() > most_lines * gap:
        return False
    for (name, end), height in zip(ends.items(), heights, strict=True):
        axes.annotate(
            name,
            xy=end,
            xytext=(1.04, height),
            textcoords="axes fraction",
            va="center",
            fontsize=style.SMALL_SIZE + 0.5,
            color=style.darker(styles[name].colour),
            arrowprops={
                "arrowstyle": "-",
                "color": style.FAINT,
                "lw": 0.8,
                "shrinkA": 1,
                "shrinkB": 5,
            },
            annotation_clip=False,
        )
    return True


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """Put a legend under everything else, in as few rows as fit, and make the figure higher."""
    labels = ["\n".join(textwrap.wrap(str(handle.get_label()), 60)) for handle in handles]
    for rows in range(1, len(labels) + 1):
        legend = figure.legend(
            handles=list(handles),
            labels=labels,
            loc="outside lower center",
            ncols=math.ceil(len(labels) / rows),
            fontsize=style.SMALL_SIZE,
            frameon=False,
            handlelength=2.4,
        )
        size = legend.get_window_extent()
        if size.width <= figure.bbox.width or rows == len(labels):
            figure.set_figheight(figure.get_figheight() + size.height / figure.dpi)
            return
        legend.remove()


def check_shape(name: str, values: ArrayLike, shape: tuple[int, ...]) -> None:
    """Raise a ValueError that names `values` if they have another shape."""
    if np.shape(values) != shape:
        raise ValueError(f"{name} has shape {np.shape(values)}, not {shape}")


def check_accuracies(name: str, values: NDArray[np.float64], shape: tuple[int, ...]) -> None:
    """Raise a ValueError if a strategy's accuracies have another shape or are not in [0, 1]."""
    check_shape(f"accuracy of {name}", values, shape)
    known = values[np.isfinite(values)]
    if known.size and (known.min() < 0 or known.max() > 1):
        raise ValueError(f"accuracy of {name} is not in [0, 1]: {known.min()} to {known.max()}")
