"""What the pre-round of spectral clustering costs for K devices, at each end: docs/scale.md.

Bytes are of the records that are really sent; seconds and peak memory are of the functions that
clients and server really call, on random eigenvectors, since what is in them does not matter to
either: the ClientApp's queries, the server's strategy, and Flower's own way from it to the
SuperLink, whose store of objects stands in for the SuperLink. The network is not run: what it takes
is bytes divided by its speed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.runtime_pb2 import PushAppMessagesRequest, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid.http_grid import HttpGrid
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.privacy import EIGENVECTORS
from benchmarks.scale_tables import most_devices_named, most_devices_within, tables
from benchmarks.writing import RESULTS, write
from clients.attacks import random_basis
from clients.client import Client
from clients.features.compute import feature_map
from clients.features.dimensions import feature_dimension
from clients.handlers import answer_queries
from fl_core.data.datasets import load_dataset
from fl_core.wire import protocol
from strategies.clusterings.grouping import agglomerate, average_relevance
from strategies.clusterings.spectral import SpectralClustering
from strategies.engine.conversation import Conversation
from strategies.engine.roster import Roster

DEVICES = (100, 1_000, 10_000)
IMAGES = 2_400  # MNIST's 60,000 over 25 clients


def message_bytes(devices: int, num_eigenvectors: int, dimension: int) -> dict[str, int]:
    """Return the payload bytes of each message of the pre-round, for one device.

    As `protocol.payload_bytes` counts them: arrays with their headers of 128 bytes, and metrics;
    without Flower's envelope and the config record.
    """

    def array(columns: int) -> RecordDict:
        vectors = {protocol.EIGENVECTORS: np.zeros((dimension, columns), np.float32)}
        return RecordDict({protocol.ARRAYS: protocol.to_record(vectors)})

    index = MetricRecord({protocol.CLIENT_INDEX: 0})
    scores = MetricRecord({protocol.RELEVANCES: [0.0] * devices})
    contents = {
        protocol.DESCRIBE: RecordDict({protocol.METRICS: index}),
        protocol.SPECTRUM: array(num_eigenvectors),
        protocol.RELEVANCE: RecordDict({protocol.METRICS: scores}),
        "everybody": array(devices * num_eigenvectors),
    }
    return {name: protocol.payload_bytes(content) for name, content in contents.items()}


def least(function: Callable[[], object], times: int) -> float:
    """Return the seconds of the fastest of several calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def peak(function: Callable[[], object]) -> int:
    """Return how many bytes a call needs at most on top of what is there already."""
    gc.collect()
    tracemalloc.start()
    function()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@dataclass(frozen=True)
class Device:
    """A device that has answered the first query, and waits for everybody's eigenvectors."""

    app: ClientApp
    waiting: RecordDict
    spectrum_seconds: float

    def answer(self, message_id: str, objects: Mapping[str, bytes]) -> Message:
        """Unpack everybody's eigenvectors as they arrived, and answer with its relevances."""
        message = cast(Message, inflate_object_from_contents(message_id, dict(objects)))
        return self.app(message, _context(RecordDict(dict(self.waiting))))


def device(num_eigenvectors: int) -> Device:
    """Return a device with 2,400 images of mnist-5k, its Gram matrix computed.

    The seconds of the first query, features included, are without the process's first call, which
    builds a table.
    """
    images = load_dataset("mnist-5k").train_images[:IMAGES]
    hog = feature_map("hog")

    class WithImages(Client):
        def features(self) -> NDArray[np.float32]:
            return hog(images).numpy()

    app = ClientApp()
    answer_queries(app, WithImages)
    config = ConfigRecord({protocol.NUM_EIGENVECTORS: num_eigenvectors})
    query = Message(RecordDict({protocol.CONFIG: config}), 1, protocol.query(protocol.SPECTRUM))
    context = _context(RecordDict())
    app(query, context)
    seconds = least(lambda: app(query, _context(RecordDict())), 20)
    return Device(app, context.state, seconds)


def _context(state: RecordDict) -> Context:
    return Context(run_id=1, node_id=1, node_config={"partition-id": 0}, state=state, run_config={})


class _Sent(Exception):  # noqa: N818
    """The message with everybody's eigenvectors is out: there is nothing more to measure."""


