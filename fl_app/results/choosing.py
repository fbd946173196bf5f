"""Which of a strategy's runs with several values of `tune` is best on validation samples."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fl_app.report.tuned import Tried
from fl_app.results.run_result import RunResult
from fl_core.options import Scalar


def tried_in(run: RunResult, values: Mapping[str, Scalar]) -> Tried:
    """Return what a run with these values found on validation samples, and what it cost."""
    return Tried(
        values=dict(values),
        score=validation_score(run),
        rounds=len(run.reports),
        bytes=sum(run.bytes.values()),
        seconds=run.seconds["total"],
    )


def validates_better(run: RunResult, other: RunResult) -> bool:
    """Return whether a run is better than another one on validation samples, not as good."""
    score, of_other = validation_score(run), validation_score(other)
    if run.metrics.main.lower_is_better:
        score, of_other = -score, -of_other
    return score > of_other or (math.isnan(of_other) and not math.isnan(score))


def validation_score(run: RunResult) -> float:
    """Return the mean over clients of their score in the last test; NaN if none has compared."""
    found = [compared[""][1] for compared in run.reports[-1].validated.values()]
    return float(np.mean(found)) if found else math.nan
