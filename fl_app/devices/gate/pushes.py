"""What a device may push: its reply, with no more parts than a model has.

Flower's SuperLink checks who calls, but not whether a message is the caller's: it accepts messages
to other devices, and to itself, from any node. It also locks its database while it writes the names
of a message's parts.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.flower.messages import (
    ObjectTree,
    PushMessagesRequest,
    is_valid_sha256_hash,
)

MOST_OBJECTS = 700
"""Of a message, each array counted twice: ResNet-50 has 645. The SuperLink's database is locked for
a millisecond or two for each, and fails others after 5 seconds."""
_LONGEST_TIME = 1e10  # seconds, since 1970 as well as of a message's life
_DEEPEST = 6  # message, its content, a record, an array, a piece of it, and one to spare


class RefusedError(Exception):
    """A request is not passed on; `status` is the answer.

    At 403, a SuperNode drops what it wanted to send, and continues.
    """

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.status = status


class UnsendableError(RefusedError):
    """A device's reply is too large, however often it is sent."""


def check_push(body: bytes) -> PushMessagesRequest:
    """Read the body of a `push-messages`, and refuse anything but a reply of its sender.

    The SuperLink checks by its key that the caller is the node that the message names.
    """
    try:
        request: PushMessagesRequest = PushMessagesRequest.FromString(body)
    except DecodeError:
        raise RefusedError("it cannot be read") from None
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        raise RefusedError("it is not one message")
    about = request.messages_list[0].metadata
    if not about.reply_to_message_id:
        raise RefusedError("it is an instruction, and devices only reply")
    if about.src_node_id != request.node.node_id:
        raise RefusedError(f"it says that it is from node {about.src_node_id}")
    if about.dst_node_id != SUPERLINK_NODE_ID:
        raise RefusedError(f"it is for node {about.dst_node_id}")
    times = (about.created_at, about.ttl, *request.clientapp_runtime_list)
    if not all(0 <= seconds <= _LONGEST_TIME for seconds in times):  # refuses NaN, too
        raise RefusedError("its times are impossible")
    (tree,) = request.message_object_trees
    if tree.object_id != about.message_id:
        raise RefusedError("its parts are another message's")
    _check_parts(tree)
    return request


def _check_parts(tree: ObjectTree) -> None:
    children: dict[str, set[str]] = {}
    level, count = [tree], 0
    for _ in range(_DEEPEST):
        count += len(level)
        if count > MOST_OBJECTS:
            raise UnsendableError(f"it has more than {MOST_OBJECTS} parts")
        for part in level:
            names = {child.object_id for child in part.children}
            if not is_valid_sha256_hash(part.object_id) or len(names) != len(part.children):
                raise RefusedError("the names of its parts are not SHA-256 hashes, each once")
            if children.setdefault(part.object_id, names) != names:
                raise RefusedError("one of its parts is listed with different parts")
        level = [child for part in level for child in part.children]
    if level:
        raise RefusedError(f"its parts are nested more than {_DEEPEST} deep")
