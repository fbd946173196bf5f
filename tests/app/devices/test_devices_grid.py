"""A grid on which no device can answer for another or cost another's answer."""

import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fl_app.devices import grid as device_grid
from fl_app.devices.grid import DeviceGrid
from fl_core.messages.packing import PACKED, SALT, unpack_content
from tests.device_post import Post, good, reply_of


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(device_grid, "_PAUSE", 0.01)
    monkeypatch.setattr(device_grid, "_STUCK", 0.05)
    monkeypatch.setattr(device_grid, "_PAUSES", (0.0, 0.0))


def failed_answer(status=500):
    request = httpx.Request("POST", "https://127.0.0.1/v1/runtime/x")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError(f"Server error '{status}'", request=request, response=response)


def failed(message):
    return [Message(Error(7, "the disk is full"), reply_to=message)]


def broken(message):
    raise UnicodeDecodeError("utf-8", b"x", 0, 1, "broken")


def as_superlink(message):
    """A message of some device, which says that it is the SuperLink's and replies to nothing."""
    forged = reply_of(message, RecordDict({"arrays": ArrayRecord([np.ones(3)])}), source=1)
    forged.metadata.__dict__["_reply_to_message_id"] = ""
    return forged


def grid_of(answers, push=lambda messages: None):
    return DeviceGrid(Post(answers, push))


def ask(answers, timeout=60.0, grid=None, content=None):
    about = {"message_type": "train", "ttl": 60}
    messages = [Message(content or RecordDict(), dst_node_id=node, **about) for node in answers]
    replies = list((grid or grid_of(answers)).send_and_receive(messages, timeout=timeout))
    return {reply.metadata.src_node_id: reply for reply in replies}


def test_an_answer_arrives_whole():
    numbers = np.arange(6.0).reshape(2, 3)
    records = {"metrics": MetricRecord({"loss": 0.5}), "config": ConfigRecord({"name": "berlin"})}
    content = RecordDict({"arrays": ArrayRecord({"a": Array(numbers)}), **records})
    grid = grid_of({5: lambda message: [reply_of(message, content)]})
    (reply,) = ask({5: None}, grid=grid).values()
    np.testing.assert_array_equal(reply.content["arrays"]["a"].numpy(), numbers)
    assert dict(reply.content["metrics"]) == {"loss": 0.5}
    assert dict(reply.content["config"]) == {"name": "berlin"}
    assert len(grid._grid.confirmed) == 1


def test_an_answer_that_cannot_be_unpacked_is_that_devices_failure():
    replies = ask({2: broken, 3: good, 4: failed, 5: good})
    assert sorted(replies) == [2, 3, 4, 5]
    assert [replies[node].has_error() for node in (2, 3, 4, 5)] == [True, False, True, False]
    assert "cannot be fetched" in replies[2].error.reason
    assert replies[4].error.reason == "the disk is full"


def test_a_message_that_replies_to_nothing_is_no_answer(caplog):
    """Flower returns it with the next answer that is requested, of any device."""
    also = {2: lambda message: [as_superlink(message), reply_of(message)]}
    replies = ask({**also, 3: lambda message: [as_superlink(message)]}, timeout=0.1)
    assert sorted(replies) == [2]
    assert not replies[2].content
    assert "a message that is no answer is ignored" in caplog.text


def test_no_device_answers_for_another_or_another_message():
    earlier = Message(RecordDict(), dst_node_id=4, message_type="train")
    earlier.metadata.__dict__["_message_id"] = "f" * 64
    wrong = {2: lambda message: [reply_of(message, source=3)], 4: lambda _: [reply_of(earlier)]}
    assert sorted(ask({**wrong, 3: good}, timeout=0.1)) == [3]


def test_the_superlink_says_who_is_gone():
    def gone(message):
        error = Message(Error(5, "gone"), reply_to=message)
        error.metadata.__dict__["_src_node_id"] = 1
        return [error]

    assert ask({2: gone})[2].error.reason == "gone"


def test_who_does_not_answer_is_waited_for_until_the_timeout():
    calls = []

    def later(message):
        calls.append(time.monotonic())
        return good(message) if len(calls) == 3 else []

    assert sorted(ask({2: good, 3: lambda message: [], 4: later}, timeout=0.5)) == [2, 4]
    assert len(calls) == 3


def test_a_superlink_that_is_gone_is_no_devices_failure():
    def gone(message):
        raise httpx.ConnectError("gone")

    with pytest.raises(httpx.ConnectError):
        ask({2: good, 3: gone})


