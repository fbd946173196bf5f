"""The ClientApp: what a node answers, whether it is simulated or a real device."""

from __future__ import annotations

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.handlers import answer_queries, answer_training
from clients.secure_aggregation import mask_mod
from fl_app.devices.common_scale import told_tally
from fl_app.devices.device_node import DeviceNode
from fl_app.devices.mod import device_mod
from fl_app.nodes.attack_mod import attack_mod
from fl_app.nodes.simulated_node import Node, SimulatedNode, config_of
from fl_core.data.settings import OWN_IMAGES
from fl_core.wire import protocol


def open_node(message: Message, context: Context) -> Node:
    """Return the node that answers a message."""
    own_images = config_of(context).dataset == OWN_IMAGES
    return (DeviceNode if own_images else SimulatedNode)(message, context)


def answer_moments(app: ClientApp) -> None:
    """Let an app tell what a device's samples come to, for one scale of all devices' samples."""

    @app.query(protocol.MOMENTS)
    def moments(message: Message, context: Context) -> Message:
        return Message(told_tally(open_node(message, context).tally()), reply_to=message)


app = ClientApp(mods=[device_mod, mask_mod, attack_mod])
answer_queries(app, open_node)
answer_training(app, open_node)
answer_moments(app)


@app.query(protocol.KEEP_MODEL)
def keep_model(message: Message, context: Context) -> Message:
    """Save the final model where this device's `model-path` says, if it says so."""
    answer = MetricRecord({protocol.KEPT: int(open_node(message, context).keep_model())})
    return Message(RecordDict({protocol.METRICS: answer}), reply_to=message)


@app.query(protocol.DEPLOY_MODEL)
def deploy_model(message: Message, context: Context) -> Message:
    """Let the model that this device's verdict names be the one at its `model-path`."""
    answer = MetricRecord({protocol.KEPT: int(open_node(message, context).deploy_model())})
    return Message(RecordDict({protocol.METRICS: answer}), reply_to=message)


@app.query(protocol.KEEP_STATE)
def keep_state(message: Message, context: Context) -> Message:
    """Hold what this client keeps for itself, for a checkpoint of the run."""
    return Message(open_node(message, context).keep_state(), reply_to=message)


@app.query(protocol.RESTORE_STATE)
def restore_state(message: Message, context: Context) -> Message:
    """Take back, in a simulation that is resumed, what this client had kept."""
    return Message(open_node(message, context).restore_state(), reply_to=message)
