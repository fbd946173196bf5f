"""The pictures that compare strategies: of a run in its folder, of several runs on one page."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fl_app.report.pictures import (
    ClientScore,
    Spec,
    clients_figure,
    rounds_figure,
    traffic_figure,
    verdicts_figure,
)
from fl_app.report.tables import PRE_ROUND, TRAINING, shared_test
from fl_app.results.reading import Curve, Result
from fl_app.results.schema import Run, largest_run
from fl_core.messages.protocol import ACCURACY
from fl_core.metrics import Metric

TESTS_DIFFER = "Not all strategies were tested in the same way."


class Compared(NamedTuple):
    """A strategy of a result: its runs, and its mean score over the rounds, if known."""

    runs: Sequence[Run]
    curve: Curve | None


class Comparison(NamedTuple):
    """A picture of the first `most` strategies in a test that all have, or in each one's first.

    `draw` returns None if there is nothing to show. Curves exist for each run's first test only.
    """

    draw: Callable[[Mapping[str, Compared], str], Spec | None]
    most: int = 24  # more lines are indistinguishable
    note: str = ""
    of_curves: bool = False


def figures_of(results: Sequence[Result]) -> dict[str, tuple[Spec, str]]:
    """Return each picture that compares strategies with its note, by the name of its file."""
    rows = {
        name + f" · {result.name}" * (len(results) > 1): one
        for result in results
        for name in result.strategies
        if _is_tested(one := Compared(result.of(name), result.curves.get(name)))
    }
    figures = {}
    for name, comparison in COMPARISONS.items() if rows else ():
        shown = dict([*rows.items()][: comparison.most])
        runs = _runs(shown)
        tests = {shared_test(runs)}
        if comparison.of_curves:
            tests = {next(iter(run.tests)) for run in runs}
        test = tests.pop() if len(tests) == 1 else ""
        more = f"Shown are the first {len(shown)} of {len(rows):,}." * (len(shown) < len(rows))
        notes = (comparison.note, "" if test else TESTS_DIFFER, more)
        if (spec := comparison.draw(shown, test)) is not None:
            file_name = name.replace(ACCURACY, runs[0].metrics.main.name)
            figures[file_name] = spec, " ".join(filter(None, notes))
    return figures


def draw_verdicts(result: Result) -> Spec:
    """Draw the verdicts of the first seed."""
    run = largest_run(result.runs)
    return verdicts_figure(result.verdicts[0].clients, run.names, run.metrics.main)


def _is_tested(one: Compared) -> bool:
    curve = () if one.curve is None else (one.curve[1],)
    return any(np.isfinite(values).any() for values in (*curve, *(run.scores for run in one.runs)))


def _runs(rows: Mapping[str, Compared]) -> list[Run]:
    return [run for one in rows.values() for run in one.runs]


def _metric(rows: Mapping[str, Compared], test: str) -> Metric:
    return _runs(rows)[0].metrics.main.in_test(test)


def _rounds(rows: Mapping[str, Compared], test: str) -> Spec | None:
    curves = {name: one.curve for name, one in rows.items() if one.curve is not None}
    return rounds_figure(curves, _metric(rows, test)) if curves else None


def _clients(rows: Mapping[str, Compared], test: str) -> Spec:
    several = len({run.seed for run in _runs(rows)}) > 1
    tested = {name: _tested(one.runs, test, several) for name, one in rows.items()}
    return clients_figure(tested, several_seeds=several, metric=_metric(rows, test))


def _tested(runs: Sequence[Run], test: str, several_seeds: bool) -> list[ClientScore]:
    return [
        ClientScore(
            score,
            # The same index is another client in another seed.
            run.name_in_sentence(client) + f", seed {run.seed}" * several_seeds,
            {
                "cluster": "left out" if cluster < 0 else str(cluster),
                "task": "–" if run.tasks is None else str(run.tasks[client]),
            },
            run.seed,
        )
        for run in runs
        for client, (score, cluster) in enumerate(
            zip(run.tests.get(test, run).scores.tolist(), run.clusters, strict=True)
        )
    ]


def _costs(rows: Mapping[str, Compared], test: str) -> Spec | None:
    costs = {
        name: (
            np.array([run.kilobytes(*PRE_ROUND, *TRAINING) / 1000 for run in one.runs]),
            np.array([run.tests.get(test, run).score for run in one.runs]),
        )
        for name, one in rows.items()
    }
    return traffic_figure(costs, _metric(rows, test)) if len(costs) > 1 else None


COMPARISONS = {
    "accuracy-per-round": Comparison(
        _rounds, note="Choose strategies in the legend.", of_curves=True
    ),
    "accuracy-per-client": Comparison(_clients, most=40),
    "accuracy-against-bytes": Comparison(_costs),
}
"""By the name of the file in a run's folder, where classes are predicted; in a page's order."""
