"""Check the arguments of a strategy, as a run configuration's values are checked."""

from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import numpy as np

from fl_core.objectives.objective import LocalObjective
from fl_core.options import BY_STRATEGY, COUNT, SHARE, Rule, key_of, or_words, refusal
from strategies.aggregations.aggregation import Aggregation
from strategies.aggregations.robust import Krum
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.first_update import OnceByTraining
from strategies.secure_aggregation import why_not


def check_rounds(fraction_train: float, evaluate_every: int, fraction_evaluate: float) -> None:
    """Raise a ValueError unless clients can take part, and test, as the values say."""
    _check(SHARE, "fraction-train", fraction_train)
    _check(COUNT, "evaluate-every", evaluate_every)
    _check(SHARE, "fraction-evaluate", fraction_evaluate)


def check_parts(
    clustering: Clustering,
    aggregation: Aggregation,
    local: LocalObjective,
    secure_aggregation: bool,
) -> None:
    """Raise a ValueError if an option of a part is wrong, or a part lacks what it needs."""
    if conflict := beside_conflict(type(clustering), type(aggregation), type(local)):
        raise ValueError(f"{conflict}.")
    reason = why_not(type(clustering), type(aggregation))
    if secure_aggregation and reason:
        raise ValueError(
            f"secure-aggregation is true, but {reason}: choose another strategy, or set "
            "secure-aggregation to false."
        )
    for part in (clustering, aggregation, local):
        _check_options(part)
    if hasattr(clustering, "num_clusters"):
        rules = clustering.count_rules
        rule = or_words(COUNT, *rules) if rules else COUNT
        _check(rule, "num-clusters", clustering.num_clusters)


def beside_conflict(
    clustering: type[Clustering], aggregation: type[Aggregation], local: type[LocalObjective]
) -> str:
    """Return why arrays beside the model do not go with these parts; empty where they do."""
    if clustering.is_soft != local.trains_several:
        which = "all clusters' models" if local.trains_several else "one model"
        return (
            f"the objective {local.name or local.__name__} trains {which}, and the clustering "
            f"{clustering.name or clustering.__name__} "
            f"sends {'all' if clustering.is_soft else 'one'}: of ours, soft goes with fedem and "
            "fedrc, and with no other objective"
        )
    if local.first_beside is LocalObjective.first_beside:
        return ""
    what = f"the objective {local.name or local.__name__} needs means of arrays beside the model, "
    if aggregation.per_client or issubclass(aggregation, Krum):
        makes = "a model for each client" if aggregation.per_client else "no mean of all clients"
        return (
            f"{what}and the aggregation {aggregation.name or aggregation.__name__} makes {makes}: "
            "choose mean, lps-gps, median or trimmed-mean"
        )
    if issubclass(clustering, OnceByTraining):
        return (
            f"{what}which the clustering {clustering.name} loses when clients join late: choose "
            "one that does not wait for the first training, such as spectral or update"
        )
    return ""


def _check_options(part: Any) -> None:
    for one in fields(part) if is_dataclass(part) else ():
        if isinstance(word := getattr(part, one.name, None), str) and word == BY_STRATEGY:
            raise ValueError(
                f'{key_of(one)} is "{word}", which has a meaning in a run configuration alone: '
                "choose another value."
            )
        # Without a default, it is made of what a run configuration has, and is another thing.
        if (declared := one.metadata.get("option")) is None or one.default is MISSING:
            continue
        value = getattr(part, one.name)
        if value is not None or not declared.rule.none:
            _check(declared.rule, key_of(one), value)


def _check(rule: Rule, key: str, value: Any) -> None:
    """Raise a ValueError unless a value is allowed, and of a run configuration's type."""
    plain = value.item() if isinstance(value, np.generic) else value
    if rule.none:
        rule = replace(rule, allowed=rule.allowed.replace(f'"{rule.none}"', "None"), words=())
    found = rule.read(key, plain)
    if isinstance(found, str) and isinstance(plain, str):
        return  # perhaps written in another way, as names with blanks behind their commas
    if found != plain or (isinstance(found, int) and not isinstance(plain, int)):
        raise refusal(key, value, rule.allowed, rule.words)
