"""The Flower mod through which a real device hears and speaks."""

from __future__ import annotations

import time

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from fl_app.devices.envelope import sealed, time_since_start
from fl_app.grid.quorum import Took
from fl_app.nodes.simulated_node import config_of
from fl_core.data.settings import OWN_IMAGES
from fl_core.flower.basics import SUPERLINK_NODE_ID
from fl_core.wire.packing import unpacked


def device_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the app does, but only the SuperLink, and so that nobody foresees the answer.

    What is heard and said is in an envelope (`fl_app.devices.envelope`). A simulated client is left
    alone.

    Raises
    ------
    ValueError
        If the message says that it is another node's, for another node or of another run.
    """
    if config_of(context).dataset != OWN_IMAGES:
        return call_next(message, context)
    # No proof: whoever reaches the SuperLink without the gate can claim all this.
    about = message.metadata
    claimed = (about.src_node_id, about.dst_node_id, about.run_id)
    if claimed != (SUPERLINK_NODE_ID, context.node_id, context.run_id):
        raise ValueError(
            f"a message from node {about.src_node_id} to node {about.dst_node_id} in run "
            f"{about.run_id} is refused: this is node {context.node_id} in run {context.run_id}, "
            "and takes instructions from the SuperLink alone."
        )
    if message.has_content():
        message.content = unpacked(message.content)
    start_up, began = time_since_start(), time.monotonic()
    answer = call_next(message, context)
    if answer.has_content():
        answer.content = sealed(answer.content, Took(start_up, time.monotonic() - began))
    return answer
