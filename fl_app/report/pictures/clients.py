"""A metric of every client, a row per strategy: a dot each, and the worst by name."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    Spec,
    check_scores,
    picture,
    rounded,
    score_axis,
    score_form,
    shortened,
)
from fl_app.report.pictures.style import FAINT, INK, LINE, MUTED, WIDTH, strategy_styles
from fl_core.metrics import OF_CLASSES, Metric

NAMED = 3  # of each strategy, those that are worst
MOST_DOTS = 6_000
"""Of more clients in all, bars show how many there are."""

# Points: of a dot, the largest that fits is taken; of all rows, so that they fit on a page; of a
# row's dots; of the quartiles below them; and between rows.
_DOTS = (5.5, 4.5, 3.6, 2.8, 2.0, 1.4)
_ROWS, _LEAST, _MOST = 470, 12, 90
_QUARTILES, _BETWEEN = 7, 4
_FEW = 10  # dots need no summary
_BARS, _LOWEST = 60, 20  # bars of a row, and the dots that it has beside them
_NAMES = 22  # letters of a name
_ACROSS = 0.95 * WIDTH
_NOT_SHOWN = ("x", "y", "client", "low", "colour")  # of a dot that somebody points at


class Tested(NamedTuple):
    """A client's score in a seed, NaN where it was not tested, and what to call it.

    `about` is shown of a dot that somebody points at.
    """

    score: float
    name: str
    about: Mapping[str, str] = {}
    seed: int = 0


def clients_figure(
    rows: Mapping[str, Sequence[Tested]],
    *,
    several_seeds: bool = False,
    metric: Metric = OF_CLASSES.main,
) -> Spec:
    """Draw a metric of every client, one row per strategy.

    Dots of about the same value are piled up, so that none hides another. Where even the smallest
    dots would be too many, bars show how many clients there are. The clients that are worst are
    hollow, and named below.

    Parameters
    ----------
    rows : mapping of str to sequence of Tested
        The clients of each strategy: one that was not tested gets no dot, and is counted.
    several_seeds : bool
        Whether a client may have a dot for each of several seeds.
    metric : Metric

    Raises
    ------
    ValueError
        If there is no strategy, or scores are not what the metric can be.
    """
    styles = strategy_styles(rows)
    tested = {name: _sorted(name, clients, metric) for name, clients in rows.items()}
    known = [np.array([one.score for one in clients]) for clients in tested.values()]
    across = score_axis("x", metric, known)
    low, high = across["scale"]["domain"]
    most = min(max(_ROWS / len(rows) - 2 * LINE - _QUARTILES - _BETWEEN, _LEAST), _MOST)
    size, levels = _levels([(one - low) / (high - low) for one in known], most)
    marks: list[Spec] = []
    heads: list[Spec] = []
    top = 0.0
    for (name, clients), values, own in zip(tested.items(), known, levels, strict=True):
        lines = textwrap.wrap(name, 40)
        head: Spec = {"name": "\n".join(lines), "mean": _mean(rows[name], metric)}
        head["head"] = top
        heads.append(head)
        top += LINE * len(lines)
        if not clients:
            top += _BETWEEN
            continue
        if size is None:
            drawn, height = _bars(clients, values, (low, high), most, metric), most
        else:
            drawn, height = _dots(clients, own, size, metric)
        for one in drawn:
            places: Spec = {key: round(top + one[key], 1) for key in ("y", "y2") if key in one}
            look: Spec = {"strategy": name, "colour": styles[name].colour}
            marks.append({**one, **places, **look})
        top += height
        if len(values) >= _FEW:
            lower, middle, upper = (rounded(v) for v in np.percentile(values, (25, 50, 75)))
            head |= {"lower": lower, "middle": middle, "upper": upper, "line": top + 4}
            top += _QUARTILES
        worst = [
            f"{shortened(one.name, _NAMES)} ({metric.with_sign(one.score)})"
            for one in (clients[::-1] if metric.lower_is_better else clients)[:NAMED]
        ]
        head |= {"lowest": f"{metric.extreme}: {'; '.join(worst)}", "foot": top}
        top += LINE + _BETWEEN
    whose = "one client in one seed" if several_seeds else "one client"
    note = f"dot: {whose}" if size else "bars: how many clients"
    note += f"; hollow: the {metric.extreme}; line: from quartile to quartile, with the median"
    return picture(
        f"{metric.heading} of each client",
        note,
        height=round(top),
        layer=[*_marks(marks, across, size or _DOTS[0], metric), *_texts(heads, across)],
        encoding={"y": {"field": "y", "type": "quantitative", "axis": None, "scale": None}},
        usermeta={"renderer": "canvas" if len(marks) > 1500 else "svg"},
    )


def _sorted(name: str, clients: Sequence[Tested], metric: Metric) -> list[Tested]:
    """Return those that were tested, the lowest score first."""
    known = sorted((c for c in clients if math.isfinite(c.score)), key=lambda c: c.score)
    check_scores(name, np.array([one.score for one in known]), (len(known),), metric)
    return known


def _levels(
    known: Sequence[NDArray[np.float64]], most: float
) -> tuple[float | None, list[NDArray[np.int64]]]:
    """Return the largest size of dots that fits, if any, and on which level each dot lies.

    Neighbours of a level may cover half of each other.
    """
    for size in _DOTS if sum(map(len, known)) <= MOST_DOTS else ():
        levels = [piled(places, 0.55 * size / _ACROSS, most // size) for places in known]
        if all((own >= 0).all() for own in levels):
            return size, levels
    return None, [np.empty(0, np.int64) for _ in known]


def piled(places: NDArray[np.float64], gap: float, most: float = math.inf) -> NDArray[np.int64]:
    """Return on which level each dot lies, from 0: the lowest on which it hides no other.

    Parameters
    ----------
    places : NDArray[np.float64], shape (n,)
        Where the dots are along the axis, ascending.
    gap : float
        How far apart dots of a level must be at least.
    most : float
        Where more levels are needed, the others are left at −1.

    Examples
    --------
    >>> piled(np.array([0.0, 0.0, 0.4, 1.0, 1.2]), 1.0).tolist()
    [0, 1, 2, 0, 1]
    """
    levels = np.full(len(places), -1)
    ends: list[float] = []  # where the next dot of each level may lie
    for dot, place in enumerate(places.tolist()):
        level = next((level for level, end in enumerate(ends) if place >= end), len(ends))
        if level >= most:
            break
        if level == len(ends):
            ends.append(0.0)
        ends[level] = place + gap
        levels[dot] = level
    return levels


def _dots(
    clients: Sequence[Tested], levels: NDArray[np.int64], size: float, metric: Metric
) -> tuple[list[Spec], float]:
    """Return a dot for each client, from the bottom of a row up, and how high the row is."""
    height = size * (int(levels.max()) + 1)
    worst = range(len(clients))[-NAMED:] if metric.lower_is_better else range(NAMED)
    dots = [
        {"x": rounded(one.score), "y": height - size * (level + 0.5)}
        | {"client": one.name, "low": rank in worst, **one.about}
        for rank, (one, level) in enumerate(zip(clients, levels.tolist(), strict=True))
    ]
    return dots, height


def _bars(
    clients: Sequence[Tested],
    values: NDArray[np.float64],
    limits: tuple[float, float],
    height: float,
    metric: Metric,
) -> list[Spec]:
    """Return how many clients reached what, and dots for those that are worst."""
    counts, edges = np.histogram(values, _BARS, limits)
    first = np.searchsorted(values, edges)
    bars = [
        {"x": rounded(edges[place]), "x2": rounded(edges[place + 1]), "count": int(counts[place])}
        | {"y": height * (1 - counts[place] / counts.max()), "y2": height}
        | {"between": f"{' to '.join(map(metric.shown, edges[place : place + 2]))}{metric.sign}"}
        | {"such": ", ".join(one.name for one in clients[first[place] : first[place + 1]][:NAMED])}
        for place in np.flatnonzero(counts).tolist()
    ]
    worst = slice(-_LOWEST, None) if metric.lower_is_better else slice(_LOWEST)
    places = (values[worst] - limits[0]) / (limits[1] - limits[0])
    levels = piled(places, 0.55 * _DOTS[0] / _ACROSS)
    dots, tall = _dots(clients[worst], levels, _DOTS[0], metric)
    return bars + [{**one, "y": one["y"] + height - tall} for one in dots]


def _mean(clients: Sequence[Tested], metric: Metric) -> str:
    """Return the mean over seeds, as tables have it: few of a seed may have been tested."""
    of_seed: dict[int, list[float]] = {}
    for one in clients:
        if math.isfinite(one.score):
            of_seed.setdefault(one.seed, []).append(one.score)
    untested = len(clients) - sum(map(len, of_seed.values()))
    means = [float(np.mean(own)) for own in of_seed.values()]
    mean = f"mean {metric.with_sign(float(np.mean(means)))}" if means else "–"
    return mean + (f", {untested:,} not tested" if untested else "")


def _marks(marks: Sequence[Spec], across: Spec, size: float, metric: Metric) -> list[Spec]:
    """Return the layers of bars, if any, and of dots."""
    colour = {"field": "colour", "type": "nominal", "scale": None}
    bars = [one for one in marks if "count" in one]
    dots = [one for one in marks if "count" not in one]
    about = dict.fromkeys(key for one in dots for key in one if key not in _NOT_SHOWN)
    layers: list[Spec] = [
        {
            "data": {"values": dots},
            "mark": {"type": "circle", "opacity": 1, "aria": False},
            "encoding": {
                "x": across,
                "size": {"condition": {"test": "datum.low", "value": max(size - 1, 1) ** 2}}
                | {"value": size**2},
                "fill": {"condition": {"test": "datum.low", "value": "white"}, **colour},
                "stroke": {"condition": {"test": "!datum.low", "value": "white"}, **colour},
                "strokeWidth": {"condition": {"test": "datum.low", "value": 1.3}, "value": 0.3},
                "tooltip": [
                    {"field": "client", "type": "nominal"},
                    {"field": "x", "type": "quantitative", "title": metric.title}
                    | {"format": score_form(metric)},
                    *({"field": key, "type": "nominal"} for key in about),
                ],
            },
        }
    ]
    if bars:
        shown = (
            *(("count", "clients"), ("between", metric.title), ("such", "such as")),
            ("strategy", "strategy"),
        )
        tooltip = [{"field": key, "type": "nominal", "title": title} for key, title in shown]
        places = {"x": across, "x2": {"field": "x2"}, "y2": {"field": "y2"}}
        layers.insert(
            0,
            {
                "data": {"values": bars},
                "mark": {"type": "rect", "aria": False},
                "encoding": {**places, "fill": colour, "tooltip": tooltip},
            },
        )
    return layers


def _texts(heads: Sequence[Spec], across: Spec) -> list[Spec]:
    """Return the layers of what is written and drawn above and below each row's dots."""
    quartiles = {
        "transform": [{"filter": "isValid(datum.line)"}],
        "mark": {"type": "rule", "strokeWidth": 2, "color": FAINT, "aria": False, "tooltip": None},
    }
    y = {"type": "quantitative", "axis": None, "scale": None}
    line = {**y, "field": "line"}
    median = {"type": "tick", "thickness": 1.6, "size": 5, "color": INK, "orient": "vertical"}
    layers: list[Spec] = [
        {
            **quartiles,
            "encoding": {"x": {**across, "field": "lower"}, "x2": {"field": "upper"}, "y": line},
        },
        {
            **quartiles,
            "mark": {**median, "aria": False, "tooltip": None},
            "encoding": {"x": {**across, "field": "middle"}, "y": line},
        },
    ]
    for field, at, x, look in (
        ("name", "head", 0, {"fontWeight": "bold", "limit": {"expr": "width - 90"}}),
        ("mean", "head", "width", {"align": "right"}),
        ("lowest", "foot", 0, {"color": MUTED, "limit": {"expr": "width"}}),
    ):
        mark = {"type": "text", "align": "left", "baseline": "top", "lineBreak": "\n", **look}
        layers.append(
            {
                "transform": [{"filter": f"isValid(datum.{field})"}],
                "mark": {**mark, "aria": False, "tooltip": None},
                "encoding": {
                    "x": {"value": x},
                    "y": {**y, "field": at},
                    "text": {"field": field, "type": "nominal"},
                },
            }
        )
    return [{**layer, "data": {"values": list(heads)}} for layer in layers]
