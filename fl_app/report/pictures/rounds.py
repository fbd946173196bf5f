"""A metric over the rounds: a line per strategy, or a panel per strategy and a line per cluster."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fl_app.report.pictures.figure import (
    Spec,
    check_scores,
    in_panels,
    picture,
    score_axis,
)
from fl_app.report.pictures.lines import chosen_in_legend, curves
from fl_app.report.pictures.style import (
    Style,
    cluster_colour,
    cluster_dashes,
    strategy_styles,
)
from fl_core.metrics import OF_CLASSES, Metric

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
ClusterCurves = tuple[NDArray[np.int64], Mapping[int, NDArray[np.float64]]]

_MOST_PANELS, _MOST_LINES, _ACROSS = 15, 6, 3


def rounds_figure(lines: Mapping[str, Curve], metric: Metric = OF_CLASSES.main) -> Spec:
    """Draw a metric over the rounds: a line for the mean of the seeds, a band from min to max.

    Parameters
    ----------
    lines : mapping of str to Curve
        For each strategy the rounds, (R,), and its mean there, (S, R) for S seeds. NaN is left out.
    metric : Metric
    """
    styles = strategy_styles(lines)
    for name, (rounds, means) in lines.items():
        check_scores(name, means, (len(means), len(rounds)), metric)
    seeds = sorted({len(means) for _, means in lines.values()})
    count = " to ".join(str(one) for one in dict.fromkeys((seeds[0], seeds[-1])))
    note = f"lines: mean of {count} seeds; bands: lowest to highest seed"
    values = [means for _, means in lines.values()]
    up = score_axis("mean", metric, values, f"mean test {metric.title}")
    return picture(
        f"{metric.heading} per round",
        note if seeds[-1] > 1 else "one seed",
        styles,
        height=230,
        **chosen_in_legend(curves(lines, styles, "round", up)),
    )


def cluster_rounds_figure(
    lines: Mapping[str, ClusterCurves], seed: int, metric: Metric = OF_CLASSES.main
) -> Spec:
    """Draw a metric of each cluster over the rounds, a panel per strategy.

    The first fifteen strategies are shown, and the first six clusters of each.

    Parameters
    ----------
    lines : mapping of str to ClusterCurves
        For each strategy the rounds, (R,), and by cluster, the largest first, the mean of its
        clients there, (R,); NaN where it has none.
    seed : int
        Whose run that is.
    metric : Metric

    Raises
    ------
    ValueError
        If there is no strategy, or values have another shape or are not what the metric can be.
    """
    if not lines:
        raise ValueError("there is no strategy to draw")
    shown = {
        name: (rounds, dict(list(of_cluster.items())[:_MOST_LINES]))
        for name, (rounds, of_cluster) in list(lines.items())[:_MOST_PANELS]
    }
    for name, (rounds, of_cluster) in shown.items():
        for cluster, line in of_cluster.items():
            check_scores(f"cluster {cluster} of {name}", line, rounds.shape, metric)
    # A legend of nothing has no size: neither has a picture around it.
    found = sorted({cluster for _, of_cluster in shown.values() for cluster in of_cluster}) or [0]
    styles = {
        str(one): Style(cluster_colour(one), "circle", cluster_dashes(one), 1.6) for one in found
    }
    up = score_axis("mean", metric, [v for _, one in shown.values() for v in one.values()], "")
    panels = [
        (
            name,
            curves({str(c): (rounds, v[None]) for c, v in one.items()}, styles, "", up),
        )
        for name, (rounds, one) in shown.items()
    ]
    notes = [f"mean test {metric.title} by round, a line for each cluster"]
    if any(len(of_cluster) > _MOST_LINES for _, of_cluster in lines.values()):
        notes.append(f"of each strategy, the {_MOST_LINES} largest")
    if len(lines) > _MOST_PANELS:
        notes.append(f"{_MOST_PANELS} of {len(lines)} strategies")
    title = f"{metric.heading} per cluster, seed {seed}"
    height = min(140, 350 // -(-len(panels) // _ACROSS))
    return picture(
        title, "; ".join(notes), styles, **in_panels(panels, _ACROSS, height, titled=False)
    )
