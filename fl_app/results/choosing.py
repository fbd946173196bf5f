"""Which of a strategy's runs with several values of `tune` is best on validation samples.

For all clients together, and for a cluster for which another one is better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fl_app.report.tuned import Tried, Tuned
from fl_app.report.verdicts import ERROR
from fl_app.results.paired import Pair, holm_adjusted, middle_mean
from fl_app.results.run_result import RunResult
from fl_app.results.verdicts import pair_of
from fl_core.options import Scalar
from strategies import RoundReport


def tried_in(run: RunResult, values: Mapping[str, Scalar]) -> Tried:
    """Return what a run with these values found on validation samples, and what it cost."""
    return Tried(
        values=dict(values),
        score=validation_score(run),
        rounds=len(run.reports),
        bytes=sum(n for way, n in run.bytes.items() if not way.startswith("between-servers")),
        seconds=run.seconds["total"],
    )


def validates_better(
    run: RunResult, other: RunResult, clients: Collection[int] | None = None
) -> bool:
    """Return whether a run is better than another one on validation samples, not as good.

    By the middle half of the clients that have compared both, or of some `clients` of them.
    """
    own, others = (one.reports[-1].validated for one in (run, other))
    if not others:
        return bool(own)
    both = own.keys() & others.keys()
    if clients is not None:
        both &= {*clients}
    sign = -1 if run.metrics.main.lower_is_better else 1
    gains = [sign * (own[client][""][1] - others[client][""][1]) for client in sorted(both)]
    return bool(gains) and middle_mean(gains) > 0


def validation_score(run: RunResult) -> float:
    """Return the mean over clients of their score in the last test; NaN if none has compared."""
    found = [said[""][1] for said in run.reports[-1].validated.values()]
    return float(np.mean(found)) if found else math.nan


def best_of(runs: Sequence[RunResult], values: Sequence[Mapping[str, Scalar]]) -> RunResult:
    """Return what a strategy that has tried several values has come to.

    That is the run which is best for the middle half of all clients; of equals, the first. A
    cluster of several clients for which another one is better has its models and scores from that.
    A client that is alone in its cluster has so only if its validation samples surely say so, by
    McNemar's test, or Student's of numbers, corrected by Holm for the number of values: few samples
    choose by chance.

    Parameters
    ----------
    runs : sequence of RunResult
        One for each of the values, in the order in which they ran.
    values : sequence of dict
        Of each run, by run-config key.
    """
    tried = [tried_in(run, own) for run, own in zip(runs, values, strict=True)]
    best = _best_place(runs, 0, None)
    others = of_clusters(runs, best)
    found = _merged(runs, best, others) if others else runs[best]
    own = {str(cluster): tried[place].values for cluster, place in others.items()}
    return replace(
        found, tuned=Tuned(values=tried[best].values, tried=list(tried), of_clusters=own)
    )


def of_clusters(runs: Sequence[RunResult], best: int) -> dict[int, int]:
    """Return which run a cluster takes in place of the best one, if any, by cluster.

    Empty where values make other clusters.
    """
    clusters = runs[best].of_client
    if any(run.of_client != clusters for run in runs):
        return {}
    found = {}
    for cluster in sorted(set(clusters.values())):
        members = [client for client, own in clusters.items() if own == cluster]
        place = (
            _best_place(runs, best, members) if len(members) > 1 else _sure(runs, best, *members)
        )
        if place != best:
            found[cluster] = place
    return found


def _best_place(runs: Sequence[RunResult], best: int, clients: Collection[int] | None) -> int:
    """Return which run is best for some clients; of equals, `best`, or else the first."""
    for place, run in enumerate(runs):
        if validates_better(run, runs[best], clients):
            best = place
    return best


def _sure(runs: Sequence[RunResult], best: int, client: int) -> int:
    """Return which run is best for a client of those that surely are better for it than `best`."""
    others = {
        place: pair
        for place, run in enumerate(runs)
        if place != best and (pair := _compared(run, runs[best], client)) is not None
    }
    adjusted = holm_adjusted([pair.p_value() for pair in others.values()])
    sure = [
        place
        for (place, pair), p_value in zip(others.items(), adjusted, strict=True)
        if pair.gain > 0 and p_value <= ERROR
    ]
    return max(sure, key=lambda place: others[place].gain, default=best)


def _compared(run: RunResult, other: RunResult, client: int) -> Pair | None:
    tables = {one.label: one.reports[-1].validated for one in (run, other)}
    is_number = run.metrics.main.lower_is_better
    return pair_of(tables, client, run.label, other.label, is_number)


def _merged(runs: Sequence[RunResult], best: int, others: Mapping[int, int]) -> RunResult:
    """Return the best run, in which some clusters have what they have in another one.

    Bytes and seconds are the best one's.
    """
    first, clusters = runs[best], runs[best].of_client
    source = {client: runs[others.get(own, best)] for client, own in clusters.items()}
    models = {}
    for name, model in first.models.items():
        kind, _, number = name.partition("-")
        cluster = int(number) if kind == "cluster" else clusters[int(number)]
        models[name] = runs[others[cluster]].models[name] if cluster in others else model
    return replace(
        first,
        models=models,
        tasks_per_round=max((run.tasks_per_round for run in source.values()), key=len),
        reports=_merged_reports(first, source),
        labels={client: run.label for client, run in source.items() if run is not first},
        not_kept={
            client: why for client, run in source.items() if (why := run.not_kept.get(client))
        },
    )


def _merged_reports(first: RunResult, source: Mapping[int, RunResult]) -> list[RoundReport]:
    """Return each round's report with what it says of a client taken from that client's own run.

    Of one that ended earlier, the last scores stand in each round in which others are tested.
    """
    merged = []
    for number in range(max(len(run.reports) for run in source.values())):
        mine = _report(first, number)
        reports = {client: _report(run, number) for client, run in source.items()}
        going = {c: one for c, one in reports.items() if number < len(source[c].reports)}
        scored = reports if any(one.tested for one in going.values()) else going
        merged.append(
            replace(
                mine,
                round=number + 1,
                train_loss=float(np.mean([one.train_loss for one in reports.values()])),
                scores=_scores({client: one.scores for client, one in scored.items()}),
                other_scores=_scores({client: one.other_scores for client, one in scored.items()}),
                validated=_said({client: one.validated for client, one in scored.items()}),
                samples=_said({client: one.samples for client, one in going.items()}),
            )
        )
    return merged


def _said(of_reports: Mapping[int, Mapping[int, Any]]) -> dict[int, Any]:
    """Return what each client's own report says of it, if anything."""
    return {client: said[client] for client, said in of_reports.items() if client in said}


def _scores(
    of_reports: Mapping[int, Mapping[str, Mapping[int, float]]],
) -> dict[str, dict[int, float]]:
    """Return what each client's own report says of its scores, by their names."""
    names = dict.fromkeys(name for said in of_reports.values() for name in said)
    return {
        name: _said({client: said.get(name, {}) for client, said in of_reports.items()})
        for name in names
    }


def _report(run: RunResult, number: int) -> RoundReport:
    return run.reports[min(number, len(run.reports) - 1)]
