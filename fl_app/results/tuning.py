"""The choice among a strategy's runs with several values of `tune`, by validation samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fl_app.results.run_result import RunResult
from fl_app.results.schema import Tried, Tuned
from fl_app.results.statistics import middle_mean
from fl_core.options import Scalar


def best_of(runs: Sequence[RunResult], values: Sequence[Mapping[str, Scalar]]) -> RunResult:
    """Return the run that is best for the middle half of the clients, the first of equal ones.

    `values` has each run's options.
    """
    best = 0
    for index, run in enumerate(runs):
        if validates_better(run, runs[best]):
            best = index
    tried = [
        Tried(
            values=dict(options),
            score=validation_score(run),
            rounds=len(run.reports),
            bytes=sum(n for way, n in run.bytes.items() if not way.startswith("between-servers")),
            seconds=run.seconds["total"],
        )
        for run, options in zip(runs, values, strict=True)
    ]
    return replace(runs[best], tuned=Tuned(values=tried[best].values, tried=tried))


def validates_better(run: RunResult, other: RunResult) -> bool:
    """Return whether a run is better for the middle half of the clients that compared both."""
    scores, others = (one.reports[-1].validated for one in (run, other))
    if not others:
        return bool(scores)
    sign = -1 if run.metrics.main.lower_is_better else 1
    both = sorted(scores.keys() & others.keys())
    gains = [sign * (scores[client][""][1] - others[client][""][1]) for client in both]
    return bool(gains) and middle_mean(gains) > 0


def validation_score(run: RunResult) -> float:
    """Return the mean over clients of their score in the last test; NaN if none has compared."""
    scores = [pairs[""][1] for pairs in run.reports[-1].validated.values()]
    return float(np.mean(scores)) if scores else math.nan
