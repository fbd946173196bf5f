"""The gate answers a device once there is something, and asks the SuperLink sparingly."""

import asyncio
import json
import time
from functools import partial

import httpx
import pytest
from flwr.app import Message, RecordDict
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesResponse
from flwr.proto.message_pb2 import ObjectTree, PullObjectResponse
from flwr.supercore.error import ApiErrorCode

from fl_app.devices.gate import application, waiting
from tests import gate_requests as requests
from tests.gate_requests import DEVICE, PULL, STRANGER, answered, ask, said, sending

PULL_OBJECT = b"/v1/fleet/pull-object"
NOTHING = PullMessagesResponse().SerializeToString()
TO_COME = PullObjectResponse(object_found=True).SerializeToString()
PART = PullObjectResponse(object_found=True, object_available=True, object_content=bytes(100))
PART = PART.SerializeToString()


def handed_out():
    message = Message(RecordDict(), dst_node_id=5, message_type="train", group_id="1")
    found = {"messages_list": [message_to_proto(message)], "message_object_trees": [ObjectTree()]}
    return PullMessagesResponse(**found).SerializeToString()


class SuperLink(httpx.MockTransport):
    """Answers each device with what is next for it, and with the last of that from then on."""

    def __init__(self, **answers):
        self.answers = {key.encode(): list(found) for key, found in answers.items()}
        self.asked = []
        super().__init__(self.answer)

    def answer(self, request):
        device = request.content[2:]
        self.asked.append((device, time.monotonic()))
        left = self.answers[device]
        content = left.pop(0) if len(left) > 1 else left[0]
        return answered(status=content) if isinstance(content, int) else answered(content)

    def count(self, device):
        return sum(one == device for one, _ in self.asked)


async def asking(gate, device, *, key=DEVICE, target=PULL, gone=None):
    """Ask as a device, by a body that the SuperLink here knows, and return what is answered."""
    body = b"z\1" + device  # "z": a field that no request has
    receive = sending(said(body), gone=gone)
    headers = [(b"content-length", b"%d" % len(body))]
    found = await ask(gate, receive, target=target, key=key, headers=headers)
    return found and (found[0]["status"], b"".join(one["body"] for one in found[1:]))


at_gate = partial(requests.at_gate, keys=(DEVICE, STRANGER))


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(waiting, "_LONG_PAUSE", 0.3)
    monkeypatch.setattr(waiting, "_SHORTEST_PAUSE", 0.05)
    monkeypatch.setattr(waiting, "_PART_PAUSE", 0.02)
    monkeypatch.setattr(application, "POLL_SECONDS", 1.0)


def test_a_device_is_answered_once_there_is_a_message():
    message = handed_out()
    superlink = SuperLink(a=[NOTHING, NOTHING, message])
    assert at_gate(superlink, lambda gate: asking(gate, b"a")) == (200, message)
    assert superlink.count(b"a") == 3


@pytest.mark.parametrize(("stops", "least"), [(False, 1.0), (True, 0.0)])
def test_it_is_answered_after_a_while_even_if_there_is_none(stops, least):
    superlink = SuperLink(a=[NOTHING])
    started = time.monotonic()
    found = at_gate(superlink, lambda gate: asking(gate, b"a"), is_stopping=lambda: stops)
    assert found == (200, NOTHING)
    assert least <= time.monotonic() - started < 3 * least + 0.8
    # Nothing is expected: no oftener than the device would ask itself.
    assert superlink.count(b"a") <= 5


def test_what_took_long_already_is_not_held(monkeypatch):
    """A SuperNode that waits no longer loses the message that it is answered with."""
    superlink = SuperLink(a=[NOTHING])
    answer = superlink.handle_async_request

    async def slow(request):
        await asyncio.sleep(1.1)
        return await answer(request)

    monkeypatch.setattr(superlink, "handle_async_request", slow)
    assert at_gate(superlink, lambda gate: asking(gate, b"a")) == (200, NOTHING)
    assert superlink.count(b"a") == 1


@pytest.mark.parametrize("target", [PULL, PULL_OBJECT])
def test_an_answer_that_breaks_off_is_no_fault_of_the_gates(target):
    """At a status of 500 a SuperNode stops for good."""

    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield b"\n"
            raise httpx.ReadError("the SuperLink is gone")

    headers = {"content-length": "10"}
    broken = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Broken()))
    assert at_gate(broken, lambda gate: asking(gate, b"a", target=target))[0] == 502


def test_others_are_asked_for_at_once_when_one_is_handed_a_message_of_a_new_batch(monkeypatch):
    monkeypatch.setattr(waiting, "_LONG_PAUSE", 0.9)
    first, second = handed_out(), handed_out()
    superlink = SuperLink(a=[NOTHING, second], b=[first])

    async def steps(gate):
        held = asyncio.ensure_future(asking(gate, b"a"))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        assert (await asking(gate, b"b", key=STRANGER))[1] == first
        assert (await held)[1] == second
        return time.monotonic() - started

    assert at_gate(superlink, steps) < 0.5


def test_many_that_wait_in_vain_have_it_asked_once_each(monkeypatch):
    monkeypatch.setattr(waiting, "_LOOKS", 2.0)
    superlink = SuperLink(a=[NOTHING])

    async def steps(gate):
        return await asyncio.gather(*[asking(gate, b"a") for _ in range(4)])

    assert at_gate(superlink, steps) == [(200, NOTHING)] * 4
    assert superlink.count(b"a") <= 4 + 3


def test_a_part_that_is_still_being_sent_is_waited_for():
    superlink = SuperLink(a=[TO_COME, TO_COME, PART])
    found = at_gate(superlink, lambda gate: asking(gate, b"a", target=PULL_OBJECT))
    assert found == (200, PART)
    assert superlink.count(b"a") == 3
    lacking = PullObjectResponse(object_found=False).SerializeToString()
    superlink = SuperLink(a=[lacking])
    assert at_gate(superlink, lambda gate: asking(gate, b"a", target=PULL_OBJECT))[1] == lacking
    assert superlink.count(b"a") == 1


def test_a_device_that_has_gone_is_not_asked_for():
    """The SuperLink would take its message for delivered."""
    superlink = SuperLink(a=[NOTHING, handed_out()])

    async def steps(gate):
        gone = asyncio.Event()
        held = asyncio.ensure_future(asking(gate, b"a", gone=gone))
        await asyncio.sleep(0.1)
        gone.set()
        return await held

    assert at_gate(superlink, steps) == []
    assert superlink.count(b"a") == 1


def test_a_device_that_is_turned_away_meanwhile_is_told_so():
    superlink = SuperLink(a=[NOTHING, 401])

    async def steps(gate):
        found = await asking(gate, b"a")
        return found, [device.is_known for device in gate._callers._devices.values()]

    assert at_gate(superlink, steps) == ((401, b""), [False, True])


@pytest.mark.parametrize(
    ("target", "code", "status"),
    [
        (PULL_OBJECT, ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, 404),
        (b"/v1/fleet/confirm-message-received", ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, 404),
        (b"/v1/fleet/get-run", ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED, 403),
        (PULL_OBJECT, 0, 403),
    ],
)
def test_a_node_drops_a_message_whose_run_has_ended(target, code, status):
    """At the SuperLink's 403 it would keep the message, and answer it instead of the next run's."""
    ended = httpx.MockTransport(
        lambda _: httpx.Response(403, text=json.dumps({"code": code, "detail": ""}))
    )
    assert at_gate(ended, lambda gate: asking(gate, b"a", target=target))[0] == status
