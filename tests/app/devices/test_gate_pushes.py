"""What a device may push: its reply, with no more parts than a model has."""

import math
import time
from hashlib import sha256

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    Metadata,
    ObjectTree,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from fl_app.devices.gate import application
from fl_app.devices.gate.application import MOST_BYTES, MOST_BYTES_OF_MESSAGE
from fl_app.devices.gate.pushes import MOST_OBJECTS, RefusedError, UnsendableError, check_request
from tests.gate_requests import (
    DEVICE,
    PULL,
    PUSH,
    PUSH_MESSAGES,
    STRANGER,
    Upstream,
    answered,
    at_gate,
    pass_through,
    post,
    public,
    said,
)

NODE = 2**63 + 11


@pytest.fixture(autouse=True)
def _questions_are_answered_at_once(monkeypatch):
    monkeypatch.setattr(application, "POLL_SECONDS", 0.0)


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


def check(body, path=PUSH_MESSAGES):
    return check_request(path, body, public(DEVICE))


def model(tensors):
    return RecordDict(
        {
            "arrays": ArrayRecord({f"layer.{i}": Array(np.array([i])) for i in range(tensors)}),
            "metrics": MetricRecord({"loss": 0.5}),
        }
    )


@pytest.mark.parametrize("content", [RecordDict(), model(340), Error(1, "line\n" * 2000)])
def test_a_reply_passes(content):
    check(push(content).SerializeToString())


def set_to(**values):
    def change(about):
        for key, value in values.items():
            setattr(about, key, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # An order to another device, as if it were the SuperLink's: `save_model`, say.
        (set_to(reply_to_message_id="", src_node_id=1, dst_node_id=77), "devices only reply"),
        (set_to(src_node_id=NODE + 1), f"from node {NODE + 1}"),
        (set_to(dst_node_id=77), "for node 77"),
        # A reply that lives for NaN seconds is stored, and the SuperLink fails when it is fetched.
        (set_to(ttl=math.nan), "times are impossible"),
        (set_to(created_at=-1.0), "times are impossible"),
        (set_to(ttl=1e308), "times are impossible"),  # two of them are infinite
        (set_to(message_id=name("another")), "another message's"),
        # The SuperLink would log a quarter of a megabyte, and a line that looks like its own.
        (set_to(reply_to_message_id="x" * 250_000), "reply_to_message_id is not a SHA-256 hash"),
        (set_to(reply_to_message_id="\x1b[2K\rINFO : fine"), "reply_to_message_id is not"),
        (set_to(group_id="1\nINFO : fine"), "group_id is not a line of at most 200"),
        (set_to(message_type="x" * 201), "message_type is not a line of at most 200"),
    ],
)
def test_nothing_else_passes(change, reason):
    with pytest.raises(RefusedError, match=reason):
        check(push(change=change).SerializeToString())


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (b"/v1/fleet/get-fab", "hash_str"),
        (b"/v1/fleet/pull-object", "object_id"),
        (b"/v1/fleet/push-object", "session_id"),
        (b"/v1/fleet/confirm-message-received", "message_object_id"),
    ],
)
def test_no_request_writes_what_it_likes_into_a_log(path, field):
    request = PROTOBUF_REQUEST_TYPES["POST", path.decode()]
    check(request(**{field: name("an object")}).SerializeToString(), path)
    for text in ("\x1b[2K\rINFO : fine", "0" * 4000):
        with pytest.raises(RefusedError, match=f"its {field} is not a"):
            check(request(**{field: text}).SerializeToString(), path)


def test_a_key_activates_itself_alone():
    """The SuperLink logs the key that it does not know, of up to four kilobytes."""
    path = b"/v1/fleet/activate-node"
    check(ActivateNodeRequest(public_key=public(DEVICE)).SerializeToString(), path)
    with pytest.raises(RefusedError, match="another key than the one that signed it"):
        check(ActivateNodeRequest(public_key=b"x" * 4000).SerializeToString(), path)


def test_contents_come_in_parts_and_errors_are_no_books():
    whole = push()
    whole.messages_list[0].content.items.add(key="arrays")
    with pytest.raises(RefusedError, match="content is not in parts"):
        check(whole.SerializeToString())
    with pytest.raises(UnsendableError, match="error has more than 10000 characters"):
        check(push(Error(1, "x" * 10_001)).SerializeToString())


def test_what_is_no_push_at_all():
    twice, late = push(), push()
    twice.messages_list.append(twice.messages_list[0])
    late.clientapp_runtime_list[0] = math.nan
    for body, reason in (
        (b"\xff", "cannot be read"),
        (b"", "not one message"),
        (twice.SerializeToString(), "not one message"),
        (late.SerializeToString(), "times are impossible"),
        (push(node=NODE + 1).SerializeToString(), f"from node {NODE}"),
    ):
        with pytest.raises(RefusedError, match=reason):
            check(body)


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
        check(push(tree=tree).SerializeToString())
    if "more than 700" in reason:
        children.pop()
        check(push(tree=tree).SerializeToString())


def test_the_gate_passes_replies_and_refuses_orders(caplog):
    good = push(model(2)).SerializeToString()
    bad = push(change=set_to(reply_to_message_id="", src_node_id=1)).SerializeToString()

    async def steps(gate):
        statuses = [await post(gate, body, target=PUSH_MESSAGES) for body in (good, bad)]
        return [*statuses, await post(gate, good, target=PUSH_MESSAGES, key=STRANGER)]

    upstream = Upstream()
    assert at_gate(upstream, steps) == [200, 403, 503]  # an unknown key pushes nothing
    assert [request.content for request in upstream.requests] == [good]
    assert "with 403, it is an instruction, and devices only reply" in caplog.text


