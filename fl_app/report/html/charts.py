"""The interactive pictures of a report, as Vega-Lite specifications.

Names of clients and strategies are values in their data, never parts of an expression. Nothing
depends on the width: `report.js` sets it to that of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.report.html.reading import Curve

Spec = dict[str, Any]

INK, MUTED, FAINT, GRID = "#222222", "#5f5f5f", "#b0b0b0", "#ececec"
_CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
    "view": {"stroke": None},
    "axis": {
        "domainColor": FAINT,
        "tickColor": FAINT,
        "gridColor": GRID,
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titlePadding": 8,
    },
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 12,
        "symbolSize": 120,
    },
    "text": {"fontSize": 12, "color": INK},
}
PERCENT = {"format": ".0%"}


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
    looks = looks_of(curves)
    for series, (rounds, accuracy) in curves.items():
        for place, number in enumerate(rounds.tolist()):
            known = accuracy[np.isfinite(accuracy[:, place]), place]
            if known.size:
                low, high = rounded(known.min()), rounded(known.max())
                seeds = f"{100 * low:.1f} to {100 * high:.1f} %, {known.size} seeds"
                rows.append(
                    {
                        "series": series,
                        "round": number,
                        "mean": rounded(known.mean()),
                        "low": low,
                        "high": high,
                        "seeds": seeds if known.size > 1 else "one seed",
                        "width": looks[series][2],
                        "size": 60 if looks[series][2] > 2.5 else 26,
                    }
                )
    if not rows:
        return None
    low, high = range_of([row["low"] for row in rows] + [row["high"] for row in rows])
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
        "axis": {**PERCENT, "tickCount": 6},
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
    return figure(text, 340, layers, data={"values": rows}, usermeta=_legend_of(domain))


def _legend_of(names: Iterable[str]) -> Spec:
    """Return what the page must know to lay a legend out, so that no name is cut."""
    return {"longest": max(map(len, names))}


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
    looks = looks_of(known)
    rows: list[Spec] = [
        {
            "series": name,
            "megabytes": round(megabytes, 3),
            "accuracy": rounded(mean),
            "low": rounded(low),
            "high": rounded(high),
        }
        for name, (megabytes, mean, low, high) in known.items()
    ]
    limits = range_of([row["low"] for row in rows] + [row["high"] for row in rows])
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
        "axis": {**PERCENT, "tickCount": 6},
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
    return figure(text, 260, layers, data={"values": rows}, usermeta=_legend_of(domain))


def looks_of(names: Mapping[str, Any]) -> dict[str, tuple[str, list[float], float]]:
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


def range_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of some shares, with room around it, at least ten points wide."""
    known: NDArray[np.float64] = np.array(values)
    low, high = float(known.min()), float(known.max())
    pad = max(0.02 * (high - low), (0.1 - (high - low)) / 2, 0.005)
    return rounded(max(0.0, low - pad) - 0.004), rounded(min(1.0, high + pad) + 0.004)


def rounded(value: float) -> float:
    """Return a share with as many digits as a picture shows."""
    return round(float(value), 4)
