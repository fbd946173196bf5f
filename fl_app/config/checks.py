"""What must hold for several run-config values together; each one alone is its option's matter.

`values` are the fields of `fl_app.config.run_config.Config`, read and not yet checked against each
other. Each check yields a sentence for everything that is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clients.privacy import PROJECTED
from fl_app.config.tuning import check_tuning
from fl_core.data.settings import ALL_SITES, NOBODY, OWN_IMAGES
from fl_core.options import at_value, refusal
from strategies.catalogue import ALONE, parameters, system_of
from strategies.secure_aggregation import why_not

LAST_SEED = 2**32 - 1


def field_of(key: str) -> str:
    """Return the field of a run-config key."""
    return key.replace("-", "_")


def check_together(values: Mapping[str, Any], of_strategies: Mapping[str, Any]) -> Iterator[str]:
    """Check all values against each other, and against what the strategies are."""
    strategies = values["strategy"]
    if values["weighted_mean"]:
        yield from _check_for_weights(strategies)
    yield from _check_for_privacy(values)
    if values["secure_aggregation"]:
        yield from _check_for_single_models(strategies)
    if values["validation_share"] and (ALONE not in strategies or len(strategies) < 2):
        yield (
            f"validation-share is {values['validation_share']:g}, for comparing strategies with "
            f"{ALONE}, but strategy is {','.join(strategies)}: name {ALONE} and another one, or "
            "set validation-share to 0."
        )
    if values["validation_share"] and values["fraction_evaluate"] < 1:
        yield (
            f"fraction-evaluate is {values['fraction_evaluate']:g}, but with validation-share all "
            "clients test: set one of them to its default."
        )
    if values["tune"]:
        yield from check_tuning(values)
    if values["dataset"] == OWN_IMAGES:
        yield from _check_for_devices(values)
    if (last := values["seed"] + values["repeats"] - 1) > LAST_SEED:
        yield (
            f"seed is {values['seed']} and repeats is {values['repeats']}, whose last seed would "
            f"be {last}, but seeds are at most {LAST_SEED}: choose a smaller seed."
        )
    yield from _check_rounds(values)
    if values["secure_aggregation"]:
        yield from check_secure_sums(values)


def _must_be(key: str, value: Any, allowed: str) -> str:
    return str(refusal(key, value, allowed))


def _check_rounds(values: Mapping[str, Any]) -> Iterator[str]:
    """Check that what happens in a round does so before the last one."""
    rounds = values["num_server_rounds"]
    if not rounds:
        yield from _check_for_grouping_alone(values)
    for what, counted in (("newcomer", "newcomers"), ("drift", "drift-clients")):
        count = values[field_of(counted)]
        if count and values[f"{what}_round"] > rounds:
            allowed = f"at most num-server-rounds, which is {rounds}"
            yield _must_be(f"{what}-round", values[f"{what}_round"], allowed)
        if count and values["early_stopping"]:
            allowed = f"0 with {counted}: strategies may end before any comes"
            yield _must_be("early-stopping", values["early_stopping"], allowed)


_ONE_SHOT = {"eigenvectors", "centroids"}  # what is shared to be grouped before any training


def one_shot(strategies: Sequence[str]) -> list[str]:
    """Return those strategies that ask clients before any training, and never need it."""
    return [name for name in strategies if system_of(name).clustering.shares in _ONE_SHOT]


def _check_for_grouping_alone(values: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what cannot be without any training."""
    shares = {*_ONE_SHOT, "nothing"}
    training = [
        name for name in values["strategy"] if system_of(name).clustering.shares not in shares
    ]
    for name in training:
        yield (
            f"num-server-rounds is 0, which only groups clients, but {name} groups them while "
            "they train: choose a strategy that asks them once before, such as rcc-pfl, or at "
            "least 1 round."
        )
    if not training and not one_shot(values["strategy"]):
        yield (
            "num-server-rounds is 0, which only groups clients, but "
            f"{', '.join(values['strategy'])} asks them nothing: choose rcc-pfl, pacfl, flt or "
            "pca-km-hc, or at least 1 round."
        )
    if values["track"] != "none":
        yield (
            f"track is {values['track']}, but num-server-rounds is 0, and only rounds are shown "
            "there: leave track out, or choose at least 1 round."
        )
    for key, usual in (("repeats", 1), ("training_epsilon", 0.0), ("validation_share", 0.0)):
        if values[key] != usual:
            yield _must_be(
                key.replace("_", "-"), values[key], f"{usual:g} with num-server-rounds at 0"
            )


def _check_for_weights(strategies: Sequence[str]) -> Iterator[str]:
    """Refuse weights where no strategy has any."""
    if not any("weighted" in parameters(system_of(name).aggregation) for name in strategies):
        yield (
            f"weighted-mean is true, but {', '.join(strategies)} counts clients alike, since one "
            "may say anything of its number of samples: set weighted-mean to false."
        )


