"""`tune`: the values that each strategy tries; validation samples choose the best."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from clients.settings import AUTO, TrainingSettings
from fl_core.objectives.known import OBJECTIVES
from fl_core.options import (
    COUNT,
    TEXT,
    NotAllowedError,
    Option,
    Rule,
    Scalar,
    did_you_mean,
    key_values,
    options_of,
    or_words,
    typed,
)
from strategies.catalogue import parameters, system_of, user_options
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
"""Options that only decide how clients train, and how many groups there are."""

_EXAMPLE = "learning-rate=0.001,0.003 ditto-weight=0.1,1"


def values_of(tune: str, strategies: Sequence[str] = ()) -> dict[str, tuple[Scalar, ...]]:
    """Return the values to try, by run-config key; user-defined parts of strategies have more.

    The values of unknown keys are texts: see `unknown_keys`.
    """
    found: dict[str, tuple[Scalar, ...]] = {}
    tunable = {**user_options(strategies), **TUNABLE}
    for word in tune.split():
        key, equals, listed = word.partition("=")
        if not equals:
            raise NotAllowedError
        if key in found:
            raise ValueError(f"tune names {key} twice: give it once, with all of its values.")
        rule = tunable[key].rule if key in tunable else TEXT
        found[key] = tuple(rule.read(f"{key} in tune", one) for one in listed.split(","))
        if len(found[key]) < 2 or len(set(found[key])) < len(found[key]):
            raise ValueError(
                f"tune has {word}, but it needs at least two different values: add some, or set "
                f"{key} itself."
            )
    return found


def _parse(value: Any) -> str:
    values = values_of(str(value))
    return " ".join(f"{key}={','.join(map(typed, some))}" for key, some in values.items())


TUNE = Rule(f'empty, or options with their values, as in "{_EXAMPLE}"', _parse)


def unknown_keys(tune: str, strategies: Sequence[str]) -> list[str]:
    """Return a sentence for each key that cannot be tuned, of these strategies."""
    tunable = {**TUNABLE, **user_options(strategies)}
    return [
        f"tune names {key}, which cannot be tuned. "
        + (did_you_mean(key, tunable) or f"The keys are {', '.join(tunable)}.")
        for key in values_of(tune)
        if key not in tunable
    ]


def combinations(tune: str, strategy: str) -> list[dict[str, Scalar]]:
    """Return the combinations that a strategy tries, of the values that have an effect on it.

    If none has, the strategy trains once, with an empty combination.
    """
    values = values_of(tune, [strategy])
    used = {key: tried for key, tried in values.items() if has_effect(key, strategy)}
    return [dict(zip(used, chosen, strict=True)) for chosen in product(*used.values())]


def read_tuned_values(text: str) -> dict[str, Any]:
    """Read the values that a client is to train by, from JSON, by run-config key."""
    values: dict[str, Any] = json.loads(text)
    for key in values:
        if key not in OF_TRAINING:
            raise ValueError(f"the server sent {key} to be tuned, which is no option of training.")
    return {key: OF_TRAINING[key].rule.read(key, value) for key, value in values.items()}


def num_trainings(tune: str, strategies: Sequence[str]) -> int:
    """Return the number of trainings of all strategies on a seed."""
    return sum(len(combinations(tune, strategy)) for strategy in strategies)


def label_of(strategy: str, values: Mapping[str, Scalar]) -> str:
    """Return the name of a strategy with these values, such as ditto,ditto-weight=0.1."""
    return ",".join([strategy, *key_values(values)])


def has_effect(key: str, strategy: str) -> bool:
    """Return whether an option has an effect on a strategy."""
    system = system_of(strategy)
    if key == _NUM_CLUSTERS:
        return "num_clusters" in parameters(system.clustering)
    if key in user_options([strategy]):
        return True
    of_objective = options_of(system.objective)
    replaced = key == "local-epochs" and "body-epochs" in of_objective
    return key in of_objective or (key in OF_TRAINING and not replaced)