RUN = 7


class Answering(httpx.MockTransport):
    """A SuperLink that hands out one message, takes what is pushed, and stores all requests."""

    def __init__(self, pushes=200):
        self.pushes = pushes
        self.requests = []
        about = {"run_id": RUN, "message_id": name("asked"), "src_node_id": 1, "dst_node_id": NODE}
        about |= {"created_at": time.time(), "ttl": 60.0, "message_type": "train"}
        self.asked = MessageProto(metadata=Metadata(**about), content=ProtoRecordDict())
        super().__init__(self.answer)

    def answer(self, request):
        path = request.url.path.encode()
        self.requests.append((path, request.content))
        status, said = 200, b""
        if path == PULL:
            found = PullMessagesResponse(messages_list=[self.asked])
            found.message_object_trees.add(object_id=name("asked"))
            said = found.SerializeToString()
        elif path == PUSH_MESSAGES:
            status = self.pushes
            (tree,) = PushMessagesRequest.FromString(request.content).message_object_trees
            took = PushMessagesResponse(objects_to_push=[tree.object_id], session_id="session")
            said = took.SerializeToString()
        return answered(said, status)


def in_run(content):
    """Return a device's reply, and a later one to the same message is the same."""
    return push(content, change=set_to(run_id=RUN)).SerializeToString()


def statuses_of(superlink, *requests):
    """Return the statuses with which a gate answers a device's requests: path and body."""

    async def all_requests(gate):
        return [await post(gate, body, target=path) for path, body in requests]

    return at_gate(superlink, all_requests)


ASKING = (PULL, b"")


def too_many():
    return (PUSH_MESSAGES, in_run(model(400)))


@pytest.mark.parametrize(
    ("is_long", "status", "reason"),
    [(False, 403, "more than 700 parts"), (True, 413, "longer than 262144 bytes")],
)
def test_a_reply_that_can_never_be_sent_is_a_failure_at_once(is_long, status, reason):
    superlink = Answering()
    too_large = (PUSH_MESSAGES, bytes(MOST_BYTES_OF_MESSAGE + 1)) if is_long else too_many()
    # A second time, the server knows.
    assert statuses_of(superlink, ASKING, too_large, too_large) == [200, status, status]
    assert [path for path, _ in superlink.requests] == [PULL, PUSH_MESSAGES, PUSH]
    check(superlink.requests[1][1])
    said = PushMessagesRequest.FromString(superlink.requests[1][1])
    about = said.messages_list[0].metadata
    assert (about.reply_to_message_id, about.run_id) == (name("asked"), RUN)
    assert said.node.node_id == about.src_node_id == NODE
    part = PushObjectRequest.FromString(superlink.requests[2][1])
    assert (part.run_id, part.session_id, part.node.node_id) == (RUN, "session", NODE)
    assert part.object_id == about.message_id
    whole = inflate_object_from_contents(part.object_id, {part.object_id: part.object_content})
    assert whole.error.reason.startswith("its answer was refused: it ")
    assert reason in whole.error.reason


def test_a_reply_of_which_a_part_can_never_be_sent_is_lost_at_once():
    superlink = Answering()
    reply = (PUSH_MESSAGES, in_run(model(1)))
    (sent,) = PushMessagesRequest.FromString(reply[1]).messages_list
    assert statuses_of(superlink, ASKING, reply, (PUSH, bytes(MOST_BYTES + 1))) == [200, 200, 413]
    path, said = superlink.requests[-1]
    assert path == b"/v1/fleet/confirm-message-received"
    lost = ConfirmMessageReceivedRequest.FromString(said)
    assert (lost.node.node_id, lost.run_id) == (NODE, RUN)
    assert lost.message_object_id == sent.metadata.message_id


def test_nothing_is_said_for_a_device_that_can_still_answer():
    superlink = Answering()
    order = push(change=set_to(reply_to_message_id="")).SerializeToString()
    # It was handed out nothing; what it is refused is no reply; and what it asks for is too long.
    requests = [too_many(), ASKING, (PUSH_MESSAGES, order), (PULL, bytes(5000))]
    assert statuses_of(superlink, *requests) == [403, 200, 403, 413]
    assert [path for path, _ in superlink.requests] == [PULL]
    assert statuses_of(superlink, (PUSH_MESSAGES, in_run(model(1)))) == [200]


@pytest.mark.parametrize("status", [500, 412])
def test_a_superlink_that_takes_no_failure_either_is_a_line_in_the_log(status, caplog):
    assert statuses_of(Answering(status), ASKING, too_many()) == [200, 403]
    assert "could not report the refused answer to the server" in caplog.text


@pytest.mark.parametrize(("key", "status", "read"), [(DEVICE, 413, 3), (STRANGER, 503, 0)])
def test_what_is_too_long_is_read_to_its_end_from_a_known_device_alone(key, status, read):
    """Closed in the middle of it, a connection may lose the answer, and it would be sent again."""
    pieces = [said(b"a", more=True), said(b"b", more=True), said(b"c")]

    async def receive():
        return pieces.pop(0)

    headers = [(b"content-length", b"%d" % (MOST_BYTES_OF_MESSAGE + 1))]
    request = {"receive": receive, "target": PUSH_MESSAGES, "headers": headers, "key": key}
    assert pass_through(Answering(), **request)[0]["status"] == status
    assert len(pieces) == 3 - read
