"""Replies far larger than a model, and of thousands of parts, cost the others nothing."""

import threading
import time
from contextlib import ExitStack

import numpy as np
import psutil
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_tree

from tests.device_processes import Federation, Program, federation
from tests.probe_app import probing
from tests.raw_device import RawDevice, status_of

pytestmark = [pytest.mark.slow, pytest.mark.faults]

MIB = 2**20
LARGE = 100  # MiB; with 500 it is the same
PATIENCE = 3600.0  # seconds: no test waits so long
NAMES = ("berlin", "lyon", "mallory", "eve")
ROUNDS = 2


def answer(numbers) -> RecordDict:
    return RecordDict({"arrays": ArrayRecord({"a": Array(np.atleast_1d(numbers))})})


def megabytes(program: Program) -> float:
    """Return the memory of a program and all that it has started."""
    parent = psutil.Process(program.process.pid)
    return sum(one.memory_info().rss for one in (parent, *parent.children(recursive=True))) / MIB


def stored(devices: Federation) -> float:
    files = (devices.folder / "superlink").glob("state.db*")
    return sum(file.stat().st_size for file in files) / MIB


def of_many_parts(reply: Message) -> ObjectTree:
    tree = get_object_tree(reply)
    tree.children.extend(ObjectTree(object_id=f"{i:064x}") for i in range(2000))
    return tree


def test_a_huge_reply_and_one_of_thousands_of_parts_do_not_end_the_run(tmp_path):
    with ExitStack() as stack:
        devices = stack.enter_context(federation(tmp_path / "federation"))
        devices.register(*NAMES)
        berlin, lyon, mallory, eve = (stack.enter_context(RawDevice(devices, n)) for n in NAMES)
        most, end = [0.0], threading.Event()

        def watch() -> None:
            while not end.wait(0.1):
                most.append(max(megabytes(devices.superlink), most[-1]))

        watcher = threading.Thread(target=watch)
        probe = stack.enter_context(
            probing(devices, tmp_path / "probe", nodes=4, rounds=ROUNDS, timeout=PATIENCE)
        )
        for number in range(1, ROUNDS + 1):
            honest = [(device, device.wait_for_message()) for device in (berlin, lyon)]
            to_mallory, to_eve = mallory.wait_for_message(), eve.wait_for_message()
            if number == 1:
                before = megabytes(devices.superlink)
                watcher.start()
                stack.callback(watcher.join)
                stack.callback(end.set)
            large = answer(np.random.default_rng(0).integers(0, 256, LARGE * MIB, np.uint8))
            huge, many = Message(large, reply_to=to_mallory), Message(answer(3.0), reply_to=to_eve)
            assert status_of(lambda huge=huge: mallory.push(huge)) == 403
            assert status_of(lambda many=many: eve.push(many, of_many_parts(many))) == 403
            for place, (device, message) in enumerate(honest):
                started = time.monotonic()
                device.reply(message, answer(float(place)))
                assert time.monotonic() - started < 15
            said = probe.answers(number)
            assert said["answers"][str(berlin.node_id)] == [0.0]
            assert said["answers"][str(lyon.node_id)] == [1.0]
            assert "more than 700 parts" in said["answers"][str(eve.node_id)]
            assert isinstance(said["answers"][str(mallory.node_id)], str)
        assert probe.program.wait_for_exit() == 0
        assert "its reply is larger than" in devices.gate.text
        assert "database is locked" not in devices.superlink.text
        # The floor of 16 MiB for each of its replies may be there, and no more of them.
        assert stored(devices) < 3 * 16 * ROUNDS
        assert most[-1] < before + 250


def test_supernodes_that_can_never_answer_are_failures_at_once_and_go_on(tmp_path):
    """One answers with thousands of arrays, one with far more numbers than it was sent."""
    with ExitStack() as stack:
        devices = stack.enter_context(federation(tmp_path / "federation"))
        many, huge = devices.register("many", "huge")
        stack.enter_context(devices.supernode("many", "arrays=2500 bytes=8"))
        stack.enter_context(devices.supernode("huge", f"arrays=1 bytes={30 * MIB}"))
        probe = stack.enter_context(
            probing(devices, tmp_path / "probe", nodes=2, rounds=ROUNDS, timeout=PATIENCE)
        )
        for number in range(1, ROUNDS + 1):
            said = probe.answers(number)["answers"]
            assert "it is longer than 262144 bytes" in said[str(many)]
            assert isinstance(said[str(huge)], str)
        assert probe.program.wait_for_exit() == 0
