"""How the models of clients become the models of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fl_core.protocol import NDArrays


@dataclass(frozen=True, eq=False)
class Update:
    """What one client returned after local training."""

    client: int
    cluster: int
    arrays: NDArrays
    num_examples: float


class Aggregation(Protocol):
    """From the clusters' current models and the clients' updates to the clusters' next models."""

    def __call__(self, models: Sequence[NDArrays], updates: Sequence[Update]) -> list[NDArrays]:
        """Return one model per cluster; `models` and `updates` are left as they are."""
        ...


@dataclass(frozen=True)
class ClusterMean:
    """FedAvg inside each cluster (RCC-PFL, Algorithm 1, line 9).

    Attributes
    ----------
    weighted : bool
        False: the plain mean over the cluster's clients, as in the paper; True: weighted by their
        numbers of samples. A cluster of which no client answered keeps its model.
    """

    weighted: bool = False

    def __call__(self, models: Sequence[NDArrays], updates: Sequence[Update]) -> list[NDArrays]:
        """Return each cluster's mean, whatever the order of `updates`."""
        members: list[list[Update]] = [[] for _ in models]
        for update in sorted(updates, key=lambda u: u.client):
            members[update.cluster].append(update)
        return [
            mean_model(
                [u.arrays for u in group],
                [u.num_examples if self.weighted else 1 for u in group],
            )
            if group
            else dict(model)
            for model, group in zip(models, members, strict=True)
        ]


def mean_model(models: Sequence[NDArrays], weights: Sequence[float]) -> NDArrays:
    """Return the weighted mean of models, summed in float64 and cast back to each array's type.

    Integer buffers (a batch-norm's step count) are rounded and keep their type.

    Parameters
    ----------
    models : sequence of dicts
        The same names and shapes in each.
    weights : sequence of float
        Not negative, with a positive sum.

    Raises
    ------
    ValueError
        If the weights do not have a positive sum.
    """
    total = float(sum(weights))
    if not total > 0:
        raise ValueError(f"a mean needs a positive sum of weights, but theirs is {total:g}.")
    return {name: _mean([model[name] for model in models], weights, total) for name in models[0]}


def _mean(
    arrays: Sequence[NDArray[np.generic]], weights: Sequence[float], total: float
) -> NDArray[np.generic]:
    summed = np.zeros(arrays[0].shape, np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        summed += np.multiply(array, weight / total, dtype=np.float64)
    kind = arrays[0].dtype
    return (np.rint(summed) if np.issubdtype(kind, np.integer) else summed).astype(kind)
