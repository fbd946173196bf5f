"""Colours, sizes and the look of each strategy, the same in every picture."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import NamedTuple

# A paper shrinks 6 inches to 12 cm, that is to 79 %: the smallest text here ends up at 6.3 points.
# Lengths are in points, of which a pixel of a page is one.
WIDTH = 432
TITLE_SIZE, LABEL_SIZE, SMALL_SIZE = 11.5, 9.5, 8.0
LINE = 13  # of text, also on a page with its larger letters

INK, MUTED, FAINT, GRID = "#222222", "#5f5f5f", "#b0b0b0", "#e8e8e8"

# Okabe and Ito's colours, without the yellow that vanishes on white paper, then Tol's "muted" ones.
_CLUSTER_COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#332288", "#999933", "#882255", "#DDCC77"),
)
# Tol's "light" ones, so that no task looks like the cluster of the same number.
_TASK_COLOURS = (
    *("#77AADD", "#EE8866", "#EEDD88", "#FFAABB", "#99DDFF", "#44BB99", "#BBCC33", "#AAAA00"),
    "#DDDDDD",
)


class Style(NamedTuple):
    """The look of a strategy: a colour, a mark of Vega, dashes and a width."""

    colour: str
    mark: str
    dashes: tuple[float, ...]
    width: float


SOLID, DASHED, DOTTED = (1.0, 0.0), (5.0, 2.5), (1.5, 2.0)
# Baselines are neutral, so that the methods stand out. Lines are drawn from the widest to the
# narrowest: of equal curves, such as those of optimum and rcc-pfl, all can be seen.
_STYLES = {
    "rcc-pfl": Style("#D55E00", "circle", SOLID, 3.4),
    "optimum": Style("#000000", "circle", DASHED, 1.2),
    "single": Style("#666666", "square", SOLID, 1.5),
    "random": Style("#858585", "cross", DOTTED, 1.4),
    "local": Style("#9c9c9c", "triangle-down", DASHED, 1.3),
    "mt-hfl": Style("#0072B2", "diamond", SOLID, 2.6),
    "ifca": Style("#56B4E9", "triangle-up", SOLID, 3.0),
    "ifca-pfl": Style("#009E73", "cross", DASHED, 1.6),
    "fedhc": Style("#CC79A7", "triangle-left", SOLID, 2.2),
    "flt": Style("#E69F00", "triangle-right", SOLID, 1.8),
}
_SPARE = tuple(
    zip(
        (
            *("#332288", "#882255", "#117733", "#999933"),
            *("#44AA99", "#AA4499", "#661100", "#6699CC"),
        ),
        (
            *("diamond", "square", "triangle-down", "triangle-up"),
            *("triangle-left", "triangle-right", "cross", "circle"),
        ),
        (2.9, 2.7, 2.5, 2.3, 2.1, 1.9, 1.7, 1.5),
        strict=True,
    )
)


def strategy_styles(names: Collection[str]) -> dict[str, Style]:
    """Return the look of each strategy.

    An unknown name hashes to a spare colour and takes the next free one: its colour is the same in
    all pictures unless two names clash.
    """
    if not names:
        raise ValueError("there is no strategy to draw")
    styles = {name: _STYLES[name] for name in names if name in _STYLES}
    taken: set[int] = set()
    spare = len(_SPARE)
    for name in sorted(set(names) - set(_STYLES)):
        place = zlib.crc32(name.encode(errors="replace")) % spare
        # After a full lap the colours come again with other dashes and other marks.
        lap = len(taken) // spare
        while place in taken:
            place = lap * spare + (place + 1) % spare
        taken.add(place)
        colour, _, width = _SPARE[place % spare]
        mark = _SPARE[(place + lap) % spare][1]
        styles[name] = Style(colour, mark, (SOLID, DASHED, DOTTED)[lap % 3], width)
    return {name: styles[name] for name in names}


def cluster_colour(cluster: int) -> str:
    """Return the colour of a cluster, the same in all pictures, repeated after ten."""
    return _CLUSTER_COLOURS[cluster % len(_CLUSTER_COLOURS)]


def cluster_dashes(cluster: int) -> tuple[float, ...]:
    """Return the dashes of a cluster's line, which differ where colours repeat."""
    return (SOLID, DASHED, DOTTED)[cluster // len(_CLUSTER_COLOURS) % 3]


def task_colour(task: int) -> str:
    """Return the colour of a task, repeated after nine."""
    return _TASK_COLOURS[task % len(_TASK_COLOURS)]
