"""The pictures that compare strategies: of a run in its folder, of several runs on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fl_app.report.html.reading import Curve, Result, Run
from fl_app.report.pictures import Spec, Tested, clients_figure, rounds_figure, traffic_figure
from fl_app.report.tables import PRE_ROUND, TRAINING
from fl_core.metrics import Metric


class Compared(NamedTuple):
    """A strategy of a run: each seed, and its mean score over the rounds, if it is known."""

    runs: Sequence[Run]
    curve: Curve | None


class Comparison(NamedTuple):
    """A picture of strategies: `draw` gets them by name, and returns None if it can show nothing.

    A page has it from `least` strategies on, of the first `most`, with what is `said` below it.
    """

    draw: Callable[[Mapping[str, Compared]], Spec | None]
    most: int = 24  # more lines are told apart by nobody
    least: int = 1
    said: str = ""


def compared(results: Sequence[Result]) -> dict[str, Compared]:
    """Return the strategies whose clients were tested, with the result's name if several are."""
    rows = {
        f"{name} · {result.name}" if len(results) > 1 else name: Compared(
            result.of(name), result.curves.get(name)
        )
        for result in results
        for name in result.strategies
    }
    return {name: one for name, one in rows.items() if _known(one)}


def _known(one: Compared) -> bool:
    curve = () if one.curve is None else (one.curve[1],)
    return any(np.isfinite(own).any() for own in (*curve, *(run.scores for run in one.runs)))


def _metric(rows: Mapping[str, Compared]) -> Metric:
    """Return by what the strategies are compared."""
    return next(run.metrics.main for one in rows.values() for run in one.runs)


def _rounds(rows: Mapping[str, Compared]) -> Spec | None:
    curves = {name: one.curve for name, one in rows.items() if one.curve is not None}
    return rounds_figure(curves, _metric(rows)) if curves else None


def _clients(rows: Mapping[str, Compared]) -> Spec:
    several = len({run.seed for one in rows.values() for run in one.runs}) > 1
    tested = {name: _tested(one.runs, several) for name, one in rows.items()}
    return clients_figure(tested, several_seeds=several, metric=_metric(rows))


def _tested(runs: Sequence[Run], several_seeds: bool) -> list[Tested]:
    return [
        Tested(
            score,
            # A bare number is an index; the same index is another client in another seed.
            (f"client {name}" if name.isdecimal() else name)
            + (f", seed {run.seed}" if several_seeds else ""),
            {
                "cluster": "left out" if cluster < 0 else str(cluster),
                "task": "–" if run.tasks is None else str(run.tasks[client]),
            },
        )
        for run in runs
        for client, (score, name, cluster) in enumerate(
            zip(run.scores.tolist(), run.names, run.clusters, strict=True)
        )
    ]


def _costs(rows: Mapping[str, Compared]) -> Spec:
    return traffic_figure(
        {
            name: (
                np.array([run.kilobytes(*PRE_ROUND, *TRAINING) / 1000 for run in one.runs]),
                np.array([run.score for run in one.runs]),
            )
            for name, one in rows.items()
        },
        _metric(rows),
    )


COMPARISONS = {
    "accuracy-per-round": Comparison(_rounds, said="Choose strategies in the legend."),
    "accuracy-per-client": Comparison(_clients, most=40),
    "accuracy-against-bytes": Comparison(_costs, least=2),
}
"""By the name of the file in a run's folder, where classes are predicted; in a page's order."""
