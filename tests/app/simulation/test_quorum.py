"""A round that goes on once a share of the clients has answered."""

import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from flwr.app import ArrayRecord, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fl_app.devices import grid as device_grid
from fl_app.devices.grid import DeviceGrid
from fl_app.run import quorum
from fl_app.run.quorum import Patience
from fl_core.messages import protocol
from fl_core.messages.packing import unpack_content
from tests.device_post import Post, good, reply_of
from tests.local_grid import LocalGrid
from tests.toy_app import STRATEGIES, run, toy_app, weights

LATE = "no answer when 3 of 4 had answered"
BUSY = "it is still busy with an earlier message"
STEPS = [
    protocol.query(step) for step in (protocol.PUBLIC_KEYS, protocol.SHARE_KEYS, protocol.UNMASK)
]
EARLY = [protocol.TRAIN, protocol.EVALUATE, protocol.query(protocol.LOSSES), *STEPS]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(device_grid, "_PAUSE", 0.01)
    monkeypatch.setattr(device_grid, "_STUCK", 0.2)


def told(kind="train", content=None, ttl=60.0, nodes=(2, 3, 4, 5), group="1"):
    return [
        Message(
            content or RecordDict(), dst_node_id=node, message_type=kind, ttl=ttl, group_id=group
        )
        for node in nodes
    ]


def outcome(replies):
    """Return, by node, why it failed, or None."""
    return {
        reply.metadata.src_node_id: reply.error.reason if reply.has_error() else None
        for reply in replies
    }


class Slow:
    """A device that answers once it is let go, each message once."""

    def __init__(self):
        self.free = threading.Event()
        self.asked = []

    def __call__(self, message):
        if message.object_id not in self.asked:
            self.asked.append(message.object_id)
        if not self.free.is_set():
            return []
        return [reply_of(message, RecordDict({"arrays": ArrayRecord([np.ones(3)])}))]


@pytest.fixture
def slow():
    return Slow()


def grid_with(slow, share=0.75):
    return DeviceGrid(Post({2: good, 3: good, 4: good, 5: slow}), share)


def clock(monkeypatch, *seconds):
    ticks = iter(seconds)
    monkeypatch.setattr(quorum.time, "monotonic", lambda: next(ticks))


def test_the_rest_is_waited_for_as_long_again_as_the_quorum_took(monkeypatch):
    clock(monkeypatch, 108.0, 200.0)
    message = told()[0]
    ok, failed = reply_of(message), Message(Error(1, "x"), reply_to=message)
    patience = Patience(asked=10, started=100.0, end=1000.0, quorum=3)
    patience.count([ok, failed, failed])
    patience.count([ok])
    assert (patience.end, patience.has_quorum) == (1000.0, False)
    patience.count([ok])
    assert (patience.end, patience.has_quorum) == (116.0, True)
    patience.count([ok])  # later answers prolong nothing
    assert patience.end == 116.0


def test_a_quorum_does_not_prolong_the_deadline(monkeypatch):
    clock(monkeypatch, 108.0)
    patience = Patience(asked=3, started=100.0, end=110.0, quorum=1)
    patience.count([reply_of(told()[0])])
    assert patience.end == 110.0


def test_who_waits_for_all_does_not_hurry(monkeypatch):
    clock(monkeypatch)
    patience = Patience(asked=2, started=100.0, end=1000.0, quorum=2)
    patience.count([reply_of(message) for message in told(nodes=(2, 3))])
    assert (patience.end, patience.has_quorum) == (1000.0, False)


@pytest.mark.parametrize("kind", EARLY)
def test_a_round_goes_on_without_who_is_late(kind, slow):
    replies = grid_with(slow).send_and_receive(told(kind), timeout=60)
    assert outcome(replies) == {2: None, 3: None, 4: None, 5: LATE}


@pytest.mark.parametrize("kind", [protocol.DESCRIBE, protocol.SPECTRUM, protocol.SAVE_MODEL])
def test_who_is_late_at_what_finds_clusters_is_waited_for(kind, slow):
    threading.Timer(0.5, slow.free.set).start()
    replies = grid_with(slow).send_and_receive(told(protocol.query(kind)), timeout=60)
    assert outcome(replies) == dict.fromkeys((2, 3, 4, 5))


def test_before_the_first_round_all_are_waited_for_whatever_is_asked(slow):
    """IFCA asks for losses then, too, and who does not answer is left out."""
    threading.Timer(0.5, slow.free.set).start()
    losses = told(protocol.query(protocol.LOSSES), group=protocol.PRE_ROUND)
    assert outcome(grid_with(slow).send_and_receive(losses, timeout=60)) == dict.fromkeys(
        (2, 3, 4, 5)
    )


def test_a_share_that_is_not_reached_is_waited_for_until_the_deadline(slow):
    replies = grid_with(slow, 0.76).send_and_receive(told(), timeout=0.5)
    assert outcome(replies) == dict.fromkeys((2, 3, 4))


def test_a_late_answer_is_thrown_away_and_its_device_asked_again(slow):
    grid = grid_with(slow)
    post = grid._grid
    assert outcome(grid.send_and_receive(told(), timeout=60))[5] == LATE
    assert outcome(grid.send_and_receive(told("evaluate"), timeout=60))[5] == BUSY
    assert len(slow.asked) == 1
    confirmed = len(post.confirmed)
    slow.free.set()
    third = told(content=RecordDict({"arrays": ArrayRecord([np.zeros(9)])}))
    replies = list(grid.send_and_receive(third, timeout=60))
    assert outcome(replies) == dict.fromkeys((2, 3, 4, 5))
    assert len(slow.asked) == 2
    # That it answers the third message, its own reply says; the late one was not fetched.
    assert len(post.confirmed) == confirmed + 1 + 4
    assert not grid._late


