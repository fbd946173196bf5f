"""The rules on combinations of run-config values: a key, the condition, and the reason.

Each option checks its value alone (`fl_core.options`); `data_checks` has the rules that need data.
`values` are the fields of `fl_app.config.run_config.Config`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clients.privacy import PROJECTED
from fl_app.config.tuning import TUNABLE, has_effect, unknown_keys, values_of
from fl_core.data.settings import ALL_SITES, NOT_STANDARDISED, REAL_DEVICES
from fl_core.options import at_value, typed
from strategies.catalogue import ALONE, parameters, system_of
from strategies.checks import beside_conflict
from strategies.secure_aggregation import why_not

LAST_SEED = 2**32 - 1

Values = Mapping[str, Any]
Broken = Iterator[tuple[str, str]]
"""Pairs of a key and the rest of the sentence "KEY is VALUE, but …"."""


def broken_rules(values: Values) -> Iterator[str]:
    """Yield a sentence for each rule that the values break."""
    yield from unknown_keys(values["tune"], values["strategy"])
    for rules in (_strategies, _privacy, _validation, _devices, _rounds, _secure_sums):
        yield from _sentences(rules(values), values)


def broken_secure_sums(values: Values) -> Iterator[str]:
    """Yield the sentences that a client checks, too: it imports no user-defined strategies."""
    yield from _sentences(_secure_sums(values), values)


def _sentences(broken: Broken, values: Values) -> Iterator[str]:
    for key, reason in broken:
        yield f"{key} is {_shown(values[field_of(key)])}, but {reason}."


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) else typed(value)


def field_of(key: str) -> str:
    """Return the field of a run-config key."""
    return key.replace("-", "_")


_ONE_SHOT = {"eigenvectors", "centroids"}  # shared before any training


def one_shot(strategies: Sequence[str]) -> list[str]:
    """Return the strategies that group clients before any training."""
    return [name for name in strategies if _shared(name) in _ONE_SHOT]


def shares_eigenvectors(strategies: Sequence[str]) -> bool:
    """Return whether clients share eigenvectors in any of these strategies."""
    return any(_shared(name) == "eigenvectors" for name in strategies)


def _shared(strategy: str) -> str:
    return system_of(strategy).clustering.shares


def _strategies(values: Values) -> Broken:
    systems = {name: system_of(name) for name in values["strategy"]}
    has_weights = any("weighted" in parameters(one.aggregation) for one in systems.values())
    if values["weighted_mean"] and not has_weights:
        names = ", ".join(systems)
        yield "weighted-mean", f"{names} weights all clients equally: set weighted-mean to false"
    for name, system in systems.items():
        if system.objective.assumes_sgd and (values["optimizer"] != "sgd" or values["momentum"]):
            advice = "set optimizer to sgd and momentum to 0"
            yield "optimizer", f"{name} assumes SGD without momentum: {advice}"
    for system in systems.values():
        if conflict := beside_conflict(system.clustering, system.aggregation, system.objective):
            yield "strategy", conflict
    for name, system in systems.items():
        reason = why_not(system.clustering, system.aggregation)
        if values["secure_aggregation"] and reason:
            advice = f"leave the strategy {name} out, or set secure-aggregation to false"
            yield "secure-aggregation", f"{reason}: {advice}"
    if (last := values["seed"] + values["repeats"] - 1) > LAST_SEED:
        too_large = f"the last seed would be {last}, and seeds are at most {LAST_SEED}"
        yield "seed", f"repeats is {values['repeats']}, {too_large}: choose a smaller seed"


def _privacy(values: Values) -> Broken:
    """Refuse to share something without noise beside something with it."""
    names, training = values["strategy"], values["training_epsilon"]
    keys = [key for key in ("pre-round-epsilon", "training-epsilon") if values[field_of(key)]]
    if not keys:
        return
    if values["standardise"] != NOT_STANDARDISED:
        yield (
            "standardise",
            f"{keys[0]} is {_shown(values[field_of(keys[0])])}, and means and deviations of "
            "samples have no noise: set standardise to none, and scale columns by known limits",
        )
    if training and values["drift_clients"]:
        changed = "drift-clients changes the number of samples, by which noise is chosen"
        yield "training-epsilon", f"{changed}: set one of the two to 0"
    protected = {"eigenvectors", "nothing", *(["updates"] if training else [])}
    for name in names:
        objective = system_of(name).objective
        if _shared(name) not in protected:
            advice = f"leave that strategy out, or set {' and '.join(keys)} to 0"
            yield keys[0], f"{name} shares things that have no noise: {advice}"
        if training and not objective.may_be_noisy:
            yield (
                "training-epsilon",
                f"{name} has the local objective {objective.sent_name()}, and noise does not cover "
                "all of its training: choose plain, prox or private-layers, or set "
                "training-epsilon to 0",
            )
    if training and values["model"] == "cnn-norm":
        advice = "choose another, such as a user-defined one with group normalisation"
        yield "model", f"with training-epsilon, batch norm may not mix a batch's samples: {advice}"
    if not values["pre_round_epsilon"]:
        return
    if not shares_eigenvectors(names):
        unused = "it protects eigenvectors, which no strategy of this run shares"
        yield "pre-round-epsilon", f"{unused}: set it to 0, or add rcc-pfl"
    noisy = [name for name in names if _shared(name) == "eigenvectors"]
    raw = [name for name in noisy if system_of(name).clustering.compares_raw]
    if raw and values["features"] != "raw" and len(raw) < len(noisy):
        twice = f"{','.join(raw)} compares raw samples, and other strategies features"
        advice = f"set features to raw, or run without {','.join(raw)}"
        yield "pre-round-epsilon", f"{twice}, which would spend it twice: {advice}"
    if isinstance(count := values["num_eigenvectors"], int) and count > PROJECTED:
        why = "pre-round-epsilon, which projects features to so many dimensions"
        yield "num-eigenvectors", f"it must be at most {PROJECTED} with {why}"


def _validation(values: Values) -> Broken:
    """Refuse validation samples that compare no models, and values to try without samples."""
    names, share = values["strategy"], values["validation_share"]
    if share and (ALONE not in names or len(names) < 2):
        advice = f"name {ALONE} and another one, or set validation-share to 0"
        yield "validation-share", f"strategy is {','.join(names)}: {advice}"
    if share and values["fraction_evaluate"] < 1:
        must = "with validation-share all clients must test"
        yield "fraction-evaluate", f"{must}: leave one of the two out"
    if (folds := values["validation_folds"]) > 1:
        if folds * share > 1 + 1e-9:
            most = f"each sample validates at most once, and validation-share is {share:g}"
            yield "validation-folds", f"{most}: choose at most {int(1 / share + 1e-9)}"
        if values["training_epsilon"]:
            yield "validation-folds", "each would spend training-epsilon again: set only one"
    if not values["tune"]:
        return
    if not values["num_server_rounds"]:
        yield "tune", "num-server-rounds is 0, so nothing is trained: set it to 1 or more"
    elif not share:
        yield "tune", "it needs validation samples, and validation-share is 0: set it to 0.2"
    if epsilon := values["training_epsilon"]:
        spent = f"training-epsilon is {epsilon:g}, and each value would spend it again"
        yield "tune", f"{spent}: set only one of the two"
    tried = values_of(values["tune"])
    for key in [key for key in tried if key in TUNABLE]:
        other, _, needed = TUNABLE[key].needs.partition("=")
        if other and values[other] != needed and other not in tried:
            yield "tune", f"{key} has an effect only if {other} is {needed}: set {other}, too"
        if not any(has_effect(key, name) for name in names):
            advice = "leave it out, or add a strategy that uses it"
            yield "tune", f"{key} has no effect on any of {', '.join(names)}: {advice}"


# Options of simulations only, each with the value that turns it off.
_SIMULATED_ONLY: dict[str, Any] = {
    "tasks": "",
    "clients-per-task": "",
    "shift": "label",
    "noise": "none",
    "client-test": "task",
    "newcomers": 0,
    "drift-clients": 0,
    "attack": "none",
    "validation-folds": 1,
}


def _devices(values: Values) -> Broken:
    """Refuse options that need to know the tasks of devices."""
    if values["dataset"] != REAL_DEVICES:
        return
    real = f'dataset is "{REAL_DEVICES}"'
    for key, absent in _SIMULATED_ONLY.items():
        if values[field_of(key)] != absent:
            yield key, f"{real}, and {key} is for simulations only: leave it {at_value(absent)}"
    if values["standardise"] == ALL_SITES and values["secure_aggregation"]:
        shared = "each device then sends the server its columns' means and deviations"
        yield "standardise", f"{shared}, which secure-aggregation does not hide: choose site"
    for name in values["strategy"]:
        if system_of(name).clustering.is_soft:
            saved = "tests a mixture of models, and a device saves one: choose another strategy"
            yield "strategy", f"{real}, and {name} {saved}"
        if system_of(name).clustering.needs_tasks:
            advice = "choose a strategy that detects clusters, or single or local"
            needs = f"{name} needs tasks, which devices do not know"
            yield "strategy", f"{real}, and {needs}: {advice}"


def _rounds(values: Values) -> Broken:
    """Refuse events after the last round, and options of training without any round."""
    rounds = values["num_server_rounds"]
    if not rounds:
        yield from _grouping_alone(values)
    for what, counted in (("newcomer", "newcomers"), ("drift", "drift-clients")):
        count = values[field_of(counted)]
        if count and values[f"{what}_round"] > rounds:
            yield f"{what}-round", f"it must be at most num-server-rounds, which is {rounds}"
        if count and values["early_stopping"]:
            yield "early-stopping", f"it must be 0 with {counted}: a strategy may end before them"


def _grouping_alone(values: Values) -> Broken:
    names = values["strategy"]
    training = [name for name in names if _shared(name) not in {*_ONE_SHOT, "nothing"}]
    advice = "choose one that groups them before, such as rcc-pfl, or at least 1 round"
    for name in training:
        yield "num-server-rounds", f"{name} groups clients while they train: {advice}"
    if not training and not one_shot(names):
        yield "num-server-rounds", f"{', '.join(names)} groups no clients: {advice}"
    absent = {"track": "none", "repeats": 1, "training-epsilon": 0.0}
    for key, value in absent.items():
        if values[field_of(key)] != value:
            yield key, f"it must be {_shown(value)} with num-server-rounds at 0"


def _secure_sums(values: Values) -> Broken:
    """Refuse two sums of the same updates over different clients: they differ by single updates.

    All strategies of a seed start from one model, and a round that is trained again repeats its
    updates.
    """
    if not values["secure_aggregation"]:
        return
    if len(names := values["strategy"]) > 1:
        shown = f"strategy names {', '.join(names)}"
        shown += ", and their sums together can show single updates"
        yield "secure-aggregation", f"{shown}: name one, or set secure-aggregation to false"
    for key, absent in (("resume", ""), ("checkpoint-every", 0)):
        if (value := values[field_of(key)]) != absent:
            shown = f"{key} is {value}, and a round that is trained again can show single updates"
            advice = f"leave it {at_value(absent)}, or set secure-aggregation to false"
            yield "secure-aggregation", f"{shown}: {advice}"


def check_num_clusters(strategies: Sequence[str], num_clusters: int, at_start: int) -> None:
    """Refuse more clusters than there are clients at the start, by a ValueError."""
    exact = any(system_of(name).clustering.exact_number for name in strategies)
    if num_clusters > at_start and exact:
        raise ValueError(
            f"num-clusters is {num_clusters}, but there are {at_start} clients at the start: "
            f"choose 1 to {at_start}."
        )
