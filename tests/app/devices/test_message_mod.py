"""The mod of real devices: which messages it accepts, and how it packs answers."""

import pytest
from flwr.app import Context, Error, Message, MetricRecord, RecordDict

from fl_app.devices.site.device_node import device_mod
from fl_core.messages.packing import SALT
from tests.app_runs import DEFAULTS


def answer_to(*, dataset="devices", source=1, target=5, run_id=7, answer=None):
    """Return what a node with id 5 in run 7 answers."""
    context = Context(7, 5, {}, RecordDict(), {**DEFAULTS, "dataset": dataset})
    message = Message(RecordDict(), dst_node_id=target, message_type="query.save_model")
    message.metadata.__dict__ |= {"_src_node_id": source, "_run_id": run_id}

    def call_next(message, context):
        content = RecordDict({"metrics": MetricRecord({"stored": 1})})
        return Message(answer or content, reply_to=message)

    return device_mod(message, context, call_next)


def test_a_device_answers_the_superlink_and_no_two_answers_are_equal():
    one, other = (answer_to().content.metric_records["metrics"] for _ in range(2))
    assert one["stored"] == other["stored"] == 1
    assert one[SALT] != other[SALT]


def test_a_failure_is_passed_on():
    assert answer_to(answer=Error(3, "the disk is full")).error.reason == "the disk is full"


@pytest.mark.parametrize("claim", [{"source": 6}, {"target": 6}, {"run_id": 8}])
def test_a_device_takes_no_orders_from_others(claim):
    with pytest.raises(ValueError, match="accepts messages from the SuperLink alone"):
        answer_to(**claim)


def test_a_simulated_client_is_left_alone():
    assert dict(answer_to(dataset="mnist-5k", source=6).content.metric_records["metrics"]) == {
        "stored": 1
    }
