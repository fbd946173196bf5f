"""A grid on which one device's answer cannot cost another's."""

import threading
import time

import httpx
import pytest
from flwr.app import Error, Message, RecordDict

from fl_app import grids
from fl_app.grids import DeviceGrid
from tests.local_grid import LocalGrid
from tests.toy_app import toy_app


class Post(LocalGrid):
    """Pushes and pulls as Flower's grid does; `answers` maps a node to what is pulled for it."""

    def __init__(self, answers):
        super().__init__(toy_app(), 0)
        self.answers = answers
        self.pushed = {}

    def push_messages(self, messages):
        for message in messages:
            number = str(len(self.pushed))
            message.metadata.__dict__["_message_id"] = number
            self.pushed[number] = message
        return list(self.pushed)  # asked only once in these tests

    def pull_messages(self, message_ids):
        (number,) = message_ids
        message = self.pushed[number]
        return self.answers[message.metadata.dst_node_id](message)


def good(message):
    return [Message(RecordDict(), reply_to=message)]


def forged(message):
    reply = Message(RecordDict(), reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = 1
    return [reply]


def failed(message):
    return [Message(Error(7, "the disk is full"), reply_to=message)]


def broken(message):
    raise UnicodeDecodeError("utf-8", b"x", 0, 1, "broken")


def ask(answers, timeout=60.0):
    grid = DeviceGrid(Post(answers))
    messages = [Message(RecordDict(), dst_node_id=n, message_type="train") for n in answers]
    replies = list(grid.send_and_receive(messages, timeout=timeout))
    return {reply.metadata.src_node_id: reply for reply in replies}


def test_an_answer_that_cannot_be_unpacked_is_that_devices_failure():
    replies = ask({1: good, 2: broken, 3: good, 4: failed})
    assert sorted(replies) == [1, 2, 3, 4]
    assert [replies[node].has_error() for node in (1, 2, 3, 4)] == [False, True, False, True]
    assert "cannot be fetched" in replies[2].error.reason
    assert replies[4].error.reason == "the disk is full"


def test_an_answer_is_from_whoever_was_asked():
    assert sorted(ask({1: good, 2: forged})) == [1, 2]


def test_who_does_not_answer_is_waited_for_until_the_timeout(monkeypatch):
    monkeypatch.setattr(grids, "_PAUSE", 0.01)
    calls = []

    def later(message):
        calls.append(time.monotonic())
        return good(message) if len(calls) == 3 else []

    assert sorted(ask({1: good, 2: lambda message: [], 3: later}, timeout=0.1)) == [1, 3]
    assert len(calls) == 3


def test_a_superlink_that_is_gone_is_no_devices_failure():
    def gone(message):
        raise httpx.ConnectError("gone")

    with pytest.raises(httpx.ConnectError):
        ask({1: good, 2: gone})


def test_an_answer_at_which_the_superlink_fails_is_that_devices_failure():
    # Flower's SuperLink stores a reply that lives for NaN seconds, and fails when it is asked for.
    def spoilt(message):
        request = httpx.Request("POST", "https://127.0.0.1/v1/runtime/pull-messages")
        response = httpx.Response(500, request=request)
        raise httpx.HTTPStatusError("Server error '500'", request=request, response=response)

    replies = ask({1: spoilt, 2: good})
    assert [replies[node].has_error() for node in (1, 2)] == [True, False]
    assert "cannot be fetched: Server error '500'" in replies[1].error.reason


def test_an_answer_that_is_still_being_sent_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(grids, "_PAUSE", 0.01)
    monkeypatch.setattr(grids, "_HANDOVER", 0.01)
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

    asked = {1: slow, 2: dead, 3: prompt}
    assert sorted(ask(asked, timeout=1.0)) == [1, 3]
    left.set()


def test_a_slow_answer_is_fetched_only_once(monkeypatch):
    monkeypatch.setattr(grids, "_PAUSE", 0.01)
    monkeypatch.setattr(grids, "_HANDOVER", 0.01)
    looks = []

    def slow(message):
        looks.append(message)
        time.sleep(0.2)
        return good(message)

    assert sorted(ask({1: slow})) == [1]
    assert len(looks) == 1


def test_nothing_is_sent_for_nobody():
    assert ask({}) == {}
