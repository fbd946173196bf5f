"""What one registered device can do to others: real SuperLink, real gate, real ServerApp."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.supercore.inflatable.inflatable_object import get_object_tree

from fl_app.devices.certificates import make_certificates
from tests.device_processes import Federation, federation
from tests.probe_app import Probe, probing
from tests.raw_device import RawDevice, fleet_client, status_of

pytestmark = [pytest.mark.slow, pytest.mark.faults]

WAITED_FOR = 3600.0  # seconds: no test waits so long


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> Iterator[Federation]:
    with federation(tmp_path_factory.mktemp("federation")) as started:
        started.register("berlin", "mallory")
        yield started


def answer(number: float) -> RecordDict:
    return RecordDict({"arrays": ArrayRecord({"a": Array(np.array([number]))})})


def answers_of(berlin: RawDevice, mallory: RawDevice) -> dict[str, list[float]]:
    return {str(berlin.node_id): [1.0], str(mallory.node_id): [2.0]}


@contextmanager
def both(devices, folder, port=None, **config) -> Iterator[tuple[RawDevice, RawDevice, Probe]]:
    """Yield berlin, mallory, who calls at another port, and the app of a run of both."""
    with (
        RawDevice(devices, "berlin") as berlin,
        RawDevice(devices, "mallory", port) as mallory,
        probing(devices, folder / "probe", **{"rounds": 1, **config}) as probe,
    ):
        yield berlin, mallory, probe


def test_no_device_answers_for_another(devices, tmp_path):
    """Even at the SuperLink itself, without the gate: the ServerApp does not believe it."""
    with both(devices, tmp_path, devices.port) as (berlin, mallory, probe):
        to_mallory, to_berlin = mallory.wait_for_message(), berlin.wait_for_message()
        for _ in range(3):  # Flower hands them out when the next answer is asked for
            mallory.push(mallory.order(to_mallory, answer(666.0), target=1))
        time.sleep(3)
        mallory.reply(to_mallory, answer(2.0))
        berlin.reply(to_berlin, answer(1.0))
        assert probe.answers(1)["answers"] == answers_of(berlin, mallory)
        assert "a message that is no answer is ignored" in probe.program.text


def test_no_device_sends_instructions_to_others(devices, tmp_path):
    with both(devices, tmp_path, timeout=WAITED_FOR) as (berlin, mallory, probe):
        to_berlin, to_mallory = berlin.wait_for_message(), mallory.wait_for_message()
        order = mallory.order(to_mallory, answer(666.0), target=berlin.node_id)
        assert status_of(lambda: mallory.push(order)) == 403
        to_server = mallory.order(to_mallory, answer(666.0), target=1)
        assert status_of(lambda: mallory.push(to_server)) == 403
        # Nor does it answer for another, were it to know what was asked.
        forged = Message(answer(666.0), reply_to=to_berlin)
        assert status_of(lambda: mallory.push(forged)) == 403
        assert berlin.next_message() is None
        berlin.reply(to_berlin, answer(1.0))
        mallory.reply(to_mallory, answer(2.0))
        assert probe.answers(1)["answers"] == answers_of(berlin, mallory)
    assert "it is an instruction, and devices only reply" in devices.gate.text


def test_without_the_gate_a_node_sends_instructions(devices, tmp_path):
    """Of Flower alone, which is why the gate checks identity (docs/devices-reference.md)."""
    with (
        RawDevice(devices, "berlin", devices.port) as berlin,
        RawDevice(devices, "mallory", devices.port) as mallory,
        probing(devices, tmp_path / "probe", rounds=1) as probe,
    ):
        to_berlin, to_mallory = berlin.wait_for_message(), mallory.wait_for_message()
        mallory.push(mallory.order(to_mallory, answer(666.0), target=berlin.node_id))
        order = berlin.wait_for_message()
        assert order.metadata.src_node_id == 1  # as if the server had sent it
        assert order.content.array_records["arrays"]["a"].numpy().tolist() == [666.0]
        berlin.reply(to_berlin, answer(1.0))
        mallory.reply(to_mallory, answer(2.0))
        assert set(probe.answers(1)["answers"]) == {str(berlin.node_id), str(mallory.node_id)}


def test_an_answer_for_a_run_that_is_not_there_disturbs_no_other(devices, tmp_path):
    """The SuperLink fails at it, as it does at what may be sent again."""
    with both(devices, tmp_path) as (berlin, mallory, probe):
        to_berlin, to_mallory = berlin.wait_for_message(), mallory.wait_for_message()
        nowhere = Message(answer(666.0), reply_to=to_mallory)
        nowhere.metadata.__dict__["_run_id"] += 1
        assert status_of(lambda: mallory.push(nowhere)) == 503
        part = PushObjectRequest(node=mallory.node, run_id=nowhere.metadata.run_id)
        assert status_of(lambda: mallory.client.PushObject(part)) == 503
        berlin.reply(to_berlin, answer(1.0))
        mallory.reply(to_mallory, answer(2.0))
        assert probe.answers(1)["answers"] == answers_of(berlin, mallory)


def test_a_small_reply_that_claims_to_be_huge_is_not_put_together(devices, tmp_path):
    record = ArrayRecord({"a": Array(np.zeros(5 * 2**20 - 200, np.uint8))})
    record["a"].__dict__["_chunks"] = record["a"].slice_array() * 400
    with both(devices, tmp_path, rounds=2) as (berlin, mallory, probe):
        for number, content in ((1, answer(2.0)), (2, RecordDict({"arrays": record}))):
            to_berlin, to_mallory = berlin.wait_for_message(), mallory.wait_for_message()
            mallory.reply(to_mallory, content)
            berlin.reply(to_berlin, answer(1.0))
            said = probe.answers(number)
            assert said["answers"][str(berlin.node_id)] == [1.0]
            if number == 1:
                before = said["megabytes"]
        assert "it is larger than the 16 MiB" in said["answers"][str(mallory.node_id)]
        assert said["megabytes"] < before + 100  # 2,000 are claimed


def test_no_device_blocks_messages_to_others(devices, tmp_path):
    """It registers the names of what all are sent next, without the gate, with other parts."""
    model = ArrayRecord([np.arange(1000.0)])
    with both(devices, tmp_path, devices.port, rounds=2, timeout=8.0) as (berlin, mallory, probe):
        to_mallory = mallory.wait_for_message()
        to_berlin = berlin.wait_for_message()
        reply = Message(answer(2.0), reply_to=to_mallory)
        tree = get_object_tree(reply)
        # Its parts, and those of the model as the next message would have it.
        foreseen = get_object_tree(model)
        names = [foreseen.object_id, *(array.object_id for array in foreseen.children)]
        other = ObjectTree(object_id="f" * 64)
        tree.children.extend(ObjectTree(object_id=name, children=[other]) for name in names)
        mallory.push(reply, tree)
        berlin.reply(to_berlin, answer(1.0))
        assert probe.answers(1)["answers"][str(berlin.node_id)] == [1.0]
        for device, number in ((mallory, 2.0), (berlin, 1.0)):
            device.reply(device.wait_for_message(), answer(number))
        assert probe.answers(2)["answers"] == answers_of(berlin, mallory)


def test_a_message_of_a_run_that_is_stopped_meanwhile_is_dropped(devices, tmp_path):
    with both(devices, tmp_path, timeout=WAITED_FOR) as (berlin, _, _):
        about = berlin.wait_for_message().metadata
        devices.flwr("stop", str(about.run_id))
        in_run = {"node": berlin.node, "run_id": about.run_id}
        part = PullObjectRequest(object_id=about.message_id, **in_run)
        assert status_of(lambda: berlin.client.PullObject(part)) == 404
        got = ConfirmMessageReceivedRequest(message_object_id=about.message_id, **in_run)
        assert status_of(lambda: berlin.client.ConfirmMessageReceived(got)) == 404


def test_thousands_of_names_do_not_pass(devices, tmp_path):
    with both(devices, tmp_path, timeout=WAITED_FOR) as (berlin, mallory, probe):
        to_berlin, to_mallory = berlin.wait_for_message(), mallory.wait_for_message()
        reply = Message(answer(2.0), reply_to=to_mallory)
        tree = get_object_tree(reply)
        tree.children.extend(ObjectTree(object_id=f"{i:064x}") for i in range(2000))
        assert status_of(lambda: mallory.push(reply, tree)) == 403
        berlin.reply(to_berlin, answer(1.0))
        said = probe.answers(1)["answers"]  # a device that can never answer is not waited for
        assert said[str(berlin.node_id)] == [1.0]
        assert "it has more than 700 parts" in said[str(mallory.node_id)]


def test_unregistered_keys_do_not_exhaust_the_gate(devices, tmp_path_factory):
    """Eight senders push as much as they can."""
    folder = tmp_path_factory.mktemp("strangers")
    make_certificates(folder, ["localhost"], ["eve"])
    end = threading.Event()
    statuses = set()

    def send() -> None:
        with fleet_client(devices, folder / "devices/eve.key") as client:
            while not end.is_set():
                with suppress(httpx.TransportError):  # it is closed before all is sent
                    statuses.add(status_of(lambda: client.PushObject(large)))

    large = PushObjectRequest(object_content=bytes(15 * 2**20))
    with RawDevice(devices, "berlin") as berlin:
        senders = [threading.Thread(target=send) for _ in range(8)]
        for sender in senders:
            sender.start()
        try:
            time.sleep(1)
            took = []
            for _ in range(20):
                started = time.monotonic()
                berlin.beat()
                took.append(time.monotonic() - started)
        finally:
            end.set()
            for sender in senders:
                sender.join()
    assert statuses <= {503}
    assert max(took) < 10


def lock(devices: Federation, seconds: float) -> None:
    """Lock the SuperLink's database, as a careless backup does."""
    locked = sqlite3.connect(devices.folder / "superlink/state.db", isolation_level=None)
    locked.execute("BEGIN IMMEDIATE")
    time.sleep(seconds)
    locked.execute("ROLLBACK")
    locked.close()


