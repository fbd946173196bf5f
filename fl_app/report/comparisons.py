"""The pictures that compare strategies: of a run in its folder, of several runs on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fl_app.report.pictures import ClientScore, Spec, clients_figure, rounds_figure, traffic_figure
from fl_app.report.tables import PRE_ROUND, TRAINING, shared_test
from fl_app.results.reading import Curve, Result
from fl_app.results.schema import Run
from fl_core.data.settings import TESTS
from fl_core.metrics import Metric
from fl_core.text import listed

_MOST_NAMES = 3  # of rows that were tested in one way


class Compared(NamedTuple):
    """A strategy of a result: its runs, and its mean score over the rounds, if known."""

    runs: Sequence[Run]
    curve: Curve | None


class Comparison(NamedTuple):
    """A picture that compares strategies: `draw` returns None if there is nothing to show.

    A page has it if there are at least `least` strategies, and shows the first `most` of them with
    a `note`. Curves over rounds exist for the first test of each run only.
    """

    draw: Callable[[Mapping[str, Compared]], Spec | None]
    most: int = 24  # more lines are indistinguishable
    least: int = 1
    note: str = ""
    of_curves: bool = False

    def caption(self, rows: Mapping[str, Compared]) -> str:
        """Return the note, and the test of each row if these differ."""
        tests = _by_test(rows, of_curves=self.of_curves)
        differ = "; ".join(
            f"{test if test in TESTS.values() else 'in one test alone'}: "
            f"{listed(names, _MOST_NAMES, ', ')}"
            for test, names in tests.items()
        )
        return f"{self.note} Tests differ: {differ}.".strip() if len(tests) > 1 else self.note


def compared(results: Sequence[Result]) -> dict[str, Compared]:
    """Return the strategies with tested clients by name; of several results, with theirs."""
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
    return any(np.isfinite(values).any() for values in (*curve, *(run.scores for run in one.runs)))


def _runs(rows: Mapping[str, Compared]) -> list[Run]:
    return [run for one in rows.values() for run in one.runs]


def _by_test(rows: Mapping[str, Compared], *, of_curves: bool = False) -> dict[str, list[str]]:
    """Return the names of rows by the test in which they are compared."""
    shared, found = "" if of_curves else shared_test(_runs(rows)), dict[str, list[str]]()
    for name, one in rows.items():
        if test := shared or shared_test(one.runs):
            found.setdefault(test, []).append(name)
    return found


def _metric(rows: Mapping[str, Compared], *, of_curves: bool = False) -> Metric:
    """Return the metric by which strategies are compared, with the test if there are two."""
    tests = _by_test(rows, of_curves=of_curves)
    return _runs(rows)[0].metrics.main.in_test(*tests if len(tests) == 1 else ("",))


def _rounds(rows: Mapping[str, Compared]) -> Spec | None:
    curves = {name: one.curve for name, one in rows.items() if one.curve is not None}
    return rounds_figure(curves, _metric(rows, of_curves=True)) if curves else None


def _clients(rows: Mapping[str, Compared]) -> Spec:
    test = shared_test(runs := _runs(rows))
    several = len({run.seed for run in runs}) > 1
    tested = {name: _tested(one.runs, test, several) for name, one in rows.items()}
    return clients_figure(tested, several_seeds=several, metric=_metric(rows))


def _tested(runs: Sequence[Run], test: str, several_seeds: bool) -> list[ClientScore]:
    return [
        ClientScore(
            score,
            # A bare number is an index; the same index is another client in another seed.
            (f"client {name}" if name.isdecimal() else name)
            + (f", seed {run.seed}" if several_seeds else ""),
            {
                "cluster": "left out" if cluster < 0 else str(cluster),
                "task": "–" if run.tasks is None else str(run.tasks[client]),
            },
            run.seed,
        )
        for run in runs
        for client, (score, name, cluster) in enumerate(
            zip(run.tests.get(test, run).scores.tolist(), run.names, run.clusters, strict=True)
        )
    ]


def _costs(rows: Mapping[str, Compared]) -> Spec:
    test = shared_test(_runs(rows))
    return traffic_figure(
        {
            name: (
                np.array([run.kilobytes(*PRE_ROUND, *TRAINING) / 1000 for run in one.runs]),
                np.array([run.tests.get(test, run).score for run in one.runs]),
            )
            for name, one in rows.items()
        },
        _metric(rows),
    )


COMPARISONS = {
    "accuracy-per-round": Comparison(
        _rounds, note="Choose strategies in the legend.", of_curves=True
    ),
    "accuracy-per-client": Comparison(_clients, most=40),
    "accuracy-against-bytes": Comparison(_costs, least=2),
}
"""By the name of the file in a run's folder, where classes are predicted; in a page's order."""
