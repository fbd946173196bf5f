"""Report to the server that a device's answer can never be sent, so that it stops waiting."""

from collections.abc import Awaitable, Callable

from flwr.app import Error, Message
from google.protobuf.message import Message as Request

from fl_app.devices.gate.sizes import ReplyTracker
from fl_core.flower.basics import ErrorCode
from fl_core.flower.messages import (
    ConfirmMessageReceivedRequest,
    Node,
    PushMessagesRequest,
    PushMessagesResponse,
    PushObjectRequest,
    get_object_tree,
    message_from_proto,
    message_to_proto,
)

SendRequest = Callable[[str, Request], Awaitable[bytes]]
"""Sends the SuperLink a request of this name on behalf of the device; returns its answer."""


async def report_failure(tracker: ReplyTracker, reason: str, send: SendRequest) -> None:
    """Answer the message that a device received last with an error, once."""
    asked, tracker.asked = tracker.asked, None
    if asked is None:
        return
    about = asked.metadata
    node = Node(node_id=about.dst_node_id)
    if tracker.reply:
        # The SuperLink accepts one reply to a message. Without its parts, it is a failure, too.
        lost = ConfirmMessageReceivedRequest(
            node=node, run_id=about.run_id, message_object_id=tracker.reply
        )
        await send("confirm-message-received", lost)
        return
    error = Message(Error(ErrorCode.UNKNOWN, reason), reply_to=message_from_proto(asked))
    reply = message_to_proto(error)
    reply.metadata.message_id = error.object_id
    push = PushMessagesRequest(
        node=node,
        messages_list=[reply],
        message_object_trees=[get_object_tree(error)],
        clientapp_runtime_list=[0.0],
    )
    taken = PushMessagesResponse.FromString(await send("push-messages", push))
    if taken.objects_to_push:
        part = PushObjectRequest(
            node=node,
            run_id=about.run_id,
            session_id=taken.session_id,
            object_id=error.object_id,
            object_content=error.deflate(),
        )
        await send("push-object", part)