def _check_for_privacy(values: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what would share something without noise beside what has it."""
    asked = [key for key in ("pre-round-epsilon", "training-epsilon") if values[field_of(key)]]
    if not asked:
        return
    if values["standardise"] != NOBODY:
        yield (
            f"standardise is {values['standardise']}, but {asked[0]} is "
            f"{values[field_of(asked[0])]:g}, and means and deviations of samples, by which each "
            "sample changes all others, have no noise: set standardise to none, and bring columns "
            "to one scale by limits that you know beforehand."
        )
    if values["training_epsilon"] and values["drift_clients"]:
        yield (
            f"training-epsilon is {values['training_epsilon']:g}, but drift-clients is "
            f"{values['drift_clients']}, whose samples become more or fewer, and the noise of all "
            "rounds is that of one number: set one of the two to 0."
        )
    protected = {"eigenvectors", "nothing"}
    if values["training_epsilon"]:
        protected.add("updates")
    for strategy in values["strategy"]:
        if system_of(strategy).clustering.shares not in protected:
            yield (
                f"{asked[0]} is {values[field_of(asked[0])]:g}, and {strategy} shares things that "
                f"have no noise: leave that strategy out, or set {' and '.join(asked)} to 0."
            )
        if values["training_epsilon"]:
            yield from _check_for_private_training(strategy, values)
    if values["pre_round_epsilon"] and not shares_eigenvectors(values["strategy"]):
        yield (
            f"pre-round-epsilon is {values['pre_round_epsilon']:g}, but no strategy of this run "
            "shares eigenvectors, which it protects: set it to 0, or add rcc-pfl."
        )
    count = values["num_eigenvectors"]
    if values["pre_round_epsilon"] and isinstance(count, int) and count > PROJECTED:
        allowed = f"at most {PROJECTED} with pre-round-epsilon, which projects features to so many"
        yield _must_be("num-eigenvectors", count, f"{allowed} dimensions")


def _check_for_private_training(strategy: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what trains on samples beside the steps whose noise is counted."""
    objective = system_of(strategy).objective
    if not objective.may_be_noisy:
        yield (
            f"training-epsilon is {values['training_epsilon']:g}, but {strategy} has the local "
            f"objective {objective.name}, not all of whose training it covers, and clients' test "
            "scores depend on that: choose plain, prox or private-layers, or set training-epsilon "
            "to 0."
        )
    if values["model"] == "cnn-norm":
        allowed = "another with training-epsilon, such as your own with group normalisation"
        yield _must_be("model", "cnn-norm", f"{allowed}: batch norm mixes a batch's samples")


def shares_eigenvectors(strategies: Sequence[str]) -> bool:
    """Return whether clients share eigenvectors in any of these strategies."""
    return any(system_of(one).clustering.shares == "eigenvectors" for one in strategies)


def _check_for_single_models(strategies: Sequence[str]) -> Iterator[str]:
    """Refuse strategies that need single models, of which only sums are known."""
    for strategy in strategies:
        system = system_of(strategy)
        if reason := why_not(system.clustering, system.aggregation):
            yield (
                f"secure-aggregation is true, but {reason}: leave the strategy {strategy} out, or "
                "set secure-aggregation to false."
            )


def check_secure_sums(values: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what sums the same updates over other clients once more.

    All strategies of a seed start from one model, and a round that is trained again repeats its
    updates: the difference of two such sums can be a single update.
    """
    if len(values["strategy"]) > 1:
        yield (
            f"secure-aggregation is true, but strategy names {', '.join(values['strategy'])}, "
            "whose sums together can show single updates: name one, or set secure-aggregation to "
            "false."
        )
    for key, absent in (("resume", ""), ("checkpoint-every", 0)):
        if values[field_of(key)] != absent:
            yield (
                f"secure-aggregation is true, but {key} is {values[field_of(key)]}, and a round "
                f"that is trained again can show single updates: leave it {at_value(absent)}, or "
                "set secure-aggregation to false."
            )


# What only a simulation can have, and the value that stands for not having it.
_SIMULATED_ONLY: dict[str, Any] = {
    "tasks": "",
    "clients_per_task": "",
    "shift": "label",
    "noise": "none",
    "client_test": "task",
    "newcomers": 0,
    "drift_clients": 0,
    "attack": "none",
}


def _check_for_devices(values: Mapping[str, Any]) -> Iterator[str]:
    """Refuse what needs to know the tasks of devices."""
    for name, absent in _SIMULATED_ONLY.items():
        if values[name] != absent:
            yield (
                f'{name.replace("_", "-")} is {values[name]}, but dataset is "{OWN_IMAGES}", and '
                f"that is for simulations only: leave it {at_value(absent)}."
            )
    if values["standardise"] == ALL_SITES and values["secure_aggregation"]:
        yield (
            f"standardise is {ALL_SITES}, for which each device tells the server its columns' "
            "means and deviations, but secure-aggregation is true, which does not hide them: "
            "choose site, by which each device uses its own and tells nobody."
        )
    for strategy in values["strategy"]:
        if system_of(strategy).clustering.needs_tasks:
            yield (
                f'strategy names {strategy}, but dataset is "{OWN_IMAGES}", and nobody knows the '
                "tasks of real devices: choose a strategy that finds clusters, or single or local."
            )
