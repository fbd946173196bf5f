"""What words in a run configuration stand for, where that is known without any data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clients.features.dimensions import chosen_features
from clients.settings import AUTO
from fl_app.config.tuning import AS_TASKS
from fl_core.data.dataset_info import dataset_info
from fl_core.data.settings import ALL_SITES, NOT_STANDARDISED, REAL_DEVICES, TABLES, paper_model

ALL = "all"
AS_PAPER = "paper"
TRIAL = "trial"
TRIAL_ROUNDS = {"num-server-rounds": 20, "evaluate-every": 2, "early-stopping": 2}
"""How long a trial trains at most, and when it looks whether that is enough."""


def spelt_out(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `Config`'s fields with what their words stand for.

    Raises
    ------
    ValueError
        If a trial is asked for, and there are no validation samples that could end it, or no
        features suit the data set's samples.
    """
    found = dict(values)
    if found["num_server_rounds"] == TRIAL:
        if not found["validation_share"]:
            raise ValueError(
                f'num-server-rounds is "{TRIAL}", but validation-share is 0, and clients\' '
                "validation samples end a trial: set it, to 0.2 for example, or give a number of "
                "rounds."
            )
        rounds, every, patience = TRIAL_ROUNDS.values()
        found["num_server_rounds"] = rounds
        if not found["early_stopping"]:
            found |= {"early_stopping": patience, "evaluate_every": every}
    if found["num_clients"] == ALL:
        found["num_clients"] = 0
    if found["features"] == AUTO and (kind := dataset_info(found["dataset"])) is not None:
        found["features"] = chosen_features(AUTO, kind.sample_shape, is_float=kind.is_float)
    if found["model"] == AS_PAPER:
        found["model"] = paper_model(found["dataset"])
    if found["dataset"] == REAL_DEVICES and found["num_clusters"] == AS_TASKS:
        found["num_clusters"] = AUTO  # nobody knows the tasks: their number is found
    if found["standardise"] == AUTO:
        found["standardise"] = ALL_SITES if found["dataset"] == TABLES else NOT_STANDARDISED
    return found
