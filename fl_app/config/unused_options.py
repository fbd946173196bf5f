"""Options that have no effect in a configuration, and the condition under which they have."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

from clients.settings import TrainingSettings
from fl_app.config.rules import one_shot
from fl_app.config.run_config import Config, options_for
from fl_core.data.dataset_info import num_sites
from fl_core.options import Scalar, key_of
from strategies.catalogue import SYSTEMS, System, parameters, system_of

OF_TRAINING = {*map(key_of, fields(TrainingSettings))}  # options of a client's training
OF_ROUNDS = {
    *OF_TRAINING,
    *("fraction-train", "evaluate-every", "fraction-evaluate", "early-stopping", "round-deadline"),
    *("checkpoint-every", "weighted-mean", "secure-aggregation", "client-test"),
    "validation-share",
}
"""Options of training and of its tests, unused where clients are only grouped."""
OF_WRITERS = {"partition", "min-samples"}
"""Options of how samples are spread that are used where each client is a writer."""
OF_A_SPREAD = {*OF_WRITERS, "num-tasks", "dirichlet-alpha", "minority", "client-test"}
"""Options of how samples are spread, unused where the data set has a partition."""


def find_unused_options(given: Mapping[str, Scalar], config: Config) -> list[str]:
    """Return a sentence for each given option that is not at its default and has no effect."""
    said, options = [], options_for(config.strategy)
    for key in given:
        one = options[key]
        if one.rule.read(key, given[key]) == one.rule.read(key, one.default):
            continue
        if where := _counts_only(key, config):
            said.append(f"{key}={given[key]} has no effect: it is used only {where}.")
    return said


def find_commonly_unused_options(
    simulations: Iterable[tuple[Mapping[str, Scalar], Config]],
) -> list[str]:
    """Return the sentences of `find_unused_options` that all simulations share."""
    first, *others = [find_unused_options(given, config) for given, config in simulations] or [[]]
    return [sentence for sentence in first if all(sentence in one for one in others)]


def unmet_condition(key: str, config: Config) -> str:
    """Return an option's unmet condition, as `if KEY is VALUE`; empty if it holds."""
    values, options = config.as_run_config(), options_for(config.strategy)
    other, equals, words = options[key].needs.partition("=")
    allowed = words.split("|")
    if other and not equals and values[other] == options[other].default:
        return f"if {other} is not {values[other]}"
    if equals and values[other] not in allowed:
        return f"if {other} is {' or '.join(allowed) or 'empty'}"
    return ""


def _counts_only(key: str, config: Config) -> str:
    """Return in words where an option has an effect; empty: it has one here."""
    if where := unmet_condition(key, config):
        return where
    if key in OF_ROUNDS and not config.num_server_rounds:
        return "in rounds of training"
    if key in OF_A_SPREAD and num_sites(config.dataset, config.data_dir):
        return f"where samples are spread over clients, but {config.dataset} has a partition"
    if key in OF_A_SPREAD - OF_WRITERS and config.partition == "writer":
        return "if partition is not writer"
    users = [name for name, system in SYSTEMS.items() if _uses(system, key)]
    if users and not any(_uses(system_of(name), key) for name in config.strategy):
        return f"for a strategy such as {users[0]}"
    clusterings = [parameters(system_of(name).clustering) for name in config.strategy]
    by_angle = config.of_strategies["angle-threshold"] is not None
    is_unused = key == "num-clusters" and by_angle and all("threshold" in c for c in clusterings)
    where = "if angle-threshold is never" if is_unused else ""
    return _where_attacks(config) if key == "attack" else where


def _uses(system: System, key: str) -> bool:
    """Return whether a part of a system uses an option."""
    if key in OF_TRAINING:
        return key not in system.objective.unused_options
    if key == "features":
        clustering = system.clustering
        return clustering.shares == "eigenvectors" and not clustering.compares_raw
    keys = {key_of(field) for part in system.parts for field in parameters(part).values()}
    return key in keys - {"seed"}


def _where_attacks(config: Config) -> str:
    if config.attack == "random-signature":
        grouped = one_shot(config.strategy)
        return "" if grouped else "for a strategy that groups clients first, such as rcc-pfl"
    if not config.num_server_rounds:
        return "in rounds of training"
    if any(system_of(name).clustering.trains_together for name in config.strategy):
        return ""
    return "where clients train together, as with single"
