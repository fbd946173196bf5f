"""The main score over the rounds in clusters, as pictures show it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fl_app.results.run_result import RunResult


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
