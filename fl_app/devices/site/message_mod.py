"""The Flower mod that checks and unpacks the messages of real devices."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fl_app.run.node import config_of
from fl_core.data.settings import REAL_DEVICES
from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.messages.packing import Packer, unpack_content


def device_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Refuse messages that are not from the SuperLink, and pack answers.

    Packing makes the bytes of an answer unpredictable (`fl_core.messages.packing`). Messages of
    simulated clients are passed on as they are.
    """
    if config_of(context).dataset != REAL_DEVICES:
        return call_next(message, context)
    # No proof: a node that reaches the SuperLink without the gate can forge these fields.
    about = message.metadata
    claimed = (about.src_node_id, about.dst_node_id, about.run_id)
    if claimed != (SUPERLINK_NODE_ID, context.node_id, context.run_id):
        raise ValueError(
            f"a message from node {about.src_node_id} to node {about.dst_node_id} in run "
            f"{about.run_id} is refused: this is node {context.node_id} in run {context.run_id}, "
            "and accepts messages from the SuperLink alone."
        )
    if message.has_content():
        message.content = unpack_content(message.content)
    answer = call_next(message, context)
    if answer.has_content():
        answer.content = Packer().pack(answer.content)
    return answer
