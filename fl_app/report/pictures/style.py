"""Colours, sizes and the look of each strategy, the same in every picture."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import NamedTuple

from matplotlib.colors import to_hex, to_rgb

# A paper shrinks 6 inches to 12 cm, that is to 79 %: the smallest text here ends up at 6.3 points.
WIDTH = 6.0
TITLE_SIZE, LABEL_SIZE, SMALL_SIZE = 11.5, 9.5, 8.0
LINE_HEIGHT = 1.2 * SMALL_SIZE / 72  # inches that one line of small text takes

INK, MUTED, FAINT, GRID = "#222222", "#5f5f5f", "#b0b0b0", "#e8e8e8"

# Okabe and Ito's colours, without the yellow that vanishes on white paper, then Tol's "muted" ones.
_TASK_COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#332288", "#999933", "#882255", "#DDCC77"),
)


class Style(NamedTuple):
    """How a strategy looks in every picture."""

    colour: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]]
    width: float


SOLID, DASHED, DOTTED = "solid", (0, (4.0, 2.0)), (0, (1.0, 1.5))
# Baselines are neutral, so that the methods stand out. Pairs that often give the very same curve
# (optimum and rcc-pfl, ifca and ifca-pfl) are a wide solid line and a narrow dashed one over it.
_STYLES = {
    "rcc-pfl": Style("#D55E00", "o", SOLID, 3.4),
    "optimum": Style("#000000", "o", DASHED, 1.2),
    "single": Style("#666666", "s", SOLID, 1.5),
    "random": Style("#858585", "X", DOTTED, 1.5),
    "local": Style("#9c9c9c", "v", SOLID, 1.5),
    "mt-hfl": Style("#0072B2", "D", SOLID, 2.0),
    "ifca": Style("#56B4E9", "^", SOLID, 3.0),
    "ifca-pfl": Style("#009E73", "P", DASHED, 1.5),
    "fedhc": Style("#CC79A7", "<", SOLID, 2.0),
    "flt": Style("#E69F00", ">", SOLID, 2.0),
}
_SPARE_COLOURS = (
    *("#332288", "#882255", "#117733", "#999933"),
    *("#44AA99", "#AA4499", "#661100", "#6699CC"),
)
_SPARE_MARKERS = "Dsv^<>Ph"


def strategy_styles(names: Collection[str]) -> dict[str, Style]:
    """Give each strategy its look.

    A name we do not know starts at a place of its own in the spare colours and takes the next one
    that is free, so it keeps its colour from picture to picture unless two names clash.

    Raises
    ------
    ValueError
        If there are no names.
    """
    if not names:
        raise ValueError("there is no strategy to draw")
    styles = {name: _STYLES[name] for name in names if name in _STYLES}
    taken: set[int] = set()
    spare = len(_SPARE_COLOURS)
    for name in sorted(set(names) - set(_STYLES)):
        place = zlib.crc32(name.encode()) % spare
        # After a full lap the colours come again with other dashes.
        lap = len(taken) // spare
        while place in taken:
            place = lap * spare + (place + 1) % spare
        taken.add(place)
        colour, marker = _SPARE_COLOURS[place % spare], _SPARE_MARKERS[place % spare]
        styles[name] = Style(colour, marker, (SOLID, DASHED, DOTTED)[lap % 3], 1.8)
    return styles


def task_colour(task: int) -> str:
    """Return the colour of a task; after ten they come again."""
    return _TASK_COLOURS[task % len(_TASK_COLOURS)]


def darker(colour: str) -> str:
    """Return the colour dark enough for small text on white."""
    red, green, blue = to_rgb(colour)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    share = min(1.0, 0.42 / max(luminance, 1e-6))
    return to_hex((red * share, green * share, blue * share))
