"""`tune`: values that each strategy tries, and of which validation samples choose one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from clients.settings import AUTO, TrainingSettings
from fl_core.objectives.known import OBJECTIVES
from fl_core.options import (
    COUNT,
    NotAllowedError,
    Option,
    Rule,
    Scalar,
    did_you_mean,
    options_of,
    or_words,
)
from strategies.catalogue import parameters, system_of
from strategies.clusterings.agglomeration import COUNT_RULES

AS_TASKS = "num-tasks"
NUMBER_OF_CLUSTERS = or_words(COUNT, AUTO, AS_TASKS, *COUNT_RULES)
_NUM_CLUSTERS = "num-clusters"

OF_TRAINING = {
    key: one for key, one in options_of(TrainingSettings).items() if key not in ("loss", "metric")
}
_OF_OBJECTIVES = {key: one for part in OBJECTIVES.values() for key, one in options_of(part).items()}
TUNABLE: dict[str, Option] = {
    **OF_TRAINING,
    **{key: one for key, one in _OF_OBJECTIVES.items() if key != "private-layers"},
    _NUM_CLUSTERS: Option(AS_TASKS, NUMBER_OF_CLUSTERS, "", _NUM_CLUSTERS, ""),
}
"""What only decides how clients train, and how many groups there are."""

_EXAMPLE = "learning-rate=0.001,0.003 ditto-weight=0.1,1"


def values_of(tune: str) -> dict[str, tuple[Scalar, ...]]:
    """Return the values to try, by run-config key.

    Raises
    ------
    ValueError
        If a key is unknown or there twice, or has a value that is not allowed, or none beside it.

    Examples
    --------
    >>> values_of("learning-rate=0.001,0.003 optimizer=adam,sgd")
    {'learning-rate': (0.001, 0.003), 'optimizer': ('adam', 'sgd')}
    """
    found: dict[str, tuple[Scalar, ...]] = {}
    for word in tune.split():
        key, equals, listed = word.partition("=")
        if not equals:
            raise NotAllowedError
        if key not in TUNABLE:
            meant = did_you_mean(key, TUNABLE) or f"Those that can are {', '.join(TUNABLE)}."
            raise ValueError(f"tune names {key}, which cannot be tuned. {meant}")
        if key in found:
            raise ValueError(f"tune names {key} twice: give it once, with all of its values.")
        rule = TUNABLE[key].rule
        found[key] = tuple(rule.read(f"{key} in tune", one) for one in listed.split(","))
        if len(found[key]) < 2 or len(set(found[key])) < len(found[key]):
            raise ValueError(
                f"tune has {word}, but values to choose from are several, and different: add some, "
                f"or set {key} itself."
            )
    return found


def _parse(value: Any) -> str:
    values = values_of(str(value))
    return " ".join(f"{key}={','.join(map(str, own))}" for key, own in values.items())


TUNE = Rule(f'empty, or options with their values, as in "{_EXAMPLE}"', _parse)


def combinations(tune: str, strategy: str) -> list[dict[str, Scalar]]:
    """Return what a strategy tries: every combination of the values that count for it.

    One that no value counts for trains once, with none of them.
    """
    own = {key: tried for key, tried in values_of(tune).items() if counts(key, strategy)}
    return [dict(zip(own, chosen, strict=True)) for chosen in product(*own.values())]


def tried_values(told: str) -> dict[str, Any]:
    """Return what a client is told to train by, from JSON, by run-config key.

    Raises
    ------
    ValueError
        If that is more than how it trains, or a value is not allowed.
    """
    values: dict[str, Any] = json.loads(told)
    for key in values:
        if key not in OF_TRAINING:
            raise ValueError(f"this client is told to try {key}, which cannot be tuned.")
    return {key: OF_TRAINING[key].rule.read(key, value) for key, value in values.items()}


def num_trainings(tune: str, strategies: Sequence[str]) -> int:
    """Return how often a strategy is trained on a seed."""
    return sum(len(combinations(tune, strategy)) for strategy in strategies)


def label_of(strategy: str, values: Mapping[str, Scalar]) -> str:
    """Return what a strategy with these values is called beside the others that it tries.

    Examples
    --------
    >>> label_of("ditto", {"ditto-weight": 0.1}), label_of("ditto", {})
    ('ditto,ditto-weight=0.1', 'ditto')
    """
    return ",".join([strategy, *(f"{key}={value}" for key, value in values.items())])


def counts(key: str, strategy: str) -> bool:
    """Return whether a strategy does otherwise if an option has another value."""
    system = system_of(strategy)
    if key == _NUM_CLUSTERS:
        return "num_clusters" in parameters(system.clustering)
    own = options_of(system.objective)
    replaced = key == "local-epochs" and "body-epochs" in own
    return key in own or (key in OF_TRAINING and not replaced)
