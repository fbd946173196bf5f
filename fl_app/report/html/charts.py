"""The interactive pictures of a report, as Vega-Lite specifications.

Names of clients and strategies are values in their data, never parts of an expression. Nothing
depends on the width: `report.js` sets it to that of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.html.reading import Curve, Run
from fl_app.report.piles import piled

Spec = dict[str, Any]

MOST_DOTS = 6_000  # on a page: more become bars
MOST_ROWS = 40  # strategies of a picture of clients
NAMED = 3  # of each strategy: the clients with the lowest accuracy
_STACKS = 90  # dots that fit beside each other
_BARS = 60
_ROOM = 24  # pixels of a row for its name and, below the dots, for the quartiles
_DOT = 6.5  # pixels, at most
_TALLEST = 150  # pixels of a row's dots

_INK, _MUTED, _FAINT, _GRID = "#222222", "#5f5f5f", "#b0b0b0", "#ececec"
_CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": _FAINT,
        "tickColor": _FAINT,
        "gridColor": _GRID,
        "labelColor": _MUTED,
        "titleColor": _MUTED,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titlePadding": 8,
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": _INK,
        "labelFontSize": 12,
        "symbolSize": 120,
    },
    "text": {"fontSize": 12, "color": _INK},
}
_PERCENT = {"format": ".0%"}


def figure(description: str, height: int, layers: Sequence[Spec], **others: Any) -> Spec:
    """Return a specification of layers over each other."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": 4,
        "config": _CONFIG,
        "layer": list(layers),
        **others,
    }


