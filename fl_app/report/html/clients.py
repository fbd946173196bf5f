"""The interactive picture of every client's accuracy, as a Vega-Lite specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fl_app.report.dot_layout import piled
from fl_app.report.html.charts import FAINT, INK, PERCENT, Spec, figure, looks_of, range_of, rounded
from fl_app.report.html.reading import Run

MOST_DOTS = 6_000  # on a page: more become bars
MOST_ROWS = 40  # strategies of a picture of clients
NAMED = 3  # of each strategy: the clients with the lowest accuracy
_STACKS = 90  # dots that fit beside each other
_BARS = 60
_ROOM = 24  # pixels of a row for its name and, below the dots, for the quartiles
_DOT = 6.5  # pixels, at most
_TALLEST = 150  # pixels of a row's dots


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
    low, high = range_of(values[np.isfinite(values)].tolist())
    many = int(np.isfinite(values).sum()) > MOST_DOTS
    several = len({run.seed for runs in shown.values() for run in runs}) > 1
    looks = looks_of(shown)
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
        names.append({"row": mean, "up": top - 12, "middle": rounded(np.median(known))})
        quartiles = np.percentile(known, (25, 75)) if known.size >= 10 else (np.nan, np.nan)
        if known.size >= 10:
            names[-1] |= {
                "lower": rounded(quartiles[0]),
                "upper": rounded(quartiles[1]),
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
        "axis": {**PERCENT, "tickCount": 6},
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
            "mark": {"type": "rule", "strokeWidth": 2, "color": FAINT, "aria": False},
            "encoding": {
                "x": {**across, "field": "lower"},
                "x2": {"field": "upper"},
                "y": {**up, "field": "line"},
            },
        },
        {
            "data": {"values": quartiles},
            "mark": {"type": "tick", "thickness": 2, "size": 9, "color": INK, "aria": False},
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
                "accuracy": rounded(accuracy),
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
                "from": rounded(edges[place]),
                "till": rounded(edges[place + 1]),
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
