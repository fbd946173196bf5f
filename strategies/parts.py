"""How a strategy's clustering and its aggregation are called.

What those of somebody's own do wrong is said by their names. Otherwise a slip shows where something
else meets it: at a client that cannot read its model, or in a line of this project. The project's
own parts are tested for all this, and not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fl_core.own_code import what_failed
from fl_core.text import listed
from fl_core.wire.protocol import NDArrays
from strategies.aggregations.aggregation import Aggregation
from strategies.clusterings.clustering import Clustering
from strategies.engine.rounds import Clusters, Round, Update
from strategies.engine.training import Training


def combine(
    updates: list[Update], training: Training, clustering: Clustering, aggregation: Aggregation
) -> None:
    """Let the clustering look at the updates, then aggregate them."""
    training.num_examples.update({u.client: u.num_examples for u in updates})
    participants = [u.client for u in updates]
    seen = training.as_round(participants, updates)
    clusters = clusters_by(clustering, "after_training", [seen], training)
    training.regroup(clusters, clustering.keeps_models)
    of_client = training.clusters.of_client
    moved = [replace(u, cluster=of_client[u.client]) for u in updates]
    state = training.as_round(participants, moved)
    training.hold(models_by(aggregation, state))
    sent = aggregation.bytes_between_servers(state)
    training.server_traffic.up += sent
    training.server_traffic.down += sent


def clusters_by(
    clustering: Clustering, method: str, arguments: Iterable[Any], training: Training
) -> Clusters:
    """Return what a method of a clustering says of a training's clients.

    Raises
    ------
    RuntimeError
        If it fails, or returns no clusters, others than 0, 1, …, or clients that there are not.
    """
    found: Clusters = _called(clustering, method, arguments)
    if _is_ours(clustering):
        return found
    where = f"{type(clustering).__name__}.{method}"
    if not isinstance(found, Clusters):
        raise RuntimeError(f"{where} returned {_kind(found)}, but Clusters are expected.")
    if not found.of_client:
        raise RuntimeError(f"{where} returned Clusters without any client.")
    known = {*training.roster.nodes, *training.clusters.of_client}
    if strange := sorted(found.of_client.keys() - known, key=str):
        raise RuntimeError(
            f"{where} put clients that there are not into clusters: {_some(strange)}."
        )
    for client, cluster in found.of_client.items():
        if not isinstance(cluster, int | np.integer) or cluster < 0:
            raise RuntimeError(
                f"{where} put client {client} into cluster {cluster!r}, but clusters are whole "
                "numbers from 0."
            )
    return found


def models_by(aggregation: Aggregation, state: Round) -> list[NDArrays]:
    """Return the models that an aggregation makes of a round.

    Raises
    ------
    RuntimeError
        If it fails, or does not return as many models as there are, with the same arrays, of the
        same shapes and dtypes, and finite.
    """
    found: list[NDArrays] = _called(aggregation, "__call__", (state,))
    if _is_ours(aggregation):
        return found
    where = f"{type(aggregation).__name__}.__call__"
    if not isinstance(found, Sequence) or len(found) != len(state.models):
        number = f" of {len(found)}" if isinstance(found, Sequence) else ""
        raise RuntimeError(
            f"{where} returned {_kind(found)}{number}, but a list of {len(state.models)} models is "
            "expected, as many as state.models."
        )
    for place, (model, before) in enumerate(zip(found, state.models, strict=True)):
        if not isinstance(model, dict) or model.keys() != before.keys():
            raise RuntimeError(
                f"{where} returned {_kind(model)} as model {place}, but a dict of "
                f"{_some(before)} is expected."
            )
        for name, array in model.items():
            if wrong := _wrong(array, before[name]):
                raise RuntimeError(f"{where} returned model {place} whose {name} {wrong}.")
    return found


def _called(part: Any, method: str, arguments: Iterable[Any]) -> Any:
    if _is_ours(part):
        return getattr(part, method)(*arguments)
    try:
        return getattr(part, method)(*arguments)
    except (Exception, SystemExit) as error:
        raise RuntimeError(
            f"{type(part).__name__}.{method} fails: {what_failed(error)}."
        ) from error


def _is_ours(part: Any) -> bool:
    return type(part).__module__.partition(".")[0] == __name__.partition(".")[0]


def _wrong(array: Any, before: np.ndarray[Any, Any]) -> str:
    if not isinstance(array, np.ndarray | np.generic):  # NumPy makes numbers of sums
        return f"is {_kind(array)}, but a NumPy array is expected"
    if (array.shape, array.dtype) != (before.shape, before.dtype):
        return (
            f"is {array.dtype} of shape {array.shape}, but {before.dtype} of shape {before.shape} "
            "is expected"
        )
    return "" if np.isfinite(array).all() else "holds NaN or infinity"


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _some(names: Iterable[Any]) -> str:
    return listed([str(name) for name in names], 5, ", ")
