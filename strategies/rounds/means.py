"""Means of models: of the models that a cluster's clients have, or of those that they trained."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays, as_type
from strategies.rounds.round_state import Clusters, Round


def cluster_models(state: Round) -> list[NDArrays]:
    """Return each cluster's model: the mean of its clients' models; of an empty one, the first."""
    if not state.per_client:
        return list(state.models)
    held = dict(zip(state.clusters.of_client, state.models, strict=True))
    members = [state.clusters.members(cluster) for cluster in range(state.clusters.count)]
    return mean_held_models(held, members, state.models[0])


def mean_held_models(
    held: Mapping[int, NDArrays], members: Sequence[Iterable[int]], otherwise: NDArrays
) -> list[NDArrays]:
    """Return the models with which new clusters start: each the mean of its members' models.

    `held` has each client's model, none of newcomers; clusters of these alone start from
    `otherwise`.
    """
    models = []
    for clients in members:
        models_held = [held[client] for client in clients if client in held]
        same = all(model is models_held[0] for model in models_held)
        models.append(
            (models_held[0] if models_held else otherwise)
            if same
            else mean_model(models_held, [1] * len(models_held))
        )
    return models


def models_after_joining(
    held: Mapping[int, NDArrays], before: Clusters, now: Clusters, otherwise: NDArrays
) -> list[NDArrays]:
    """Return each client's model where clusters retain theirs: who joins one gets its model.

    That is the mean of the models of its clients `before`, or, of an empty cluster, `now.unheld`.
    """
    members = [before.members(cluster) for cluster in range(now.count)]
    models = [
        now.unheld.get(k, m) for k, m in enumerate(mean_held_models(held, members, otherwise))
    ]
    return [
        held[client] if before.of_client.get(client) == cluster else models[cluster]
        for client, cluster in now.of_client.items()
    ]


def mean_model(models: Sequence[NDArrays], weights: Sequence[float]) -> NDArrays:
    """Return the weighted mean of models, summed in float64 and cast back to each array's type.

    Integers and masks are rounded. A ValueError says that the sum of the weights is not positive.
    """
    total = float(sum(weights))
    if not 0 < total < float("inf"):
        raise ValueError(
            f"a mean needs a positive sum of weights, and a finite one, but theirs is {total:g}."
        )
    return {name: _mean([model[name] for model in models], weights, total) for name in models[0]}


def _mean(
    arrays: Sequence[NDArray[np.generic]], weights: Sequence[float], total: float
) -> NDArray[np.generic]:
    summed = np.zeros(arrays[0].shape, np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        summed += np.multiply(array, weight / total, dtype=np.float64)
    return as_type(arrays[0].dtype, summed)
