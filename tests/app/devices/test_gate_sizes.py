"""A device may push a reply as large as what it is handed out makes likely, and no larger."""

import asyncio
from functools import partial

import httpx
import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from fl_app.devices.gate import application
from fl_core.messages.protocol import max_answer_bytes
from tests.gate_requests import DEVICE, PULL, PUSH, STRANGER, answered, at_gate, post

PULL_OBJECT = b"/v1/fleet/pull-object"
MIB = 2**20
PIECE = 8 * MIB


@pytest.fixture(autouse=True)
def _questions_are_answered_at_once(monkeypatch):
    monkeypatch.setattr(application, "POLL_SECONDS", 0.0)


class SuperLink(httpx.MockTransport):
    """Hands out a message with a model of some bytes to any device, and takes everything."""

    def __init__(self, size=0):
        self.taken = 0
        self.status = 200
        self.give(size)
        super().__init__(self.answer)

    def give(self, size):
        numbers = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        content = RecordDict({"arrays": ArrayRecord([numbers])})
        self.message = Message(content, dst_node_id=5, message_type="train") if size else None
        nested = get_all_nested_objects(self.message) if size else {}
        self.objects = {name: one.deflate() for name, one in nested.items()}

    def answer(self, request):
        path = request.url.path.encode()
        content = b""
        if path == PULL and self.message is not None:
            proto = message_to_proto(Message(RecordDict(), dst_node_id=5, message_type="train"))
            tree = get_object_tree(self.message)
            found = PullMessagesResponse(messages_list=[proto], message_object_trees=[tree])
            content = found.SerializeToString()
        elif path == PULL_OBJECT:
            asked = PullObjectRequest.FromString(request.content)
            content = self.objects.get(asked.object_id, bytes(40 * MIB))
        elif path == PUSH and self.status == 200:
            self.taken += len(request.content)
        return answered(content, self.status)


def statuses_of(superlink, *steps):
    """Return the statuses with which a gate answers a device's requests, one after the other."""

    async def all_steps(gate):
        return [await step(gate) for step in steps]

    return at_gate(superlink, all_steps, keys=(DEVICE, STRANGER))


def pushing(size, key=DEVICE):
    body = PushObjectRequest(object_content=bytes(size)).SerializeToString()
    return partial(post, body=body, target=PUSH, key=key)


def asking(key=DEVICE):
    return partial(post, body=PullMessagesRequest().SerializeToString(), target=PULL, key=key)


def fetching(superlink, *more, key=DEVICE):
    """Return the requests for every part of the message, and for others."""
    return [
        partial(post, body=body.SerializeToString(), target=PULL_OBJECT, key=key)
        for body in (PullObjectRequest(object_id=name) for name in (*superlink.objects, *more))
    ]


def failing(superlink, status, step):
    """Return a request at which the SuperLink fails."""

    async def one(gate):
        superlink.status = status
        answered = await step(gate)
        superlink.status = 200
        return answered

    return one


def test_eigenvectors_pass_before_a_model_was_seen():
    superlink = SuperLink()
    assert statuses_of(superlink, *[pushing(PIECE - 99)] * 3) == [200, 200, 403]
    assert superlink.taken <= max_answer_bytes(0)


def test_a_reply_is_no_larger_than_twice_the_model_and_a_little():
    superlink = SuperLink(20 * MIB)
    again = [asking(), *fetching(superlink), *[pushing(5 * MIB)] * 4] * 5
    last = [asking(), *fetching(superlink), *[pushing(PIECE)] * 10]
    statuses = statuses_of(superlink, *again, *last)
    assert set(statuses[:-10]) == {200}
    assert statuses[-10:] == [200] * 7 + [403] * 3  # 16 MiB and twice 20


def test_others_have_seen_the_model():
    """IFCA sends models with one message and is sent one back with the answer to another."""
    superlink = SuperLink(20 * MIB)
    steps = [asking(STRANGER), *fetching(superlink, key=STRANGER), *[pushing(PIECE)] * 6]
    assert set(statuses_of(superlink, *steps)) == {200}


@pytest.mark.parametrize("times", [1, 30])
def test_a_device_does_not_raise_its_own_bound(times):
    """By fetching what it pushed itself, or the same part again and again."""
    superlink = SuperLink(MIB)
    again = fetching(superlink, *["f" * 64]) * times
    statuses = statuses_of(superlink, asking(), *again, *[pushing(PIECE - 99)] * 3)
    assert statuses[-3:] == [200, 200, 403]


def test_what_the_superlink_fails_at_does_not_count():
    superlink = SuperLink()
    push = pushing(PIECE - 99)
    steps = [*[failing(superlink, 500, push)] * 3, *[push] * 3]
    assert statuses_of(superlink, *steps) == [503, 503, 503, 200, 200, 403]


def test_being_turned_away_gives_no_room():
    """A device can have that at any time: the SuperLink answers so to a wrong node id."""
    superlink = SuperLink()
    again = [failing(superlink, 401, asking()), asking(), pushing(PIECE - 99)]
    assert statuses_of(superlink, *[pushing(PIECE - 99)] * 2, *again) == [200, 200, 401, 200, 403]


def test_what_is_pushed_at_a_time_counts_together():
    async def all_at_once(gate):
        return sorted(await asyncio.gather(*[pushing(PIECE - 99)(gate) for _ in range(6)]))

    assert statuses_of(SuperLink(), all_at_once) == [[200, 200, 403, 403, 403, 403]]
