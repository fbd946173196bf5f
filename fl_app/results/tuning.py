"""Which of a strategy's runs with several values of `tune` is best on validation samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fl_app.results.run_result import RunResult
from fl_app.results.statistics import middle_mean
from fl_app.results.tuned import Tried, Tuned
from fl_core.options import Scalar


def best_of(runs: Sequence[RunResult], values: Sequence[Mapping[str, Scalar]]) -> RunResult:
    """Return the run that is best for the middle half of the clients; of equals, the first.

    Parameters
    ----------
    runs : sequence of RunResult
        One for each of the values, in the order in which they ran.
    values : sequence of dict
        Of each run, by run-config key.
    """
    best = 0
    for place, run in enumerate(runs):
        if validates_better(run, runs[best]):
            best = place
    tried = [tried_in(run, own) for run, own in zip(runs, values, strict=True)]
    return replace(runs[best], tuned=Tuned(values=tried[best].values, tried=tried))


def validates_better(run: RunResult, other: RunResult) -> bool:
    """Return whether a run is better than another one on validation samples, not as good.

    By the middle half of the clients that have compared both.
    """
    own, others = (one.reports[-1].validated for one in (run, other))
    if not others:
        return bool(own)
    sign = -1 if run.metrics.main.lower_is_better else 1
    both = sorted(own.keys() & others.keys())
    gains = [sign * (own[client][""][1] - others[client][""][1]) for client in both]
    return bool(gains) and middle_mean(gains) > 0


def tried_in(run: RunResult, values: Mapping[str, Scalar]) -> Tried:
    """Return what a run with these values reached on validation samples, and what it cost."""
    return Tried(
        values=dict(values),
        score=validation_score(run),
        rounds=len(run.reports),
        bytes=sum(n for way, n in run.bytes.items() if not way.startswith("between-servers")),
        seconds=run.seconds["total"],
    )


def validation_score(run: RunResult) -> float:
    """Return the mean over clients of their score in the last test; NaN if none has compared."""
    found = [said[""][1] for said in run.reports[-1].validated.values()]
    return float(np.mean(found)) if found else math.nan
