"""A metric of each client: for each strategy a box plot with a point for each client."""

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
    unique_labels,
)
from fl_app.report.pictures.style import INK, strategy_styles
from fl_core.metrics import OF_CLASSES, Metric

MOST_POINTS = 300  # of a strategy; of more clients, some are shown
_ROW, _HALF = 32, 7  # in points: a row, and its box above its middle
_NAME = 28  # letters of a strategy in a line
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
    """Draw a metric of each client, a row per strategy, with its mean.

    Clients that were not tested are counted, and have no point.
    """
    styles = strategy_styles(rows)
    points: list[Spec] = []
    heads = unique_labels(list(rows), _NAME)
    heads = [f"{head}\n{_mean(rows[name], metric)}" for head, name in zip(heads, rows, strict=True)]
    for head, clients in zip(heads, rows.values(), strict=True):
        known = [client for client in clients if math.isfinite(client.score)]
        known.sort(key=lambda client: client.score, reverse=metric.lower_is_better)
        # Of too many, those at evenly spaced ranks: the box plot stays the same.
        ranks = np.linspace(0, len(known) - 1, min(len(known), MOST_POINTS)).astype(int)
        points += [
            {"strategy": head, "client": known[rank].name, "score": rounded(known[rank].score)}
            | {"level": round(rank * _GOLDEN % 1, 3), **known[rank].about}
            for rank in ranks.tolist()
        ]
    note = f"point: one client{' in one seed' if several_seeds else ''}"
    if any(len(clients) > MOST_POINTS for clients in rows.values()):
        note += f", of each strategy about {MOST_POINTS} at evenly spaced ranks"
    note += "; box: quartiles and median; line: from end to end"
    across = score_axis("score", metric, [np.array([one["score"] for one in points])])
    across["axis"] |= {"tickCount": {"expr": "max(2, floor(width / 75))"}, "labelFlush": 14}
    lines = {"labelExpr": "split(datum.label, '\\n')", "labelLimit": 0, "ticks": False}
    place = {
        "x": across,
        "y": channel("strategy:N", None, axis=lines, scale={"domain": heads, "padding": 0}),
    }
    scale = {"domain": heads, "range": [one.colour for one in styles.values()]}
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
        {"size": 12, "filled": True, "opacity": 0.5},
        **place,
        yOffset=channel("level:Q", scale=level),
        color=colour,
        tooltip=[
            channel("client:N"),
            channel("score:Q", metric.title, format=score_form(metric)),
            *(channel(f"{key}:N") for key in about),
        ],
    )
    return picture(
        f"{metric.heading} of each client",
        note,
        data={"values": points},
        layer=[layer("boxplot", None, box, **place, color=colour), dots],
        height=_ROW * len(rows),
        usermeta={"renderer": "canvas" if len(points) > 1500 else "svg"},
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