@pytest.mark.parametrize("request_name", ["PullMessages", "PullObject", "ConfirmMessageReceived"])
@pytest.mark.parametrize("times", [2, 99])
def test_a_superlink_that_fails_while_an_answer_is_fetched(request_name, times):
    """It costs no answer if it is for a moment, or once the answer is here."""
    grid = grid_of({2: good})
    calls, honest = [], getattr(grid._grid, request_name)

    def locked_first(request):
        calls.append(request)
        if len(calls) <= times:
            raise failed_answer()
        return honest(request)

    setattr(grid._grid, request_name, locked_first)
    reply = ask({2: None}, grid=grid)[2]
    assert reply.has_error() == (request_name.startswith("Pull") and times > 2)


def test_an_answer_that_is_still_being_sent_does_not_delay_the_others():
    others = threading.Event()
    left = threading.Event()

    def slow(message):
        assert others.wait(60)
        return good(message)

    def prompt(message):
        others.set()
        return good(message)

    def dead(message):
        left.wait(60)
        return []

    asked = {2: slow, 3: dead, 4: prompt}
    assert sorted(ask(asked, timeout=1.0)) == [2, 4]
    left.set()


def test_a_slow_answer_is_fetched_only_once():
    looks = []

    def slow(message):
        looks.append(message)
        time.sleep(0.2)
        return good(message)

    assert sorted(ask({2: slow})) == [2]
    assert len(looks) == 1


def test_a_few_answers_are_fetched_at_a_time(monkeypatch):
    """Each request is a write to the SuperLink's database, which does one after the other."""
    monkeypatch.setattr(device_grid, "_STUCK", 60.0)
    lock, running, most = threading.Lock(), [], []

    def busy(message):
        with lock:
            running.append(message)
            most.append(len(running))
        time.sleep(0.02)
        with lock:
            running.remove(message)
        return good(message)

    assert len(ask(dict.fromkeys(range(2, 22), busy))) == 20
    assert max(most) == 4


@pytest.mark.parametrize(("status", "failures", "times"), [(500, 2, 3), (500, 99, 3), (403, 99, 1)])
def test_messages_that_the_superlink_fails_to_take_are_sent_again_as_they_are(
    status, failures, times
):
    """A device may know of them already: other messages would be others to it."""
    pushes = []

    def push(messages):
        pushes.append([message.object_id for message in messages])
        if len(pushes) <= failures:
            raise failed_answer(status)

    answers = {2: good, 3: good}
    with nullcontext() if failures < times else pytest.raises(httpx.HTTPStatusError):
        assert sorted(ask(answers, grid=grid_of(answers, push))) == [2, 3]
    assert pushes == [pushes[0]] * times


# A key, and what `ssh-keygen -l -f` shows of it.
PUBLIC_KEY = (
    b"""-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEjlM7b6C/e0YluzBmfAH7YH75+Lio
D+9bMAYocDGHsqNz6x294DMYNm0Gn4Om9ZAAU8c2M8sEGyHFXhqGwfQAtA==
-----END PUBLIC KEY-----
""",
    "SHA256:Tj3pEEgywOic7EHx925KcrkGZ1GuKRGkCNDMtQP36ls",
)


def post_with(get_nodes, *, insecure=False):
    post = Post({})
    post.get_nodes, post._insecure = get_nodes, insecure
    return post


def node_info(node, **known):
    known["registered_at"] = "2026-11-21T00:00:00+00:00"
    return NodeInfo(node_id=node, public_key=PUBLIC_KEY[0], **known)


def test_a_node_has_the_key_with_which_it_is_registered():
    """Also when it has left; as ssh-keygen shows it."""
    infos = [node_info(5, name="Zu\u0308rich"), node_info(6)]
    grid = DeviceGrid(post_with(lambda: infos))
    assert not grid.registrations()
    grid.get_node_ids()
    infos.pop(0)
    grid.get_node_ids()
    at = datetime(2026, 11, 21, tzinfo=UTC)
    known = {node: one[:3] for node, one in grid.registrations().items()}
    assert known == {5: (PUBLIC_KEY[1], "Z\u00fcrich", at), 6: (PUBLIC_KEY[1], "", at)}


def test_without_tls_a_node_has_no_key():
    grid = DeviceGrid(post_with(lambda: [node_info(5)], insecure=True))
    assert grid.get_node_ids() == [5]
    assert not grid.registrations()