def test_who_is_late_is_asked_again_once_the_time_of_its_message_is_over(slow):
    grid = grid_with(slow)
    grid.send_and_receive(told(ttl=1e-6), timeout=60)
    assert outcome(grid.send_and_receive(told(), timeout=60))[5] == LATE
    assert len(slow.asked) == 2


@pytest.mark.parametrize(("seconds", "said"), [(1, None), (-60, BUSY)])
def test_who_is_late_is_asked_again_once_it_has_restarted(slow, seconds, said):
    grid = grid_with(slow)
    assert outcome(grid.send_and_receive(told(), timeout=60))[5] == LATE
    began = (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()
    info = NodeInfo(node_id=5, last_activated_at=began)
    grid._grid._insecure, grid._grid.get_nodes = True, lambda: [info]
    assert grid.get_node_ids() == [5]
    first = slow.asked[0]
    grid._grid.answers[5] = lambda message: [] if message.object_id == first else good(message)
    assert outcome(grid.send_and_receive(told("evaluate"), timeout=60))[5] == said


def test_who_is_late_is_told_at_once_what_all_must_hear(slow):
    grid = grid_with(slow)
    grid.send_and_receive(told(), timeout=60)
    threading.Timer(0.2, slow.free.set).start()
    keep = told(protocol.query(protocol.SAVE_MODEL))
    assert outcome(grid.send_and_receive(keep, timeout=60)) == dict.fromkeys((2, 3, 4, 5))


def test_an_answer_that_was_half_fetched_when_the_round_ended_is_thrown_away(slow):
    grid = grid_with(slow)
    post = grid._grid
    arrived, honest = threading.Event(), post.PullObject
    big = get_all_nested_objects(RecordDict({"arrays": ArrayRecord([np.ones(3)])}))

    def half_sent(request):
        answer = honest(request)
        if request.object_id in big:
            arrived.set()
            answer.object_available = False
        return answer

    post.PullObject = half_sent
    slow.free.set()
    once = []
    post.answers[5] = lambda message: [] if once else [once.append(1), *slow(message)][1:]
    assert outcome(grid.send_and_receive(told(), timeout=60))[5] == LATE
    assert arrived.wait(10)
    first = set(slow.asked)  # whose answer the SuperLink has handed out, and has no more
    post.PullObject = honest
    post.answers[5] = lambda message: [] if message.object_id in first else good(message)
    for look in grid._fetched.values():
        look.result(20)
    assert outcome(grid.send_and_receive(told(), timeout=60))[5] is None


class ToyPost(Post):
    """Devices that answer as the toy app does; client 1 is late once, by default as it trains.

    It has its answer once so many messages have been sent, or after so many looks for it.
    """

    _insecure = True  # no keys

    def __init__(self, messages, looks, late_at=protocol.TRAIN):
        super().__init__({})
        self.app = toy_app()
        self.local = LocalGrid(self.app, 4)
        self.answers = dict.fromkeys(self.local.contexts, self.reply)
        self.messages, self.looks, self.late_at = messages, looks, late_at

    def get_nodes(self):
        return [NodeInfo(node_id=node) for node in self.local.contexts]

    def reply(self, message):
        about = message.metadata
        first = (about.message_type, about.group_id) == (self.late_at, "1")
        if first and about.dst_node_id == LocalGrid.node_of(1):
            self.looks -= 1
            if self.looks > 0 and len(self.pushed) < self.messages:
                return []
        message.content = unpack_content(message.content)  # as a device's mod does
        return [self.app(message, self.local.contexts[about.dst_node_id])]


def test_with_a_share_of_one_nothing_changes():
    """However late one is: it is waited for."""
    expected = run(STRATEGIES["single"](), LocalGrid(toy_app(), 4), 3)
    found = run(STRATEGIES["single"](), DeviceGrid(ToyPost(messages=99, looks=20)), 3)
    assert protocol.unpack_models(found.arrays) == protocol.unpack_models(expected.arrays)


def test_a_training_without_who_is_late_goes_on_with_it_later(caplog):
    """Client i adds i + 1 in each round: the mean of all is 2.5, without client 1 it is 8/3."""
    strategy = STRATEGIES["single"]()
    post = ToyPost(messages=4 + 4 + 3, looks=10**6)  # the test of round 1 has been asked for
    result = run(strategy, DeviceGrid(post, 0.75), 3)
    assert "client 1 could not train in round 1: " + LATE in caplog.text
    assert "client 1 could not be tested in round 1: " + BUSY in caplog.text
    assert [sorted(report.samples) for report in strategy.reports] == [
        [0, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]
    assert weights(result) == pytest.approx([8 / 3 + 2.5 + 2.5], rel=1e-6)


@pytest.mark.parametrize(("stage", "mean"), [*zip(STEPS, (8 / 3, 8 / 3, 2.5), strict=True)])
def test_a_secure_sum_goes_on_without_who_hangs_at_one_of_its_steps(stage, mean, caplog):
    """Whose update came before it hung is in the sum; nobody asks it again in round 2."""
    strategy = STRATEGIES["single"](secure_aggregation=True)
    post = ToyPost(messages=10**6, looks=10**6, late_at=stage)
    result = run(strategy, DeviceGrid(post, 0.75), 2)
    step = stage.removeprefix("query.")
    assert f"client 1 failed at {step} in round 1: {LATE}" in caplog.text
    assert f"client 1 failed at {protocol.PUBLIC_KEYS} in round 2: {BUSY}" in caplog.text
    assert weights(result) == pytest.approx([mean + 8 / 3], rel=1e-6)
