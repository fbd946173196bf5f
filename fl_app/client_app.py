"""The ClientApp: the answers of a node, simulated or real device."""

from __future__ import annotations

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.handlers import answer_queries, answer_training, handler
from clients.secure_aggregation import mask_mod
from fl_app.devices.common_scale import encode_statistics
from fl_app.devices.site.device_node import DeviceNode, device_mod
from fl_app.run.node import Node, config_of
from fl_app.simulation.attacks import attack_mod
from fl_app.simulation.node import SimulatedNode
from fl_core.data.settings import REAL_DEVICES
from fl_core.messages import protocol


def open_node(message: Message, context: Context) -> Node:
    """Return the node that answers a message."""
    is_device = config_of(context).dataset == REAL_DEVICES
    return (DeviceNode if is_device else SimulatedNode)(message, context)


def moments(node: Node) -> RecordDict:
    """Return the statistics of a device's columns, for a common scale."""
    return encode_statistics(node.column_statistics())


def _stored(is_stored: bool) -> RecordDict:
    return RecordDict({protocol.METRICS: MetricRecord({protocol.STORED: int(is_stored)})})


app = ClientApp(mods=[device_mod, mask_mod, attack_mod])
answer_queries(app, open_node)
answer_training(app, open_node)
for action, answer in (
    (protocol.MOMENTS, moments),
    (protocol.SAVE_MODEL, lambda node: _stored(node.save_model())),
    (protocol.DEPLOY_MODEL, lambda node: _stored(node.deploy_model())),
    (protocol.TESTED_MODEL, lambda node: node.tested_model()),
    (protocol.SAVE_STATE, lambda node: node.save_state()),
    (protocol.RESTORE_STATE, lambda node: node.restore_state()),
):
    app.query(action)(handler(answer, open_node))