class OnPaper(HttpGrid):
    """Flower's way from the server to the SuperLink, with the SuperLink's store but no network.

    Its nodes answer the first query with eigenvectors; the second ends with `_Sent`.

    Attributes
    ----------
    messages : list of Message
        The second query, one for each device.
    request_bytes, missing_objects : int
        Of the request with which the ServerApp announces them, and how many objects the SuperLink
        then asks for, chunks of 5 MiB among them.
    asking_seconds, naming_seconds, registering_seconds : float
        What it took from the devices' answers to the messages, from these to the request, and, in
        the SuperLink, from the request to the list of objects that it has not.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__(token="none")  # noqa: S106 - nobody is asked for it
        self.set_run(Run.create_empty(1))
        rng = np.random.default_rng(0)
        self.bases = [Array(random_basis(shape, rng)) for _ in range(100)]
        self.messages: list[Message] = []
        self.request_bytes = self.missing_objects = 0
        self.asking_seconds = self.naming_seconds = self.registering_seconds = 0.0

    @property
    def _runtime_client(self) -> Any:
        # No object is asked for, so none is pushed.
        return SimpleNamespace(PushMessages=self._register, PushObject=None)

    def _register(self, request: PushAppMessagesRequest) -> PushAppMessagesResponse:
        """Do what the SuperLink does with the names in the messages."""
        started = time.perf_counter()
        store, missing = InMemoryObjectStore(), set[str]()
        for tree in request.message_object_trees:
            missing.update(store.preregister(1, tree))
        self.registering_seconds = time.perf_counter() - started
        self.request_bytes, self.missing_objects = request.ByteSize(), len(missing)
        return PushAppMessagesResponse()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Answer the first query, and push the messages of the second."""
        now = time.perf_counter()
        self.messages = list(messages)
        if self.messages[0].metadata.message_type == protocol.query(protocol.SPECTRUM):
            replies = [
                Message(
                    RecordDict(
                        {protocol.ARRAYS: ArrayRecord({protocol.EIGENVECTORS: self.bases[i % 100]})}
                    ),
                    reply_to=message,
                )
                for i, message in enumerate(self.messages)
            ]
            self._answered = time.perf_counter()
            return replies
        self.asking_seconds = now - self._answered
        self.push_messages(self.messages)
        self.naming_seconds = time.perf_counter() - now - self.registering_seconds
        raise _Sent


def ask_everybody(devices: int, relevance: str, dimension: int) -> OnPaper:
    """Run the server's side of the pre-round until everybody's eigenvectors are sent."""
    count = EIGENVECTORS[relevance]
    grid = OnPaper((dimension, count))
    nodes = np.random.default_rng(0).integers(1, 2**63, devices).tolist()
    conversation = Conversation(grid, {protocol.SEED: 0}, 600, Roster(dict(enumerate(nodes))))
    with suppress(_Sent):
        SpectralClustering(num_eigenvectors=count, relevance=relevance).find(conversation)
    return grid


def measure_sending(
    devices: int, relevance: str, dimension: int, times: int
) -> tuple[dict[str, Any], Message]:
    """Return what the message with everybody's eigenvectors takes on the server, and one of them.

    Seconds are the least of several runs, each for itself.
    """
    runs = [ask_everybody(devices, relevance, dimension) for _ in range(times)]
    first = runs[0]
    seconds = {
        f"{name}-seconds": min(getattr(run, f"{name}_seconds") for run in runs)
        for name in ("asking", "naming", "registering")
    }
    message = first.messages[0]
    return {
        "request-bytes": first.request_bytes,
        "objects": len(get_all_nested_objects(message)),
        "objects-of-all": first.missing_objects,
        "sending-peak-bytes": peak(lambda: ask_everybody(devices, relevance, dimension)),
        **seconds,
    }, message


def measure_client(own: Device, message: Message, times: int) -> dict[str, Any]:
    """Return seconds and peak bytes of a device's answer to everybody's eigenvectors.

    From the objects as they arrive, in which each device's bytes are its own.
    """
    objects = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}

    def answer() -> Message:
        return own.answer(message.object_id, objects)

    return {"client-seconds": least(answer, times), "client-peak-bytes": peak(answer)}


def measure_server(devices: int, times: int) -> dict[str, Any]:
    """Return seconds and peak bytes of what the server does with all scores.

    They arrive as lists of Python's numbers, a number and a reference to it for each score.
    """
    scores = np.random.default_rng(0).random((devices, devices)).tolist()
    held = devices**2 * (sys.getsizeof(0.5) + np.intp().nbytes)

    def group() -> NDArray[np.int64]:
        return agglomerate(average_relevance(np.array(scores, np.float64)), 10).labels

    return {"server-seconds": least(group, times), "server-peak-bytes": peak(group) + held}


def measure() -> dict[str, Any]:
    """Return everything measured, as benchmarks/results/scale.json.xz has it."""
    dimension = feature_dimension("hog", (1, 28, 28))
    owns = {name: device(count) for name, count in EIGENVECTORS.items()}
    rows = []
    for devices in DEVICES:
        times = 20 if devices < max(DEVICES) else 3
        grouping = measure_server(devices, times)
        for relevance, count in EIGENVECTORS.items():
            row = {"devices": devices, "relevance": relevance}
            row |= {"spectrum-seconds": owns[relevance].spectrum_seconds}
            row |= {"bytes": message_bytes(devices, count, dimension)}
            sending, message = measure_sending(devices, relevance, dimension, times)
            row |= measure_client(owns[relevance], message, times)
            rows.append({**row, **grouping, **sending})
            print(f"{devices} devices, {relevance}: measured", flush=True)
    return {"dimension": dimension, "rows": rows}


def main() -> None:
    """Measure, write the result and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS / "scale.json.xz")
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    # Flower's messages want to know which task makes them.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    result = measure()
    write(result, options.output)
    for name, table in tables(result).items():
        print(f"\n{name}\n\n{table}")
    for relevance in EIGENVECTORS:
        print(
            f"\n{relevance}: {most_devices_named(result, relevance):,} devices can be named, "
            f"{most_devices_within(result, relevance, 3600):,} are sent everybody's eigenvectors "
            f"in an hour"
        )


if __name__ == "__main__":
    main()
