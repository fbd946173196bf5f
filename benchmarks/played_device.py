"""A device that is only played: Flower's connection of a SuperNode, and an answer at once.

Its client, key, heartbeats, retries and patience are the real ones. Left out is what a SuperNode
does in between: to start a process for each message, and to train.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import cast

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_client import FleetHttpClient

from fl_core.messages.packing import Packer, unpacked

logger = logging.getLogger(__name__)

PAUSE = 3.0  # seconds between two looks of a SuperNode for messages


@dataclass(frozen=True)
class Call:
    """A device's request: when, what, how it ended, and how long it took."""

    started: float
    name: str
    status: str
    seconds: float


calls: list[Call] = []


class NotedClient(FleetHttpClient):
    """Flower's client of a SuperNode, which notes its calls."""

    def _send(self, context: ProtobufRequestContext, *, stream: bool = False) -> httpx.Response:
        started, status = time.time(), "unknown"
        try:
            response = super()._send(context, stream=stream)
            status = str(response.status_code)
        except httpx.TransportError as error:
            status = type(error).__name__
            raise
        finally:
            name = context.request.url.path.rpartition("/")[2]
            calls.append(Call(started, name, status, time.time() - started))
        return response


def reply_to(message: Message) -> Message:
    """Return an answer with as many numbers, all random."""
    rng = np.random.default_rng()
    arrays = {
        name: Array(rng.random(array.shape, np.float32))
        for name, array in unpacked(message.content).array_records["arrays"].items()
    }
    content = Packer().packed(RecordDict({"arrays": ArrayRecord(arrays)}))
    return Message(content, reply_to=message)


def taken_apart(message: Message) -> tuple[Message, ObjectTree, dict[str, bytes]]:
    """Return a message, the names of its parts, and the parts."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        parts = get_all_nested_objects(message)
        contents = {name: part.deflate() for name, part in parts.items()}
        return message, get_object_tree(message), contents


def play(
    key: ec.EllipticCurvePrivateKey, gate: str, authority: bytes, stopping: threading.Event
) -> None:
    """Do what a SuperNode does, but answer at once, until told to stop."""
    runs = set[int]()
    with fleet_http_connection.http_request_response(
        gate, False, authority, (key, key.public_key())
    ) as (_, receive, send, get_run, get_fab, pull, push, confirm):
        while not stopping.is_set():
            try:
                if (received := receive()) is None:
                    stopping.wait(PAUSE)
                    continue
                message, tree = received
                run_id, number = message.metadata.run_id, message.metadata.message_id
                if run_id not in runs:
                    get_fab(get_run(run_id).fab_hash, run_id)
                    runs.add(run_id)
            except RunNotRunningException:
                stopping.wait(PAUSE)
                continue
            try:
                names = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
                contents = pull_objects(list(names), partial(pull, run_id))
                confirm(run_id, number)
                whole = cast(Message, inflate_object_from_contents(number, contents))
                whole.metadata.__dict__["_message_id"] = number
                reply, tree, parts = taken_apart(reply_to(whole))
                wanted, session = send(reply, tree, 1.0)
                push_object_contents_from_iterable(
                    [(name, parts[name]) for name in parts if name in wanted],
                    partial(push, run_id, session),
                )
            except Exception:  # a SuperNode says so in its log, and goes on
                logger.exception("a message or an answer is lost")
