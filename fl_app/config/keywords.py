"""The keywords of a run configuration, and the values that they stand for."""

from collections.abc import Mapping
from typing import Any

from clients.features.dimensions import chosen_features
from clients.settings import AUTO
from fl_app.config.tuning import AS_TASKS
from fl_core.data.dataset_info import dataset_info
from fl_core.data.settings import ALL_SITES, NOT_STANDARDISED, REAL_DEVICES, TABLES, paper_model
from fl_core.options import BY_STRATEGY

ALL = "all"
AS_PAPER = "paper"
TRIAL = "trial"
TRIAL_ROUNDS = {"num-server-rounds": 20, "evaluate-every": 2, "early-stopping": 2}
"""A trial's maximum of rounds, and when it tests whether they are enough."""


def resolve_keywords(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `Config`'s fields, keywords replaced as far as it needs no data."""
    resolved = dict(values)
    if resolved["num_server_rounds"] == TRIAL:
        if not resolved["validation_share"]:
            raise ValueError(
                f'num-server-rounds is "{TRIAL}", but validation-share is 0, but clients\' '
                "validation samples end a trial: set it, to 0.2 for example, or give a number of "
                "rounds."
            )
        rounds, every, patience = TRIAL_ROUNDS.values()
        resolved["num_server_rounds"] = rounds
        if not resolved["early_stopping"]:
            resolved |= {"early_stopping": patience, "evaluate_every": every}
    elif not resolved["num_server_rounds"]:  # clients are only grouped: there is nothing to compare
        resolved["validation_share"] = 0.0
    if resolved["num_clients"] == ALL:
        resolved["num_clients"] = 0
    if resolved["features"] == AUTO and (kind := dataset_info(resolved["dataset"])) is not None:
        resolved["features"] = chosen_features(AUTO, kind.sample_shape, is_float=kind.is_float)
    if resolved["model"] == AS_PAPER:
        resolved["model"] = paper_model(resolved["dataset"])
    is_given = resolved["num_clusters"] not in (AS_TASKS, BY_STRATEGY)
    if resolved["dataset"] == REAL_DEVICES and not is_given:
        resolved["num_clusters"] = AUTO  # devices' tasks are unknown: their number is detected
    if resolved["standardise"] == AUTO:
        resolved["standardise"] = ALL_SITES if resolved["dataset"] == TABLES else NOT_STANDARDISED
    return resolved
