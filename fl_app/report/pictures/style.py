"""Colours, sizes and the look of each strategy, the same in every picture."""

import zlib
from collections.abc import Collection
from typing import NamedTuple

# A paper shrinks 6 inches to 12 cm, that is to 79 %: the smallest text here ends up at 6.3 points.
# Lengths are in points, of which a pixel of a page is one.
WIDTH = 432
TITLE_SIZE, LABEL_SIZE, SMALL_SIZE = 11.5, 9.5, 8.0

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


SOLID, DASHED, DOTTED, MIXED = (1.0, 0.0), (5.0, 2.5), (1.5, 2.0), (6.0, 2.0, 1.5, 2.0)
_DASHES = (SOLID, DASHED, DOTTED, MIXED)
_MARKS = (
    *("circle", "diamond", "square", "triangle-up"),
    *("triangle-down", "cross", "triangle-left", "triangle-right"),
)
# Okabe and Ito's without the yellow, then those of Tol's that are farthest from these and from each
# other, also for people who see no red or no green (OKLab, simulated after Machado et al., 2009).
_COLOURS = (
    *("#D55E00", "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#E69F00"),
    *("#332288", "#661100", "#88CCEE", "#AA4499", "#882255", "#CC3311"),
)
# The twelve that are compared most have a colour to themselves; later ones are dashed.
_COLOURED = (
    *("rcc-pfl", "mt-hfl", "ifca", "ifca-pfl", "fedhc", "flt"),
    *("fedkin", "ditto", "cfl", "pacfl", "fedsem", "fedprox"),
    *("fedrep", "fedper", "fedbn", "fl-hc", "fedclust", "flt-graph", "pca-km-hc"),
    *("apfl", "pfedme", "scaffold", "fedgroup", "fedavg-ft", "cfl-stable", "fedsem-flt"),
    *("ocfl", "fedamp", "lcfed", "fedem", "fedrc"),
)
_BETWEEN = " · "  # stands between a strategy and its run, if several runs are compared


def _coloured(place: int) -> Style:
    """Return the look of the strategy at a place; of two, the earlier one's line is wider."""
    lap, at = divmod(place, len(_COLOURS))
    mark, dashes = _MARKS[place % len(_MARKS)], _DASHES[lap % len(_DASHES)]
    return Style(_COLOURS[at], mark, dashes, round(3.4 - 0.15 * at, 2))


# Baselines are neutral, so that the methods stand out. Lines are drawn from the widest to the
# narrowest: of equal curves, such as those of optimum and rcc-pfl, all can be seen.
_STYLES = {
    **{name: _coloured(place) for place, name in enumerate(_COLOURED)},
    "optimum": Style("#000000", "circle", DASHED, 1.2),
    "single": Style("#666666", "square", SOLID, 1.5),
    "fedavg": Style("#666666", "diamond", MIXED, 1.5),
    "random": Style("#858585", "cross", DOTTED, 1.4),
    "local": Style("#9c9c9c", "triangle-down", DASHED, 1.3),
}


def strategy_styles(names: Collection[str]) -> dict[str, Style]:
    """Return the look of each strategy; of several runs, "STRATEGY · RUN" has that of STRATEGY.

    A user-defined strategy takes a colour that no other of these has, if there is one.
    """
    if not names:
        raise ValueError("there is no strategy to draw")
    of_run = {name: name.partition(_BETWEEN) for name in names}
    bases = dict.fromkeys(base for base, _, _ in of_run.values())
    styles = {base: _STYLES[base] for base in bases if base in _STYLES}
    for base in sorted({*bases} - {*_STYLES}):
        place = zlib.crc32(base.encode(errors="replace")) % len(_COLOURS)
        laps = (lap * len(_COLOURS) for lap in range(len(_DASHES)))
        looks = [
            _coloured(lap + (place + at) % len(_COLOURS))
            for lap in laps
            for at in range(len(_COLOURS))
        ]
        colours, taken = {one.colour for one in styles.values()}, {*styles.values()}
        styles[base] = min(looks, key=lambda look: (look in taken, look.colour in colours))
    runs = list(dict.fromkeys(run for _, _, run in of_run.values()))
    return {name: _of_run(styles[base], runs.index(run)) for name, (base, _, run) in of_run.items()}


def _of_run(look: Style, number: int) -> Style:
    """Return the look of a strategy in one of several runs, with its colour."""
    if not number:
        return look
    mark = _MARKS[(_MARKS.index(look.mark) + number) % len(_MARKS)]
    dashes = _DASHES[(_DASHES.index(look.dashes) + number) % len(_DASHES)]
    return look._replace(mark=mark, dashes=dashes)


def cluster_colour(cluster: int) -> str:
    """Return the colour of a cluster, the same in all pictures, repeated after ten."""
    return _CLUSTER_COLOURS[cluster % len(_CLUSTER_COLOURS)]


def task_colour(task: int) -> str:
    """Return the colour of a task, repeated after nine."""
    return _TASK_COLOURS[task % len(_TASK_COLOURS)]