def test_a_superlink_that_fails_stops_no_supernode(tmp_path):
    """They would stay offline for good, with their processes alive."""
    with federation(tmp_path, patient=False) as devices:
        devices.register("berlin")
        with devices.supernode("berlin") as supernode:
            supernode.wait_for("SuperNode ID")
            lock(devices, 12)  # Flower waits for 5
            supernode.wait_for("Connection successful after")
            (berlin,) = devices.flwr("supernode", "list")["nodes"]
            assert berlin["status"] == "online"
        # It signs off, as one that still listens does.
        devices.superlink.wait_for("[Fleet.DeactivateNode] Deactivated")
        assert "database is locked" in devices.superlink.text
        assert "the SuperLink failed: try again later" in devices.gate.text


def test_a_locked_database_is_waited_for(tmp_path):
    """Flower's programs would end, and no run would start on this SuperLink any more."""
    with federation(tmp_path / "federation") as devices:
        devices.register("berlin", "mallory")
        with RawDevice(devices, "berlin") as berlin, RawDevice(devices, "mallory") as mallory:
            lock(devices, 12)
            with probing(devices, tmp_path / "probe", rounds=2, timeout=60.0) as probe:
                for number in (1, 2):
                    berlin.reply(berlin.wait_for_message(), answer(1.0))
                    to_mallory = mallory.wait_for_message()
                    if number == 1:
                        lock(devices, 12)
                    mallory.reply(to_mallory, answer(2.0))
                    assert probe.answers(number)["answers"] == answers_of(berlin, mallory)
        assert "database is locked" not in devices.superlink.text
