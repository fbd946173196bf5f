"""Messages to Ray's workers: who answers, who is late, and whose worker ends."""

import logging
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fl_app.simulation import ray_grid
from fl_app.simulation.in_process_grid import InProcessGrid
from fl_app.simulation.ray_grid import RayGrid


class WorkerEndedError(Exception):
    pass


@dataclass(frozen=True, eq=False)
class Reference:
    node: int
    worker: int
    value: tuple[Message, RecordDict, list[logging.LogRecord]]


class OnTwoCpus:
    """Stands in for Ray: two workers; silent nodes get no answer, a killer ends its worker."""

    exceptions = SimpleNamespace(RayError=WorkerEndedError)

    def __init__(self):
        self.silent, self.killers, self.asked, self.busy = set(), set(), Counter(), 0
        self.cpus, self.dead, self.started = 2.0, set(), []

    def nodes(self):
        return [{"Alive": True, "Resources": {"CPU": self.cpus}}, {"Alive": False, "Resources": {}}]

    def remote(self, **resources):
        assert resources == {"num_cpus": 1, "num_gpus": 0.0, "max_restarts": -1}

        def start(_):
            return SimpleNamespace(remote=start_one)

        def start_one():
            worker = SimpleNamespace()
            worker.answer = SimpleNamespace(remote=partial(self.answer, id(worker)))
            self.started.append(worker)
            return worker

        return start

    def kill(self, worker):
        assert id(worker) in self.dead

    def answer(self, worker, message, context):
        node = message.metadata.dst_node_id
        self.asked[node] += 1
        self.busy += 1
        assert self.busy <= 2
        count = context.state.config_records.get("count", ConfigRecord({"is": 0}))["is"] + 1
        state = RecordDict({"count": ConfigRecord({"is": count})})
        reply = Message(RecordDict({"said": ConfigRecord({"n": count})}), reply_to=message)
        record = logging.makeLogRecord({"name": "mine", "levelno": 30, "msg": f"at {node}"})
        return Reference(node, worker, (reply, state, [record]))

    def wait(self, references, timeout):
        ready = [one for one in references if one.node not in self.silent]
        if not ready:
            time.sleep(min(timeout, 0.05))
        self.busy -= len(ready)
        return ready, []

    def get(self, reference):
        if reference.node in self.killers:
            self.dead.add(reference.worker)
        if reference.worker in self.dead:
            raise WorkerEndedError("it was\nkilled")
        return reference.value


@pytest.fixture
def machine(monkeypatch):
    found = OnTwoCpus()
    monkeypatch.setitem(sys.modules, "ray", found)
    monkeypatch.setattr(ray_grid, "_LOOK_AGAIN", 0.05)
    return found


def grid_of(nodes, min_answers=1.0):
    return RayGrid(InProcessGrid(ClientApp(), [{}] * nodes, {}), object, min_answers, 0.0)


def asked(grid, timeout=20.0):
    """Ask all nodes to train; return, by node, how often each has been asked, or its failure."""
    messages = [
        Message(RecordDict(), dst_node_id=node, message_type="train", group_id="1")
        for node in grid.get_node_ids()
    ]
    return {
        one.metadata.src_node_id: one.error.reason if one.has_error() else one.content["said"]["n"]
        for one in grid.send_and_receive(messages, timeout=timeout)
    }


def test_every_node_answers_once_and_keeps_its_state(machine, caplog):
    grid = grid_of(5)
    assert asked(grid) == dict.fromkeys(range(1, 6), 1)
    assert asked(grid) == dict.fromkeys(range(1, 6), 2)
    assert machine.asked == dict.fromkeys(range(1, 6), 2)
    assert sorted(caplog.messages) == sorted(2 * [f"at {node}" for node in range(1, 6)])
    assert list(grid.send_and_receive([], timeout=100)) == []


def test_a_worker_that_ends_is_a_failure_of_its_client(machine):
    grid, others = grid_of(8), [1, 3, 4, 5, 6, 7, 8]
    machine.killers = {2}
    ended = {2: "its worker ended: it was killed"}
    assert asked(grid) == dict.fromkeys(others, 1) | ended
    machine.killers = set()
    assert asked(grid) == dict.fromkeys(others, 2) | {2: 1}
    assert len(machine.started) == 3


def test_a_cluster_without_a_worker_is_refused(machine):
    machine.cpus = 0.0
    with pytest.raises(ValueError, match="no node of Ray has a CPU and 0 GPUs"):
        grid_of(3)


def test_who_is_silent_is_not_waited_for_longer_than_said(machine):
    grid = grid_of(3)
    machine.silent = {1}
    assert asked(grid, timeout=0.2) == {2: 1, 3: 1}
    machine.silent = set()
    assert asked(grid) == {1: 1, 2: 2, 3: 2}  # its first answer came too late


def test_a_round_goes_on_without_who_is_late(machine):
    grid = grid_of(10, 0.9)
    machine.silent = {1}
    rest = dict.fromkeys(range(2, 11))
    late = {1: "no answer when 9 of 10 had answered"}
    assert asked(grid) == dict.fromkeys(rest, 1) | late
    assert asked(grid) == dict.fromkeys(rest, 2) | {1: "it is still busy with an earlier message"}
    assert machine.asked[1] == 1
    machine.silent = set()
    assert asked(grid) == dict.fromkeys(rest, 3) | {1: 2}
    assert not grid._late


def test_a_message_that_no_worker_had_time_for_is_not_sent_later(machine):
    grid = grid_of(4)
    machine.silent = {1, 2}  # both workers
    assert asked(grid, timeout=0.2) == {}
    machine.silent = set()
    assert asked(grid)[4] == 1
    assert machine.asked == {1: 2, 2: 2, 3: 1, 4: 1}