def names_of(grid):
    return [set(get_all_nested_objects(message)) for message in grid._grid.pushed.values()]


def test_names_of_a_messages_parts_are_unpredictable():
    content = RecordDict({"arrays": ArrayRecord([np.ones(3)]), "config": ConfigRecord({"seed": 1})})
    foreseen = set(get_all_nested_objects(content))
    grid = grid_of({2: good, 3: good})
    for _ in range(2):
        ask({2: None, 3: None}, grid=grid, content=content)
    first, same, later, _ = names_of(grid)
    assert len(first & same) == 4 - 1  # all but the message itself: it is stored once for all
    assert not first & later
    assert not (first | later) & foreseen
    for message in grid._grid.pushed.values():
        assert SALT in message.content.config_records["config"]
        found = unpack_content(message.content)
        np.testing.assert_array_equal(found["arrays"]["0"].numpy(), [1] * 3)
        assert found["config"]["seed"] == 1


def repeated(count, times):
    """One array that names its only piece again and again."""
    record = ArrayRecord({"a": Array(np.zeros(count, np.uint8))})
    record["a"].__dict__["_chunks"] = record["a"].slice_array() * times
    return RecordDict({"arrays": record})


def shared(count, times):
    """One array under many names: each becomes a separate array when it is read."""
    array = Array(np.zeros(count, np.uint8))
    return RecordDict({"arrays": ArrayRecord({str(i): array for i in range(times)})})


def named(count, times):
    """One piece of packed arrays under many names: it would be read as often, and joined."""
    piece = ConfigRecord({PACKED: bytes(count)})
    return RecordDict({f"arrays/{i}": piece for i in range(times)})


@pytest.mark.parametrize("claim", [repeated, shared, named])
def test_an_answer_that_claims_to_be_huge_is_never_put_together(claim, monkeypatch):
    inflated = []
    monkeypatch.setattr(device_grid, "inflate_object_from_contents", lambda *a: inflated.append(a))
    answers = {2: lambda message: [reply_of(message, claim(2**20, 40))]}
    grid = grid_of(answers)
    reply = ask(answers, grid=grid)[2]
    assert "it is larger than the 16 MiB that an answer may have here" in reply.error.reason
    assert not inflated
    assert len(grid._grid.confirmed) == 1  # the SuperLink does not keep it


def test_an_answer_of_many_bytes_is_not_fetched_to_its_end():
    big = RecordDict({"arrays": ArrayRecord([np.full(2**20, i, np.uint8) for i in range(40)])})
    grid = grid_of({2: lambda message: [reply_of(message, big)]})
    reply = ask({2: None}, grid=grid)[2]
    assert "larger than the 16 MiB" in reply.error.reason
    assert grid._grid.pulled < 30 * 2**20
    assert len(grid._grid.confirmed) == 1


def test_an_answer_may_be_as_large_as_the_model_that_was_sent_before():
    """IFCA sends models with one message and is sent one back with the answer to another."""
    model = RecordDict({"arrays": ArrayRecord([np.zeros(12 * 2**20, np.uint8)])})
    answer = RecordDict({"arrays": ArrayRecord([np.zeros(20 * 2**20, np.uint8)])})
    grid = grid_of({2: lambda message: [reply_of(message, answer)]})
    assert ask({2: None}, grid=grid)[2].has_error()
    ask({2: None}, grid=grid, content=model)
    assert not ask({2: None}, grid=grid)[2].has_error()


def test_an_answer_of_many_words_is_refused():
    """A list of a million numbers has a few megabytes on its way, and twenty times that here."""
    words = RecordDict({"metrics": MetricRecord({"numbers": list(range(600_000))})})
    reply = ask({2: lambda message: [reply_of(message, words)]})[2]
    assert "the 1 MiB that an answer may have here beside its arrays" in reply.error.reason


def test_who_is_given_up_holds_nothing_any_more():
    """Its parts would stay in memory, and its thread, until Flower gives up hours later."""
    grid = grid_of({2: good})
    pull, started = grid._grid.PullObject, threading.Event()

    def half_sent(request):
        started.set()
        answer = pull(request)
        answer.object_available = False
        return answer

    grid._grid.PullObject = half_sent
    before = set(threading.enumerate())
    assert ask({2: None}, grid=grid, timeout=0.2) == {}
    assert started.is_set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
    assert len(grid._grid.confirmed) == 1  # and the SuperLink need not keep it
