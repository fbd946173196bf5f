"""What a model as good as this costs: a point per strategy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    Spec,
    check_scores,
    check_shape,
    colours,
    picture,
    rounded,
    score_axis,
    score_form,
    shapes,
)
from fl_app.report.pictures.style import strategy_styles
from fl_core.metrics import OF_CLASSES, Metric


def traffic_figure(
    found: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    metric: Metric = OF_CLASSES.main,
) -> Spec:
    """Draw a metric in the end against the bytes: a point for the mean, a line from min to max.

    Parameters
    ----------
    found : mapping of str to tuple of NDArray[np.float64], shapes (S,) and (S,)
        For each strategy and seed, the megabytes that a client sent and received, and the metric's
        mean. NaN is left out.
    metric : Metric
    """
    styles = strategy_styles(found)
    rows = []
    for name, (megabytes, means) in found.items():
        check_scores(name, means, (len(means),), metric)
        check_shape(f"megabytes of {name}", megabytes, means.shape)
        known = np.isfinite(means)
        if known.any():
            own = means[known]
            rows.append(
                {"series": name, "megabytes": round(float(megabytes[known].mean()), 3)}
                | {"mean": rounded(own.mean()), "low": rounded(own.min())}
                | {"high": rounded(own.max())}
            )
    seeds = max(len(means) for _, means in found.values())
    note = (
        f"points: mean of {seeds} seeds; lines: lowest to highest seed" if seeds > 1 else "one seed"
    )
    x = {
        "field": "megabytes",
        "type": "quantitative",
        "title": "MB that a client sends and receives",
        "axis": {"grid": False, "tickCount": 5},
        "scale": {"zero": True, "nice": False, "padding": 8},
    }
    y = score_axis("mean", metric, [means for _, means in found.values()])
    colour = colours(styles)
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "opacity": 0.4, "aria": False},
            "encoding": {
                **{"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "aria": False},
            "encoding": {
                **{"x": x, "y": y, "color": colour},
                "shape": shapes(styles),
                "tooltip": [
                    {"field": "series", "title": "strategy"},
                    {"field": "mean", "title": metric.title, "format": score_form(metric)},
                    {"field": "megabytes", "title": "MB", "format": ",.2f"},
                ],
            },
        },
    ]
    return picture(
        f"{metric.heading} against bytes",
        f"{note}; bytes up to the end of training, without testing",
        styles,
        height=200,
        data={"values": rows},
        layer=layers,
    )
