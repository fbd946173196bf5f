"""A metric of each client: for each strategy a box plot with a point for each client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fl_app.report.pictures.figure import (
    Spec,
    channel,
    layer,
    picture,
    rounded,
    score_axis,
    score_form,
    shorten,
    unique_labels,
)
from fl_app.report.pictures.style import INK, MUTED, strategy_styles
from fl_core.metrics import OF_CLASSES, Metric

NAMED = 3  # of each strategy, those that are worst
MOST_POINTS = 300  # of a strategy; of more clients, some are shown
_ROW, _HALF, _AWAY = 47, 7, 15  # in points: a row, its box above its middle, and its texts
_NAME, _WORST = 60, 22  # letters of a strategy, and of a client
_GOLDEN = (math.sqrt(5) - 1) / 2


class ClientScore(NamedTuple):
    """A client's score on a seed, NaN where it was not tested."""

    score: float
    name: str
    about: Mapping[str, str] = {}  # shown beside its point under the mouse
    seed: int = 0


def clients_figure(
    rows: Mapping[str, Sequence[ClientScore]],
    *,
    several_seeds: bool = False,
    metric: Metric = OF_CLASSES.main,
) -> Spec:
    """Draw a metric of each client, a row per strategy, with the names of the worst clients.

    Clients that were not tested are counted, and have no point. With `several_seeds`, a client may
    have a point for each.
    """
    styles = strategy_styles(rows)
    points: list[Spec] = []
    heads: list[Spec] = []
    for (name, clients), title in zip(rows.items(), unique_labels(list(rows), _NAME), strict=True):
        known = [client for client in clients if math.isfinite(client.score)]
        known.sort(key=lambda client: client.score, reverse=metric.lower_is_better)
        named = [f"{shorten(c.name, _WORST)} ({metric.with_unit(c.score)})" for c in known[:NAMED]]
        heads.append({"strategy": name, "name": title, "mean": _mean(clients, metric)})
        heads[-1]["worst"] = f"{metric.extreme}: {'; '.join(named)}" if named else ""
        # Of too many, those at evenly spaced ranks: the box plot stays the same.
        ranks = np.linspace(0, len(known) - 1, min(len(known), MOST_POINTS)).astype(int)
        points += [
            {"strategy": name, "client": known[rank].name, "score": rounded(known[rank].score)}
            | {"worst": rank < NAMED, "level": round(rank * _GOLDEN % 1, 3), **known[rank].about}
            for rank in sorted({*range(len(known[:NAMED])), *ranks.tolist()})
        ]
    note = f"point: one client{' in one seed' if several_seeds else ''}"
    if any(len(clients) > MOST_POINTS for clients in rows.values()):
        note += f", of each strategy about {MOST_POINTS} at evenly spaced ranks"
    note += f"; hollow: the {metric.extreme}; box: quartiles and median; line: from end to end"
    place = {
        "x": score_axis("score", metric, [np.array([one["score"] for one in points])]),
        "y": channel("strategy:N", axis=None, scale={"domain": list(rows), "padding": 0}),
    }
    scale = {"domain": list(styles), "range": [one.colour for one in styles.values()]}
    colour = channel("strategy:N", legend=None, scale=scale)
    looks: Spec = {"box": {"fillOpacity": 0.2, "stroke": INK}, "rule": {"color": INK}}
    looks["median"] = {"color": INK, "thickness": 2}
    box = {"extent": "min-max", "size": 2 * _HALF, "ticks": False, **looks}
    beyond = (_ROW / (2 * _HALF) - 1) / 2
    level = {"domain": [-beyond, 1 + beyond], "nice": False, "zero": False}
    about = dict.fromkeys(key for client in rows.values() for one in client for key in one.about)
    dots = layer(
        "point",
        None,
        {"size": 12, "strokeWidth": 1.3},
        **place,
        yOffset=channel("level:Q", scale=level),
        fill={"condition": {"test": "datum.worst", "value": "white"}, **colour},
        stroke={"condition": {"test": "!datum.worst", "value": None}, **colour},
        opacity={"condition": {"test": "datum.worst", "value": 1}, "value": 0.5},
        tooltip=[
            channel("client:N"),
            channel("score:Q", metric.title, format=score_form(metric)),
            *(channel(f"{key}:N") for key in about),
        ],
    )
    texts = [
        layer(
            "text",
            heads,
            {"align": "left", "baseline": "middle", "dy": dy, **look},
            **{"x": {"value": x}, "y": place["y"], "text": channel(f"{field}:N")},
        )
        for field, x, dy, look in _TEXTS
    ]
    return picture(
        f"{metric.heading} of each client",
        note,
        data={"values": points},
        layer=[layer("boxplot", None, box, **place, color=colour), dots, *texts],
        height=_ROW * len(rows),
        usermeta={"renderer": "canvas" if len(points) > 1500 else "svg"},
    )


# Field, side, points below the middle of its row, and look.
_TEXTS: tuple[tuple[str, int | str, int, Spec], ...] = (
    ("name", 0, -_AWAY, {"fontWeight": "bold"}),
    ("mean", "width", -_AWAY, {"align": "right"}),
    ("worst", 0, _AWAY, {"color": MUTED, "limit": {"expr": "width"}}),
)


def _mean(clients: Sequence[ClientScore], metric: Metric) -> str:
    """Return the mean over seeds of the means over clients, as tables show it."""
    of_seed: dict[int, list[float]] = {}
    for one in clients:
        if math.isfinite(one.score):
            of_seed.setdefault(one.seed, []).append(one.score)
    untested = len(clients) - sum(map(len, of_seed.values()))
    means = [float(np.mean(scores)) for scores in of_seed.values()]
    mean = f"mean {metric.with_unit(float(np.mean(means)))}" if means else "–"
    return mean + (f", {untested:,} not tested" if untested else "")
