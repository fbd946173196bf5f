"""Checks of what files that anybody may have written say of clients."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from fl_core.metrics import Metric

_MOST_NAMED = 2_000  # clients of a matrix, as a run keeps it
_FARTHEST = 1e12  # whatever is measured: what is drawn is counted in steps


def check_scores(scores: NDArray[np.float64], metric: Metric) -> None:
    """Raise a ValueError unless all scores that are known can be such."""
    if not metric.allows(scores) or np.isinf(scores).any():
        raise ValueError(f"an {metric.title} is not {metric.bounds}")


def check_square(values: NDArray[np.float64], count: int) -> None:
    """Raise a ValueError unless it says of so many clients how near they are to each other."""
    if values.shape != (count, count) or count > _MOST_NAMED:
        raise ValueError(f"a matrix of {count} clients has shape {values.shape}")
    if (np.abs(values) > _FARTHEST).any():
        raise ValueError(f"clients are nearer or farther than {_FARTHEST:g}")


def check_clients(clients: Collection[int], count: int) -> None:
    """Raise a ValueError unless all of them are among so many."""
    if wrong := [client for client in clients if not 0 <= client < count]:
        raise ValueError(f"there is no client {wrong[0]}")
