"""Points: the scores of strategies, with lines from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    POINT,
    Spec,
    by_series,
    channel,
    in_panels,
    layer,
    picture,
    rounded,
    score_axis,
    score_form,
    unique_labels,
)
from fl_app.report.pictures.style import MUTED, WIDTH, strategy_styles
from fl_app.results.verdict import WORDS, Verdict, interval_text, unit_of
from fl_core.metrics import OF_CLASSES, Metric

_LETTERS = 60  # that fit below all panels of a row together
_VERDICTS = ("#0072b2", "#009e73", "#d55e00", "#8a8a8a")  # in the order of WORDS
_MOST_VERDICTS = 100  # verdicts.csv has all

Published = Mapping[str, tuple[float, float | None]]
"""By strategy, a mean and its standard deviation, if any."""
Group = tuple[str, Published, Mapping[str, NDArray[np.float64]]]
"""A name, what was published, and what was measured: by strategy, a value per seed."""
Pairs = Mapping[str, Sequence[tuple[float, float]]]
"""Pairs of a published and a measured number, by series."""


def dots_figure(
    title: str,
    panels: Mapping[tuple[str, str], Mapping[str, NDArray[np.float64]]],
    across: str,
    words: Sequence[str],
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Spec:
    """Draw a point for each seed, and a line for their mean, side by side for each word.

    As `lines_figure`, where values have no places but words: an array of shape (S, W) for each
    strategy, a row per seed and a column per word, NaN where there is none.
    """
    styles = strategy_styles(list(dict.fromkeys(m for found in panels.values() for m in found)))
    columns = 1 if max(map(len, words)) * len(words) > _LETTERS // 2 else min(2, len(panels))
    x = _over_words(list(styles), words, across, WIDTH / columns)
    x["color"], shape = by_series(styles, "colour"), by_series(styles, "mark")
    parts = []
    for (name, up), found in panels.items():
        rows: list[Spec] = []
        for method, values in found.items():
            for word, column in zip(words, values.T, strict=True):
                row = {"series": method, "slot": method, "word": word}
                rows += [{**row, "value": v} for v in column[np.isfinite(column)].tolist()]
        domain = {"domain": limits[up]} if limits and up in limits else {}
        y = channel("value:Q", up, axis={"tickCount": 5}, scale={"zero": False, **domain})
        look = {"filled": True, "size": 20, "opacity": 0.6}
        points = layer("point", None, look, **x, y=y, shape=shape)
        mean = {**y, "aggregate": "mean"}
        means = layer("tick", None, {"thickness": 2, "size": 12}, **x, y=mean)
        parts.append((name, {"data": {"values": rows}, "layer": [points, means]}))
    note = "point: one seed; line: their mean"
    return picture(title, note, styles, **in_panels(parts, columns, 125))


def published_figure(title: str, panels: Mapping[str, Sequence[Group]], up: str) -> Spec:
    """Draw a panel for each row of a table: hollow marks are the paper's, full ones ours.

    `panels` have the columns of each row. Lines are one standard deviation to either side.
    """
    names = dict.fromkeys(
        name
        for groups in panels.values()
        for _, published, measured in groups
        for name in (*published, *measured)
    )
    styles = strategy_styles(names)
    has_published = any(published for groups in panels.values() for _, published, _ in groups)
    sides = ("paper", "ours") if has_published else ("ours",)
    slots = [f"{source} of {name}" for name in styles for source in sides]
    y = channel("mean:Q", up, axis={"tickCount": 5}, scale={"zero": False, "padding": 8})
    parts = []
    for panel, groups in panels.items():
        x = _over_words(slots, [name for name, _, _ in groups], "", WIDTH)
        x["color"] = by_series(styles, "colour")
        layers = [_from_low_to_high("y", y, {}, x)]
        for source, full in (("paper", False), ("ours", True)):
            look = {"filled": full, "size": 45, "opacity": 1}
            points = layer("point", None, look, **x, y=y, shape=by_series(styles, "mark"))
            layers.append({"transform": [{"filter": f"datum.source == '{source}'"}], **points})
        rows = [row for group in groups for row in _rows_of(*group)]
        parts.append((panel, {"data": {"values": rows}, "layer": layers}))
    note = "hollow: the paper; full: measured here; " if has_published else ""
    note += "lines: one standard deviation to either side"
    return picture(title, note, styles, **in_panels(parts, 1, 120))


def agreement_figure(title: str, panels: Mapping[str, Pairs]) -> Spec:
    """Draw each published number against the measured one, with the line of equality.

    Panels go by what they show, with its unit. Where the largest number is more than a hundred
    times the smallest, axes are logarithmic.
    """
    styles = strategy_styles(dict.fromkeys(name for series in panels.values() for name in series))
    looks = {"color": by_series(styles, "colour"), "shape": by_series(styles, "mark")}
    parts = []
    for unit, series in panels.items():
        rows: list[Spec] = [
            {"series": name, "paper": paper, "ours": ours}
            for name, pairs in series.items()
            for paper, ours in pairs
        ]
        known = [row[source] for row in rows for source in ("paper", "ours")]
        ends = [min(known), max(known)]
        kind = "log" if 0 < 100 * ends[0] < ends[1] else "linear"
        scale = {"type": kind, "domain": ends, "nice": True}
        x = channel("paper:Q", "published", axis={"tickCount": 5}, scale=scale)
        y = channel("ours:Q", "measured here", axis={"tickCount": 5}, scale=scale)
        equal = [{"paper": end, "ours": end} for end in ends]
        line = layer("line", equal, {"color": MUTED, "strokeDash": [4, 3]}, x=x, y=y)
        look = {"filled": True, "size": 22, "opacity": 0.75}
        parts.append((unit, {"layer": [line, layer("point", rows, look, x=x, y=y, **looks)]}))
    note = "a mark for each method in each cell of a table; below the line, ours is lower"
    return picture(title, note, styles, **in_panels(parts, 2, 165))


def traffic_figure(
    costs: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    metric: Metric = OF_CLASSES.main,
) -> Spec:
    """Draw the final metric against the bytes: a point for the mean, a line from min to max.

    `costs` has, by strategy, two arrays of shape (S,) over S seeds: the megabytes that a client
    sent and received, and the metric's mean. NaN is left out.
    """
    styles = strategy_styles(costs)
    rows = []
    for name, (megabytes, means) in costs.items():
        known = np.isfinite(means)
        if known.any():
            row = {"series": name, "megabytes": round(float(megabytes[known].mean()), 3)}
            scores = means[known]
            row |= {"mean": rounded(scores.mean()), "low": rounded(scores.min())}
            rows.append(row | {"high": rounded(scores.max())})
    seeds = max(len(means) for _, means in costs.values())
    note = (
        f"points: mean of {seeds} seeds; lines: lowest to highest seed" if seeds > 1 else "one seed"
    )
    x = channel(
        "megabytes:Q",
        "MB that a client sends and receives",
        axis={"grid": False, "tickCount": 5},
        scale={"zero": True, "nice": False, "padding": 8},
    )
    y = score_axis("mean", metric, [means for _, means in costs.values()])
    place = {"x": x, "color": by_series(styles, "colour")}
    tooltip = [
        channel("series", "strategy"),
        channel("mean", metric.title, format=score_form(metric)),
        channel("megabytes", "MB", format=",.2f"),
    ]
    shape = by_series(styles, "mark")
    layers = [
        _from_low_to_high("y", y, {"strokeWidth": 2, "opacity": 0.4}, place),
        layer("point", None, {**POINT, "size": 70}, **place, y=y, shape=shape, tooltip=tooltip),
    ]
    return picture(
        f"{metric.heading} against bytes",
        f"{note}; bytes up to the end of training, without testing",
        styles,
        height=200,
        data={"values": rows},
        layer=layers,
    )


def verdicts_figure(verdicts: Sequence[Verdict], names: Sequence[str], metric: Metric) -> Spec:
    """Draw a row for each client, by its expected gain over staying alone.

    A bar is the interval of the gain, a point its expected value, a faint point what was observed
    on validation samples; shares are drawn in points. `names` go by the clients' index. Of many
    clients, the first ones are drawn.
    """
    factor = 100 if metric.is_share else 1
    labels = unique_labels(names, 40)
    shown = sorted(verdicts[:_MOST_VERDICTS], key=lambda one: -one.gain.mean)
    rows = [
        {
            "client": labels[one.client],
            "verdict": one.verdict,
            "model": one.model,
            "gain": factor * one.gain.mean,
            "low": factor * one.gain.low,
            "high": factor * one.gain.high,
            "observed": factor * one.gain.observed,
            "interval": interval_text(metric, (one.gain.mean, one.gain.low, one.gain.high)),
        }
        for one in shown
    ]
    x = channel("gain:Q", f"gain over staying alone, {unit_of(metric)}", axis={"tickCount": 6})
    row = {
        "y": channel("client:N", None, sort=None, axis={"labelLimit": 260}),
        "color": channel("verdict:N", None, scale={"domain": list(WORDS), "range": _VERDICTS}),
        "tooltip": [channel(key) for key in ("client", "verdict", "model", "interval")],
    }
    nothing = layer("rule", [{"nothing": 0}], {"strokeDash": [3, 3]}, x=channel("nothing:Q"))
    dot = {"filled": True, "size": 55, "stroke": "white"}
    faint = {"filled": True, "size": 25, "opacity": 0.35}
    observed = layer("point", None, faint, x={**x, "field": "observed"}, **row)
    bars = _from_low_to_high("x", x, {"strokeWidth": 3}, row)
    note = (
        "each site's expected gain, informed by the others' gains, with its 95 % interval; "
        "faint: as observed on its validation samples"
    )
    if len(verdicts) > _MOST_VERDICTS:
        note += f"; the first {_MOST_VERDICTS} of {len(verdicts)} sites"
    return picture(
        "What each site gains over staying alone",
        note,
        WORDS,
        height=16 * len(rows),
        data={"values": rows},
        layer=[nothing, bars, observed, layer("point", None, dot, x=x, **row)],
    )


def _from_low_to_high(side: str, axis: Spec, look: Spec, others: Spec) -> Spec:
    """Return lines along an axis, x or y, from the lowest to the highest."""
    ends = {side: {**axis, "field": "low"}, f"{side}2": {"field": "high"}}
    return layer("rule", None, look, **others, **ends)


def _over_words(slots: Sequence[str], words: Sequence[str], across: str, width: float) -> Spec:
    """Return the positions of marks over words, with a slot for each series beside the others."""
    axis = {"labelAngle": 0, "labelOverlap": False, "labelLimit": width / len(words) - 6}
    scale = {"domain": list(words), "paddingInner": 0.15}
    x = channel("word:N", across, sort=None, axis={**axis, "ticks": False}, scale=scale)
    return {"x": x, "xOffset": channel("slot:N", sort=None, scale={"domain": list(slots)})}


def _rows_of(
    word: str, published: Published, measured: Mapping[str, NDArray[np.float64]]
) -> list[Spec]:
    numbers = [("paper", name, *stated) for name, stated in published.items()]
    for name, values in measured.items():
        if len(values):
            std = float(values.std(ddof=1)) if len(values) > 1 else None
            numbers.append(("ours", name, float(values.mean()), std))
    return [
        {
            "word": word,
            "series": name,
            "source": source,
            "slot": f"{source} of {name}",
            "mean": mean,
        }
        | {"low": mean - (std or 0.0), "high": mean + (std or 0.0)}
        for source, name, mean, std in numbers
    ]
