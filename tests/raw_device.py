"""A device without a SuperNode: it speaks Flower's Fleet API itself, honestly or not.

with RawDevice(devices, "berlin") as berlin:
    message = berlin.wait_for_message()
    berlin.reply(message, RecordDict())
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from tests.device_processes import Federation

_HEARTBEAT_INTERVAL = 300.0  # seconds, in which it says nothing
_PATIENCE = 60.0


def fleet_client(devices: Federation, key: Path, port: int | None = None) -> FleetHttpClient:
    """Return what a SuperNode with this key speaks through."""
    private = load_ssh_private_key(key.read_bytes(), None)
    return FleetHttpClient.from_server_address(
        f"127.0.0.1:{port or devices.gate_port}",
        insecure=False,
        root_certificates=(devices.certificates / "ca.crt").read_bytes(),
        interceptors=[NodeAuthHttpInterceptor(private, private.public_key())],
    )


class RawDevice:
    """A registered device.

    Parameters
    ----------
    devices : Federation
        Whose gate it calls.
    name : str
        Whose key it has.
    port : int, optional
        Where it calls instead: at the SuperLink itself, say.
    """

    def __init__(self, devices: Federation, name: str, port: int | None = None) -> None:
        key = devices.certificates / f"devices/{name}.key"
        private = load_ssh_private_key(key.read_bytes(), None)
        self._public = public_key_to_bytes(private.public_key())
        self.client = fleet_client(devices, key, port)

    def __enter__(self) -> Self:
        self.client.__enter__()
        asked = ActivateNodeRequest(public_key=self._public, heartbeat_interval=_HEARTBEAT_INTERVAL)
        self.node_id = self.client.ActivateNode(asked).node_id
        self.node = Node(node_id=self.node_id)
        return self

    def __exit__(self, *error: object) -> None:
        leaving = DeactivateNodeRequest(node_id=self.node_id)
        # The SuperLink may have missed it already.
        assert status_of(lambda: self.client.DeactivateNode(leaving)) in (200, 412)
        self.client.__exit__(*error)

    def beat(self) -> None:
        """Say that it is there, which is answered at once."""
        self.client.SendNodeHeartbeat(
            SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=_HEARTBEAT_INTERVAL)
        )

    def next_message(self) -> Message | None:
        """Return the next message for it with its content, if one comes while the gate waits."""
        pulled = self.client.PullMessages(PullMessagesRequest(node=self.node))
        if not pulled.messages_list:
            return None
        message = message_from_proto(pulled.messages_list[0])
        run_id = message.metadata.run_id
        whole = pull_and_inflate_object_from_tree(
            pulled.message_object_trees[0],
            make_pull_object_fn_protobuf(self.client.PullObject, self.node, run_id),
            make_confirm_message_received_fn_protobuf(
                self.client.ConfirmMessageReceived, self.node, run_id
            ),
            return_type=Message,
        )
        whole.metadata.__dict__["_message_id"] = message.metadata.message_id
        return whole

    def wait_for_message(self) -> Message:
        """Return the next message for it."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if (message := self.next_message()) is not None:
                return message
            time.sleep(0.1)
        raise AssertionError("no message came")

    def reply(self, message: Message, content: RecordDict) -> None:
        """Send an honest reply."""
        self.push(Message(content, reply_to=message))

    def push(self, message: Message, tree: ObjectTree | None = None) -> None:
        """Send any message, with the parts of `tree` instead of its own."""
        with no_object_id_recompute():
            objects = get_all_nested_objects(message)
            proto = message_to_proto(
                remove_content_from_message(message) if message.has_content() else message
            )
            proto.metadata.message_id = message.object_id
            answer = self.client.PushMessages(
                PushMessagesRequest(
                    node=self.node,
                    messages_list=[proto],
                    message_object_trees=[tree or get_object_tree(message)],
                    clientapp_runtime_list=[0.1],
                )
            )
            for name in answer.objects_to_push:
                if name in objects:
                    self.client.PushObject(
                        PushObjectRequest(
                            node=self.node,
                            run_id=message.metadata.run_id,
                            session_id=answer.session_id,
                            object_id=name,
                            object_content=objects[name].deflate(),
                        )
                    )

    def order(self, message: Message, content: RecordDict, target: int) -> Message:
        """Return an instruction to a node as if the SuperLink gave it, in a message's run."""
        order = Message(content, dst_node_id=target, message_type="query.ask", ttl=60)
        order.metadata.__dict__ |= {"_run_id": message.metadata.run_id, "_src_node_id": 1}
        return order


def status_of(call: Callable[[], object]) -> int:
    """Return the status with which a request is answered."""
    try:
        call()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 200