def curves_chart(curves: Mapping[str, Curve]) -> Spec | None:
    """Return the accuracy by round: the mean over seeds, and a band from lowest to highest."""
    rows: list[Spec] = []
    looks = _looks(curves)
    for series, (rounds, accuracy) in curves.items():
        for place, number in enumerate(rounds.tolist()):
            known = accuracy[np.isfinite(accuracy[:, place]), place]
            if known.size:
                low, high = _rounded(known.min()), _rounded(known.max())
                seeds = f"{100 * low:.1f} to {100 * high:.1f} %, {known.size} seeds"
                rows.append(
                    {
                        "series": series,
                        "round": number,
                        "mean": _rounded(known.mean()),
                        "low": low,
                        "high": high,
                        "seeds": seeds if known.size > 1 else "one seed",
                        "width": looks[series][2],
                        "size": 60 if looks[series][2] > 2.5 else 26,
                    }
                )
    if not rows:
        return None
    low, high = _range([row["low"] for row in rows] + [row["high"] for row in rows])
    across: Spec = {
        "field": "round",
        "type": "quantitative",
        "title": "round",
        "axis": {"grid": False, "tickMinStep": 1, "format": "d"},
        "scale": {"nice": False, "zero": False, "padding": 8},
    }
    up: Spec = {
        "field": "mean",
        "type": "quantitative",
        "title": "mean test accuracy",
        "axis": {**_PERCENT, "tickCount": 6},
        "scale": {"domain": [low, high], "nice": False},
    }
    shown: Spec = {"condition": {"param": "chosen", "value": 1, "empty": True}, "value": 0.12}
    domain = list(curves)
    colour: Spec = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": domain, "range": [looks[name][0] for name in domain]},
        "legend": {"symbolOpacity": 1, "symbolType": "stroke"},
    }
    layers: list[Spec] = []
    if any(row["high"] > row["low"] for row in rows):
        layers.append(
            {
                "mark": {"type": "area", "aria": False, "tooltip": None},
                "encoding": {
                    "x": across,
                    "y": {**up, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                    "opacity": {**shown, "condition": {**shown["condition"], "value": 0.15}}
                    | {"value": 0.03},
                },
            }
        )
    layers += [
        {
            "name": "lines",
            "params": [
                {
                    "name": "chosen",
                    "select": {"type": "point", "fields": ["series"]},
                    "bind": "legend",
                }
            ],
            "mark": {"type": "line", "aria": False, "strokeCap": "round", "strokeJoin": "round"},
            "encoding": {
                "x": across,
                "y": up,
                "color": colour,
                "opacity": shown,
                "strokeDash": {
                    "field": "series",
                    "type": "nominal",
                    "scale": {"domain": domain, "range": [looks[name][1] for name in domain]},
                },
                "strokeWidth": {"field": "width", "type": "quantitative", "scale": None},
            },
        },
        {
            "mark": {"type": "point", "filled": True, "aria": False},
            "encoding": {
                "x": across,
                "y": up,
                "color": colour,
                "opacity": shown,
                "size": {"field": "size", "type": "quantitative", "scale": None},
                "tooltip": [
                    {"field": "series", "title": "strategy"},
                    {"field": "round", "title": "round"},
                    {"field": "mean", "title": "accuracy", "format": ".1%"},
                    {"field": "seeds", "title": "over seeds"},
                ],
            },
        },
    ]
    text = f"Test accuracy over the rounds of {', '.join(domain[:6])}"
    return figure(text, 340, layers, data={"values": rows})


def clients_chart(rows: Mapping[str, Sequence[Run]]) -> Spec | None:
    """Return the final accuracy of every client: a dot each, or bars where they are too many.

    Parameters
    ----------
    rows : mapping of sequences of Run
        The runs of each row, by its name, from top to bottom.
    """
    shown = {
        name: runs
        for name, runs in rows.items()
        if any(np.isfinite(run.accuracies).any() for run in runs)
    }
    shown = dict(list(shown.items())[:MOST_ROWS])
    if not shown:
        return None
    values = np.concatenate([run.accuracies for runs in shown.values() for run in runs])
    low, high = _range(values[np.isfinite(values)].tolist())
    many = int(np.isfinite(values).sum()) > MOST_DOTS
    several = len({run.seed for runs in shown.values() for run in runs}) > 1
    looks = _looks(shown)
    data: list[Spec] = []
    names: list[Spec] = []
    top = 0.0
    for name, runs in shown.items():
        dots = [
            (float(run.accuracies[client]), run, int(client))
            for run in runs
            for client in np.flatnonzero(np.isfinite(run.accuracies))
        ]
        if not dots:
            continue
        dots.sort(key=lambda one: (one[0], one[1].seed, one[2]))
        known = np.array([one[0] for one in dots])
        found, height = (
            _bars(dots, low, high, several) if many else _stacks(dots, low, high, several)
        )
        top += _ROOM
        common = {"row": name, "colour": looks[name][0]}
        data += [{**common, **one, "up": top + one["up"], "to": top + one["to"]} for one in found]
        mean = f"{name} · mean {100 * known.mean():.1f} %"
        names.append({"row": mean, "up": top - 12, "middle": _rounded(np.median(known))})
        quartiles = np.percentile(known, (25, 75)) if known.size >= 10 else (np.nan, np.nan)
        if known.size >= 10:
            names[-1] |= {
                "lower": _rounded(quartiles[0]),
                "upper": _rounded(quartiles[1]),
                "line": top + height + 5,
            }
        top += height + 14
    return _rows_of_clients(data, names, (low, high), top)


def _rows_of_clients(
    data: list[Spec], names: list[Spec], limits: tuple[float, float], top: float
) -> Spec:
    across: Spec = {
        "field": "accuracy",
        "type": "quantitative",
        "title": "test accuracy",
        "axis": {**_PERCENT, "tickCount": 6},
        "scale": {"domain": list(limits), "nice": False},
    }
    up: Spec = {
        "field": "up",
        "type": "quantitative",
        "axis": None,
        "scale": {"domain": [0, top], "reverse": True, "nice": False},
    }
    colour: Spec = {"field": "colour", "type": "nominal", "scale": None}
    tooltip = [
        {"field": "client", "type": "nominal"},
        {"field": "accuracy", "type": "quantitative", "format": ".1%"},
        {"field": "row", "type": "nominal", "title": "strategy"},
        {"field": "cluster", "type": "nominal"},
        {"field": "task", "type": "nominal"},
    ]
    dots = [one for one in data if "count" not in one]
    bars = [one for one in data if "count" in one]
    quartiles = [one for one in names if "line" in one]
    layers: list[Spec] = [
        {
            "data": {"values": quartiles},
            "mark": {"type": "rule", "strokeWidth": 2, "color": _FAINT, "aria": False},
            "encoding": {
                "x": {**across, "field": "lower"},
                "x2": {"field": "upper"},
                "y": {**up, "field": "line"},
            },
        },
        {
            "data": {"values": quartiles},
            "mark": {"type": "tick", "thickness": 2, "size": 9, "color": _INK, "aria": False},
            "encoding": {"x": {**across, "field": "middle"}, "y": {**up, "field": "line"}},
        },
        {
            "data": {"values": names},
            "mark": {
                "type": "text",
                "align": "left",
                "fontWeight": 600,
                "baseline": "middle",
                "limit": {"expr": "width"},
                "aria": False,
            },
            "encoding": {"x": {"value": 0}, "y": up, "text": {"field": "row"}},
        },
    ]
    if bars:
        layers.insert(
            0,
            {
                "data": {"values": bars},
                "mark": {"type": "rect", "opacity": 0.75, "aria": False},
                "encoding": {
                    "x": {**across, "field": "from"},
                    "x2": {"field": "till"},
                    "y": up,
                    "y2": {"field": "to"},
                    "color": colour,
                    "tooltip": [
                        {"field": "count", "type": "quantitative", "title": "clients"},
                        {"field": "between", "type": "nominal", "title": "accuracy"},
                        {"field": "client", "type": "nominal", "title": "such as"},
                        {"field": "row", "type": "nominal", "title": "strategy"},
                    ],
                },
            },
        )
    layers.append(
        {
            "data": {"values": dots},
            "mark": {"type": "circle", "size": _DOT**2, "opacity": 0.85, "aria": False},
            "encoding": {
                "x": across,
                "y": up,
                "fill": {"condition": {"test": "datum.low", "value": "white"}, **colour},
                "stroke": colour,
                "strokeWidth": {"condition": {"test": "datum.low", "value": 2}, "value": 0},
                "tooltip": tooltip,
            },
        }
    )
    text = "Final test accuracy of each client, a row for each strategy"
    usermeta = {"renderer": "canvas" if len(dots) > 1500 else "svg"}
    return figure(text, round(top), layers, usermeta=usermeta)


Dot = tuple[float, Run, int]


def _stacks(
    dots: Sequence[Dot], low: float, high: float, several: bool
) -> tuple[list[Spec], float]:
    """Return a dot for each client, no two at the same place, and how high they stand."""
    levels = piled((np.array([one[0] for one in dots]) - low) / (high - low), 0.6 / _STACKS)
    tallest = int(levels.max()) + 1
    step = min(_DOT + 0.5, _TALLEST / tallest)
    height = max(step * tallest, 10.0)
    found = []
    for rank, ((accuracy, run, client), level) in enumerate(zip(dots, levels, strict=True)):
        # From the bottom up, so that a row stands on its line.
        up = height - step * (level + 0.5)
        found.append(
            {
                "accuracy": _rounded(accuracy),
                "up": round(up, 1),
                "to": 0,
                "client": _called(run, client, several),
                "cluster": _cluster(run, client),
                "task": "–" if run.tasks is None else str(run.tasks[client]),
                "low": rank < NAMED,
            }
        )
    return found, height


def _bars(dots: Sequence[Dot], low: float, high: float, several: bool) -> tuple[list[Spec], float]:
    """Return how many clients reached what, and dots for those that reached least."""
    edges = np.linspace(low, high, _BARS + 1)
    known = np.array([one[0] for one in dots])
    places = np.clip(np.searchsorted(edges, known, "right") - 1, 0, _BARS - 1)
    counts = np.bincount(places, minlength=_BARS)
    height = 70.0
    found = []
    for place in np.flatnonzero(counts):
        examples = [dots[index] for index in np.flatnonzero(places == place)[:NAMED]]
        found.append(
            {
                "from": _rounded(edges[place]),
                "till": _rounded(edges[place + 1]),
                "up": round(height * (1 - counts[place] / counts.max()), 1),
                "to": height,
                "count": int(counts[place]),
                "between": f"{100 * edges[place]:.1f} to {100 * edges[place + 1]:.1f} %",
                "client": ", ".join(_called(run, client, several) for _, run, client in examples),
            }
        )
    lowest, _ = _stacks(dots[:20], low, high, several)
    deepest = max(one["up"] for one in lowest)
    return found + [{**one, "up": one["up"] + height - deepest - 4} for one in lowest], height


def _called(run: Run, client: int, several: bool) -> str:
    name = run.names[client]
    # A bare number is an index; the same index is another client in another seed.
    return f"{name} (seed {run.seed})" if several else name


def _cluster(run: Run, client: int) -> str:
    return "left out" if run.clusters[client] < 0 else str(run.clusters[client])


def costs_chart(points: Mapping[str, tuple[float, float, float, float]]) -> Spec | None:
    """Return the accuracy against the bytes: a point for each strategy.

    Parameters
    ----------
    points : mapping of four floats
        Megabytes of a client, and the accuracy's mean, lowest and highest over seeds.
    """
    known = {name: point for name, point in points.items() if np.isfinite(point).all()}
    if len(known) < 2:
        return None
    looks = _looks(known)
    rows: list[Spec] = [
        {
            "series": name,
            "megabytes": round(megabytes, 3),
            "accuracy": _rounded(mean),
            "low": _rounded(low),
            "high": _rounded(high),
        }
        for name, (megabytes, mean, low, high) in known.items()
    ]
    limits = _range([row["low"] for row in rows] + [row["high"] for row in rows])
    domain = list(known)
    colour: Spec = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": domain, "range": [looks[name][0] for name in domain]},
        "legend": {"symbolOpacity": 1},
    }
    across: Spec = {
        "field": "megabytes",
        "type": "quantitative",
        "title": "MB that a client sends and receives",
        "axis": {"grid": False, "tickCount": 5},
        "scale": {"zero": True},
    }
    up: Spec = {
        "field": "accuracy",
        "type": "quantitative",
        "title": "test accuracy",
        "axis": {**_PERCENT, "tickCount": 6},
        "scale": {"domain": list(limits), "nice": False},
    }
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.4, "aria": False},
            "encoding": {
                "x": across,
                "y": {**up, "field": "low"},
                "y2": {"field": "high"},
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "aria": False},
            "encoding": {
                "x": across,
                "y": up,
                "color": colour,
                "shape": {"field": "series", "type": "nominal", "scale": {"domain": domain}},
                "tooltip": [
                    {"field": "series", "title": "strategy"},
                    {"field": "accuracy", "format": ".1%"},
                    {"field": "megabytes", "title": "MB", "format": ",.2f"},
                ],
            },
        },
    ]
    text = "Final accuracy of each strategy against what a client sent and received"
    return figure(text, 260, layers, data={"values": rows})


def _looks(names: Mapping[str, Any]) -> dict[str, tuple[str, list[float], float]]:
    """Return the colour, the dashes and the width of each series, as in the other pictures."""
    from fl_app.report.pictures.style import strategy_styles  # noqa: PLC0415 - needs matplotlib

    styles = strategy_styles(names)
    return {
        name: (
            look.colour,
            [1, 0] if isinstance(look.dashes, str) else [2.5 * d for d in look.dashes[1]],
            look.width,
        )
        for name, look in styles.items()
    }


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of some shares, with room around it, at least ten points wide."""
    known: NDArray[np.float64] = np.array(values)
    low, high = float(known.min()), float(known.max())
    pad = max(0.02 * (high - low), (0.1 - (high - low)) / 2, 0.005)
    return _rounded(max(0.0, low - pad) - 0.004), _rounded(min(1.0, high + pad) + 0.004)


def _rounded(value: float) -> float:
    return round(float(value), 4)
