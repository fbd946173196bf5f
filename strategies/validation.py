"""Call a strategy's clustering and aggregation, and check what user-defined ones return.

Otherwise a mistake would show later, at a client, or in a line of this project.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.models.layers import split, with_layer, without_layer
from fl_core.objectives.objective import LocalObjective
from fl_core.text import listed, type_name
from fl_core.user_code import describe_error, is_shutdown
from strategies.aggregations.aggregation import Aggregation
from strategies.clusterings.clustering import Clustering
from strategies.rounds.round_state import Clusters, Round, Update
from strategies.rounds.training import Training

P = ParamSpec("P")
Returned = TypeVar("Returned")


def combine(
    updates: list[Update],
    training: Training,
    clustering: Clustering,
    aggregation: Aggregation,
    local: LocalObjective,
) -> None:
    """Let the clustering see the updates, then aggregate them."""
    training.num_examples.update({u.client: u.num_examples for u in updates})
    participants = [*dict.fromkeys(u.client for u in updates)]
    seen = training.as_compared(participants, updates)
    clusters = clusters_by(training, clustering.after_training, seen)
    training.regroup(clusters, clustering.retains_models)
    of_client = training.clusters.of_client
    moved = (
        updates
        if training.sends_all
        else [replace(u, cluster=of_client[u.client]) for u in updates]
    )
    state = (training.as_round if local.returns_beside else training.as_compared)(
        participants, moved
    )
    set_models(models_by(aggregation, state), training, local, participants)
    sent = _called(aggregation.bytes_between_servers, state)
    training.server_traffic.up += sent
    training.server_traffic.down += sent


def set_models(
    models: list[NDArrays], training: Training, local: LocalObjective, participants: Iterable[int]
) -> None:
    """Set the combined models, and beside each what the objective makes of it, checked."""
    names = split(training.initial, [protocol.BESIDE])[1].keys()
    if not names:
        training.set_models(models)
        return
    trained, members = set(participants), defaultdict[int, list[int]](list)
    for client, number in training.model_of_client.items():
        for one in range(len(models)) if training.sends_all else [number]:
            members[one].append(client)
    found, counts = [], []
    for number, (model, old) in enumerate(zip(models, training.models, strict=True)):
        counts.append(len(trained & {*members[number]}))
        before = without_layer({name: old[name] for name in names})
        combined = without_layer({name: model.get(name, old[name]) for name in names})
        if share := counts[-1] / max(1, len(members[number])):
            combined = _called(local.combine_beside, before, combined, share)
            _check_arrays(_name(local.combine_beside), "", combined, before)
        found.append({**model, **with_layer(protocol.BESIDE, combined)})
    alone = [split(model, [protocol.BESIDE])[0] for model in models]
    if sum(counts) and (common := _called(local.common_beside, alone, counts)):
        found = [{**one, **with_layer(protocol.BESIDE, common)} for one in found]
    training.set_models(found)


def clusters_by(
    training: Training, method: Callable[P, Clusters], *arguments: P.args, **named: P.kwargs
) -> Clusters:
    """Return what a method of a clustering returns, checked; a RuntimeError says what is wrong."""
    found = _called(method, *arguments, **named)
    if _is_ours(method):
        return found
    # Who has failed since it was asked may still be among them.
    registry = training.registry
    known = {*registry.nodes, *registry.failures, *training.clusters.of_client}
    if wrong := _wrong_clusters(found, known):
        raise RuntimeError(f"{_name(method)} {wrong}.")
    if any(type(number) is not int for pair in found.of_client.items() for number in pair):
        plain = {int(client): int(cluster) for client, cluster in found.of_client.items()}
        return replace(found, of_client=plain)  # NumPy's could not be written down
    return found


def _wrong_clusters(found: Any, known: Collection[int]) -> str:
    if not isinstance(found, Clusters):
        return f"returned {_kind(found)}, but Clusters are expected"
    of_client: Any = found.of_client
    if not isinstance(of_client, dict) or not of_client:
        return f"returned Clusters of {_kind(of_client)}, but a dict of clients is expected"
    if unknown := sorted(of_client.keys() - known, key=str):
        return f"put unknown clients into clusters: {_some(unknown)}"
    most = found.num_clusters
    for client, cluster in of_client.items():
        whole = isinstance(cluster, int | np.integer)
        if not whole or cluster < 0 or (most is not None and cluster >= most):
            expected = "whole numbers from 0" if most is None else f"0 to {most - 1} (num_clusters)"
            return f"put client {client} into cluster {cluster!r}, but clusters are {expected}"
    return ""


def models_by(aggregation: Aggregation, state: Round) -> list[NDArrays]:
    """Return the models that an aggregation makes of a round; a RuntimeError says what is wrong."""
    found = _called(aggregation.__call__, state)
    if _is_ours(aggregation.__call__):
        return found
    where = _name(aggregation.__call__)
    if not isinstance(found, Sequence) or len(found) != len(state.models):
        number = f" of {len(found)}" if isinstance(found, Sequence) else ""
        raise RuntimeError(
            f"{where} returned {_kind(found)}{number}, but a list of {len(state.models)} models is "
            "expected, as many as state.models."
        )
    seen = set()
    for place, (model, before) in enumerate(zip(found, state.models, strict=True)):
        if (both := (id(model), id(before))) in seen:
            continue
        seen.add(both)
        _check_arrays(where, f"model {place}", model, before)
    return found


def _check_arrays(where: str, what: str, found: Any, before: NDArrays) -> None:
    """Raise a RuntimeError unless arrays have the names, shapes and types of those before."""
    if not isinstance(found, dict) or found.keys() != before.keys():
        raise RuntimeError(
            f"{where} returned {_kind(found)}{what and f' as {what}'}, but a dict of "
            f"{_some(before)} is expected."
        )
    for name, array in found.items():
        if wrong := _wrong(array, before[name]):
            raise RuntimeError(f"{where} returned {what or 'arrays'}, but its {name} {wrong}.")


def _called(method: Callable[P, Returned], *arguments: P.args, **named: P.kwargs) -> Returned:
    try:
        return method(*arguments, **named)
    except (Exception, SystemExit) as error:
        if _is_ours(method) or is_shutdown(error):
            raise
        raise RuntimeError(f"{_name(method)} fails: {describe_error(error)}.") from error


def _part_of(method: Callable[..., object]) -> object:
    return getattr(method, "__self__", method)  # itself, where it is static


def _name(method: Callable[..., object]) -> str:
    return f"{type(_part_of(method)).__name__}.{method.__name__}"


def is_ours(part: type) -> bool:
    """Return whether a clustering, an aggregation or an objective is part of this project."""
    return part.__module__.partition(".")[0] in ("fl_core", "strategies")


def _is_ours(method: Callable[..., object]) -> bool:
    return is_ours(type(_part_of(method)))


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
    return "None" if value is None else type_name(value)


def _some(names: Iterable[Any]) -> str:
    return listed([str(name) for name in names], 5, ", ")
