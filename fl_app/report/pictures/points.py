"""Points: the scores of strategies, with lines from the lowest to the highest."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    POINT,
    Spec,
    by_series,
    channel,
    layer,
    picture,
    rounded,
    score_axis,
    score_form,
    unique_labels,
)
from fl_app.report.pictures.style import strategy_styles
from fl_app.results.verdict import WORDS, Verdict, interval_text, unit_of
from fl_core.metrics import OF_CLASSES, Metric

_VERDICTS = ("#0072b2", "#009e73", "#d55e00", "#8a8a8a")  # in the order of WORDS
_MOST_VERDICTS = 100  # verdicts.csv has all


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
    several = f"points: mean of {seeds} seeds; lines: lowest to highest seed"
    note = several if seeds > 1 else "one seed"
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
        from_low_to_high("y", y, {"strokeWidth": 2, "opacity": 0.4}, place),
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
    """Draw a row for each of the first clients, by its expected gain over staying alone.

    Shares are drawn in points. `names` go by the clients' index.
    """
    factor, labels = 100 if metric.is_share else 1, unique_labels(names, 40)
    numbers = {"gain": "mean", "low": "low", "high": "high", "observed": "observed"}
    rows = [
        {
            "client": labels[one.client],
            "verdict": one.verdict,
            "model": one.model,
            **{key: factor * getattr(one.gain, name) for key, name in numbers.items()},
            "interval": interval_text(metric, (one.gain.mean, one.gain.low, one.gain.high)),
        }
        for one in sorted(verdicts[:_MOST_VERDICTS], key=lambda one: -one.gain.mean)
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
    bars = from_low_to_high("x", x, {"strokeWidth": 3}, row)
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


def from_low_to_high(side: str, axis: Spec, look: Spec, others: Spec) -> Spec:
    """Return lines along an axis, x or y, from the lowest to the highest."""
    ends = {side: {**axis, "field": "low"}, f"{side}2": {"field": "high"}}
    return layer("rule", None, look, **others, **ends)
