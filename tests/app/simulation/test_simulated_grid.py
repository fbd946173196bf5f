"""The grid of a simulation hands out and collects messages as Flower's own does, only sooner."""

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from uuid import uuid4

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.fleet.vce.vce_api import _register_nodes
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

from fl_app.simulation.ray_grid import SimulatedGrid


def flowers(grid):
    return grid


@pytest.fixture(params=[flowers, SimulatedGrid], ids=["Flower's", "ours"])
def world(request, monkeypatch):
    """Return a grid, the store of its messages and twenty nodes."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1, raising=False)
    factory = LinkStateFactory(
        FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory()
    )
    state, run = factory.state(), Run.create_empty(1)
    run.primary_task_id, run.federation_id = 1, NOOP_FEDERATION_ID
    state.run_ids[1] = RunRecord(run=run)
    state.task_store[1] = Task(task_id=1, run_id=1)
    nodes = list(_register_nodes(20, factory))
    grid = InMemoryGrid(state_factory=factory)
    grid.set_run(run)
    grid.pull_interval = 0.01
    return request.param(grid), state, nodes


def to(node, word="hello", ttl=100.0, kind="query"):
    content = RecordDict({"said": ConfigRecord({"word": word})})
    return Message(content, dst_node_id=node, message_type=kind, ttl=ttl)


def given(state, nodes):
    """Return what is handed out next, (node, word), in one turn of Flower's simulation."""
    return [
        (message.metadata.dst_node_id, message.content["said"]["word"])
        for node in nodes
        for message in state.get_message_ins(node_id=node, limit=1)
    ]


@contextmanager
def answering(state, nodes, silent=()):
    """Answer each message, but those of the silent nodes, as Flower's simulation does."""
    got, done = Counter(), threading.Event()

    def answer():
        while not done.wait(0.005):
            for node in nodes:
                for message in state.get_message_ins(node_id=node, limit=1):
                    got[message.metadata.dst_node_id] += 1
                    if message.metadata.dst_node_id in silent:
                        continue
                    reply = Message(message.content, reply_to=message)
                    reply.metadata.__dict__["_message_id"] = str(uuid4())
                    state.store_message_res(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield got
    finally:
        done.set()
        thread.join()


def test_every_node_gets_each_message_once_and_every_reply_comes(world):
    grid, state, nodes = world
    with answering(state, nodes) as got:
        for _ in range(3):
            replies = list(grid.send_and_receive([to(n, str(n)) for n in nodes], timeout=30))
            found = {reply.metadata.src_node_id: reply.content["said"]["word"] for reply in replies}
            assert found == {node: str(node) for node in nodes}
    assert got == dict.fromkeys(nodes, 3)
    assert not state.message_ins_store
    assert not state.message_res_store


def test_a_node_gets_several_messages_in_their_order(world):
    grid, state, nodes = world
    grid.push_messages([to(nodes[0], word) for word in "abc"] + [to(nodes[1], "x")])
    handed_out = [one for _ in range(5) for one in given(state, nodes)]
    assert len(handed_out) == 4
    assert [word for node, word in handed_out if node == nodes[0]] == ["a", "b", "c"]
    assert (nodes[1], "x") in handed_out
    assert state.get_message_ins(node_id=nodes[2], limit=None) == []
    grid.push_messages([to(nodes[0], word) for word in "de"])
    assert len(state.get_message_ins(node_id=nodes[0], limit=None)) == 2


@pytest.mark.parametrize("world", [SimulatedGrid], indirect=True)
def test_messages_are_handed_out_in_the_order_in_which_they_were_sent(world):
    grid, state, nodes = world
    order = [*reversed(nodes[:7]), *nodes[7:]]
    grid.push_messages([to(node) for node in order])
    assert [node for node, _ in given(state, nodes)] == order


@pytest.mark.parametrize("world", [SimulatedGrid], indirect=True)
def test_no_message_is_handed_out_before_all_are_there(world):
    grid, state, nodes = world
    taken, pushing = [], threading.Event()

    def ask():
        pushing.wait()
        taken.extend(given(state, nodes))

    def slowly():
        for node in nodes:
            yield to(node)
            pushing.set()
            time.sleep(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    grid.push_messages(slowly())
    thread.join()
    assert [node for node, _ in taken] == nodes


def test_who_is_silent_is_not_waited_for_longer_than_said(world):
    grid, state, nodes = world
    with answering(state, nodes, silent=nodes[:2]):
        started = time.monotonic()
        replies = list(grid.send_and_receive([to(n) for n in nodes], timeout=1.0))
        assert 0.9 < time.monotonic() - started < 20
    assert {r.metadata.src_node_id for r in replies} == set(nodes[2:])


def test_an_expired_message_reaches_nobody(world):
    grid, state, nodes = world
    grid.push_messages([to(nodes[0], "late", ttl=0.05), to(nodes[0], "here")])
    time.sleep(0.1)
    assert [one for _ in range(3) for one in given(state, nodes)] == [(nodes[0], "here")]


def test_nothing_is_asked_of_nobody(world):
    grid, _, _ = world
    assert list(grid.send_and_receive([], timeout=100)) == []


@pytest.mark.faults
def test_expired_messages_are_answered_by_flower_s_errors(world):
    grid, state, nodes = world
    with answering(state, nodes, silent=nodes):
        replies = list(grid.send_and_receive([to(nodes[0], ttl=0.3)], timeout=8))
    assert [reply.has_error() for reply in replies] == [True]


def test_a_round_goes_on_without_who_is_late(world):
    flower, state, nodes = world
    if isinstance(flower, SimulatedGrid):
        flower = flower._grid
    grid, late = SimulatedGrid(flower, 0.9), set(nodes[:2])

    def words(word):
        asked = [to(n, word, kind="train") for n in nodes]
        return {
            reply.metadata.src_node_id: reply.error.reason
            if reply.has_error()
            else reply.content["said"]["word"]
            for reply in grid.send_and_receive(asked, timeout=60)
        }

    rest = set(nodes) - late
    with answering(state, nodes, silent=late) as got:
        reason = "no answer when 18 of 20 had answered"
        assert words("a") == dict.fromkeys(rest, "a") | dict.fromkeys(late, reason)
        reason = "it is still busy with an earlier message"
        assert words("b") == dict.fromkeys(rest, "b") | dict.fromkeys(late, reason)
        assert all(got[node] == 1 for node in late)
    for node, (number, message) in zip(late, list(grid._late.items()), strict=True):
        reply = Message(message.content, reply_to=message)
        reply.metadata.__dict__["_message_id"] = str(uuid4())
        assert state.store_message_res(reply), (node, number)
    with answering(state, nodes):
        assert words("c") == dict.fromkeys(nodes, "c")
    assert not state.message_ins_store
    assert not state.message_res_store


def test_what_flower_logs_of_a_clients_exception_is_left_to_the_server(world):
    logger = logging.getLogger("flwr")

    def shows(module, level):
        record = logger.makeRecord("flwr", level, f"/flwr/{module}.py", 1, "said", (), None)
        return bool(logger.filter(record))

    assert not shows("vce_api", logging.ERROR)
    assert not shows("raybackend", logging.ERROR)
    assert shows("vce_api", logging.WARNING)
    assert shows("app", logging.ERROR)
