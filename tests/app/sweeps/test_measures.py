"""Numbers of a sweep as texts."""

import math

import numpy as np

from fl_app.sweeps.measures import MEASURES
from fl_core.metrics import OF_CLASSES


def test_a_mean_is_the_same_number_in_the_report_and_in_a_sweeps_table():
    """72.35 is 72.35000000000001 as 100 · 0.7235, and 72.35 as a mean of percents."""
    means = (0.7235, np.mean([0.723, 0.724]), np.mean([0.722, 0.725]))
    assert {OF_CLASSES.main.shown(mean) for mean in means} == {"72.4"}
    assert {MEASURES["accuracy"].format(100 * mean, 1) for mean in means} == {"72.4"}
    percents = np.mean([72.3, 72.4])
    assert f"{percents:.1f}" == "72.3"  # what Python says of the same number
    assert MEASURES["accuracy"].format(percents, 1) == "72.4"
    assert MEASURES["accuracy"].format(-0.04, 1, "+") == "+0.0"
    assert MEASURES["accuracy"].format(math.nan, 1) == "nan"
