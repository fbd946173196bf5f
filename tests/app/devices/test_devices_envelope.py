"""How long a device took travels with its answer, and is not believed where it cannot be."""

import time

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fl_app.devices.envelope import opened, sealed, time_since_start
from fl_app.grid.quorum import Took


def content():
    arrays = {name: Array(np.arange(3.0)) for name in "ab"}
    return RecordDict(
        {
            "arrays": ArrayRecord(arrays),
            "metrics": MetricRecord({"loss": 0.5}),
            "config": ConfigRecord({"name": "berlin"}),
        }
    )


def test_an_answer_comes_out_as_it_was_with_how_long_it_took():
    before, took = content(), Took(0.25, 1.5)
    sent = sealed(before, took)
    assert list(before) == ["arrays", "metrics", "config"]
    assert list(sent) == ["arrays/0", "metrics", "config"]
    after, said = opened(sent)
    assert said == took
    assert set(after) == set(before)
    assert dict(after.metric_records["metrics"]) == {"loss": 0.5}
    assert dict(after.config_records["config"]) == {"name": "berlin"}
    for name, array in before.array_records["arrays"].items():
        assert after.array_records["arrays"][name].data == array.data


@pytest.mark.parametrize(
    "said",
    [
        *([1.0], [1, 2], [-0.1, 2.0], [1.0, 2.0, 3.0], 1.0),
        *([float("nan"), 2.0], [1.0, float("inf")]),
    ],
)
def test_what_cannot_be_is_left_out(said):
    metrics = MetricRecord({"loss": 0.5, "took": said})
    after, took = opened(RecordDict({"metrics": metrics}))
    assert took is None
    assert dict(after["metrics"]) == {"loss": 0.5}


def test_an_answer_without_metrics_has_none_afterwards():
    after, said = opened(sealed(RecordDict(), Took(0.25, 1.5)))
    assert (dict(after), said) == ({}, (0.25, 1.5))


def test_an_answer_that_says_nothing_of_time_is_one():
    after, took = opened(RecordDict({"metrics": MetricRecord({"loss": 0.5})}))
    assert (took, list(after)) == (None, ["metrics"])


def test_this_process_has_run_for_a_while():
    first = time_since_start()
    time.sleep(0.1)
    assert 0 < first < time_since_start() < 24 * 3600
