"""What a device may push: a reply of its own, and no more parts than a model has."""

import asyncio
import math
from hashlib import sha256

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_object_tree

from fl_app.devices.gate import application, callers
from fl_app.devices.gate.application import Gate
from fl_app.devices.gate.pushes import MOST_OBJECTS, RefusedError, check_push
from tests.gate_requests import PUSH_MESSAGES, STRANGER, Upstream, known, post

NODE = 2**63 + 11


def name(text):
    return sha256(text.encode()).hexdigest()


def push(content=None, *, node=NODE, change=lambda about: None, tree=None):
    """Return what a SuperNode pushes as its reply to the SuperLink."""
    asked = Message(RecordDict(), dst_node_id=NODE, message_type="train", ttl=60)
    asked.metadata.__dict__["_message_id"] = name("asked")
    reply = Message(content or RecordDict(), reply_to=asked)
    proto = message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)
    proto.metadata.message_id = reply.object_id
    change(proto.metadata)
    return PushMessagesRequest(
        node=Node(node_id=node),
        messages_list=[proto],
        message_object_trees=[tree(proto.metadata) if tree else get_object_tree(reply)],
        clientapp_runtime_list=[0.5],
    )


def model(tensors):
    return RecordDict(
        {
            "arrays": ArrayRecord({f"layer.{i}": Array(np.array([i])) for i in range(tensors)}),
            "metrics": MetricRecord({"loss": 0.5}),
        }
    )


@pytest.mark.parametrize("content", [RecordDict(), model(1), model(340), Error(1, "disk full")])
def test_a_reply_passes(content):
    check_push(push(content).SerializeToString())


def set_to(**values):
    def change(about):
        for key, value in values.items():
            setattr(about, key, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # An order to another device, as if it were the SuperLink's: `keep_model`, say.
        (set_to(reply_to_message_id="", src_node_id=1, dst_node_id=77), "devices only reply"),
        # What the SuperLink would hand out as the next answer that anybody is asked for.
        (set_to(reply_to_message_id="", src_node_id=1, dst_node_id=1), "devices only reply"),
        (set_to(src_node_id=1), "from node 1"),
        (set_to(src_node_id=NODE + 1), f"from node {NODE + 1}"),
        (set_to(dst_node_id=77), "for node 77"),
        # A reply that lives for NaN seconds is stored, and the SuperLink fails when it is fetched.
        (set_to(ttl=math.nan), "times are impossible"),
        (set_to(created_at=math.inf), "times are impossible"),
        (set_to(ttl=-1.0), "times are impossible"),
        (set_to(ttl=1e308), "times are impossible"),  # two of them are infinite
        (set_to(message_id=name("another")), "another message's"),
    ],
)
def test_nothing_else_passes(change, reason):
    with pytest.raises(RefusedError, match=reason):
        check_push(push(change=change).SerializeToString())


def test_another_nodes_reply_does_not_pass():
    with pytest.raises(RefusedError, match=f"from node {NODE}"):
        check_push(push(node=NODE + 1).SerializeToString())


@pytest.mark.parametrize("body", [b"\xff", b"", PushMessagesRequest().SerializeToString()])
def test_what_is_no_push_at_all(body):
    with pytest.raises(RefusedError, match=r"cannot be read|not one message"):
        check_push(body)


def test_one_message_at_a_time():
    request = push()
    request.messages_list.append(request.messages_list[0])
    with pytest.raises(RefusedError, match="not one message"):
        check_push(request.SerializeToString())
    request = push()
    request.clientapp_runtime_list[0] = math.nan
    with pytest.raises(RefusedError, match="times are impossible"):
        check_push(request.SerializeToString())


def leaf(text):
    return ObjectTree(object_id=name(text))


def nested(depth):
    tree = leaf("0")
    for level in range(1, depth):
        tree = ObjectTree(object_id=name(str(level)), children=[tree])
    return list(tree.children)


@pytest.mark.parametrize(
    ("children", "reason"),
    [
        ([leaf(str(i)) for i in range(MOST_OBJECTS)], f"more than {MOST_OBJECTS} parts"),
        (nested(9), "nested more than 6 deep"),
        ([ObjectTree(object_id="x" * 64)], "not SHA-256"),
        ([ObjectTree(object_id="")], "not SHA-256"),
        ([leaf("a"), leaf("a")], "each once"),
        (
            [leaf("a"), ObjectTree(object_id=name("b"), children=[ObjectTree(
                object_id=name("a"), children=[leaf("c")])])],
            "listed with different parts",
        ),
    ],
)  # fmt: skip
def test_parts_that_no_reply_has(children, reason):
    def tree(about):
        return ObjectTree(object_id=about.message_id, children=children)

    with pytest.raises(RefusedError, match=reason):
        check_push(push(tree=tree).SerializeToString())


def test_as_many_parts_as_there_may_be():
    def tree(about):
        children = [leaf(str(i)) for i in range(MOST_OBJECTS - 1)]
        return ObjectTree(object_id=about.message_id, children=children)

    check_push(push(tree=tree).SerializeToString())


def through(steps, answer=200):
    async def all_steps():
        upstream = Upstream(answer)
        async with httpx.AsyncClient(transport=upstream) as client:
            return await steps(known(Gate("127.0.0.1:8000", client)), upstream)

    return asyncio.run(all_steps())


def test_the_gate_passes_replies_and_refuses_orders(caplog):
    good = push(model(2)).SerializeToString()
    bad = push(change=set_to(reply_to_message_id="", src_node_id=1)).SerializeToString()

    async def steps(gate, upstream):
        statuses = [await post(gate, body, target=PUSH_MESSAGES) for body in (good, bad)]
        statuses += [await post(gate, bad, target=PUSH_MESSAGES, key=STRANGER)]
        return statuses, [request.content for request in upstream.requests]

    statuses, passed = through(steps)
    assert statuses == [200, 403, 403]
    assert passed == [good]
    assert "with 403, it is an instruction, and devices only reply" in caplog.text


def test_a_device_that_keeps_the_database_rests_longer_than_it_works(monkeypatch):
    """Another one need not wait for it."""
    monkeypatch.setattr(callers, "_REST", 4.0)
    body = push().SerializeToString()
    now, slept = [100.0], []

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    async def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(callers, "time", Clock)
    monkeypatch.setattr(application, "time", Clock)
    monkeypatch.setattr(callers.asyncio, "sleep", sleep)

    async def steps(gate, upstream):
        known(gate, STRANGER)
        respond = upstream.handler

        def slow(request):
            now[0] += 2.5
            return respond(request)

        upstream.handler = slow
        for key in ({}, {}, {"key": STRANGER}, {}):
            await post(gate, body, target=PUSH_MESSAGES, **key)
        return slept

    assert through(steps) == [0.0, 10.0, 0.0, 7.5]
