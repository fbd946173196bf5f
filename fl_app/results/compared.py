"""The main score over the rounds, of strategies and of their clusters, as pictures show it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.results.run_result import RunResult


def accuracy_curves(
    runs: Sequence[RunResult], strategies: Sequence[str]
) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return the tested rounds, (R,), and the mean score there, (S, R), by strategy."""
    curves = {}
    for name in strategies:
        own = [run for run in runs if run.strategy == name]
        rounds = sorted({r.round for run in own for r in run.reports if r.tested})
        values = [[r.score for r in run.reports if r.round in rounds] for run in own]
        curves[name] = (np.array(rounds, np.int64), np.array(values, np.float64))
    return curves


def cluster_curves(
    run: RunResult,
) -> tuple[NDArray[np.int64], dict[int, NDArray[np.float64]]]:
    """Return the evaluated rounds, (R,), and each cluster's mean score there, (R,).

    The cluster with the most clients, over all these rounds, comes first.
    """
    reports = [report for report in run.reports if report.tested]
    tested: dict[int, list[list[float]]] = {}
    for place, report in enumerate(reports):
        for client, score in report.tested.items():
            rounds = tested.setdefault(report.clusters[client], [[] for _ in reports])
            rounds[place].append(score)
    largest = sorted(tested, key=lambda c: (-sum(map(len, tested[c])), c))
    means = {c: np.array([np.mean(a) if a else math.nan for a in tested[c]]) for c in largest}
    return np.array([report.round for report in reports], np.int64), means
