"""The ClientApp: what a node answers, whether it is simulated or a real device."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecordValues,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.features import FeatureMap, feature_map
from clients.handlers import (
    answer_losses,
    answer_pre_round,
    answer_signature,
    change_flag,
    evaluate_reply,
    restore_model,
    train_reply,
)
from clients.privacy import noise_generator
from clients.training import evaluate as evaluate_model
from fl_app.devices.mod import device_mod
from fl_app.malice import attack_mod
from fl_app.node import DeviceNode, SimulatedNode, open_node
from fl_core import protocol
from fl_core.datasets import cache_dir
from fl_core.model_file import ModelCard, save_model
from fl_core.models import build_model

_NOISE_STREAM = 0x5EC2E7


@lru_cache(maxsize=2)
def _feature_map(name: str, weights: str) -> FeatureMap:
    path = Path(weights).expanduser() if weights else None
    return feature_map(name, weights=path, cache_dir=cache_dir())


def _images(message: Message, context: Context) -> torch.Tensor:
    return open_node(message, context).training_data()[0]


def _features(message: Message, context: Context) -> NDArray[np.float32]:
    node = open_node(message, context)
    images, _ = node.training_data()
    return _feature_map(node.config.features, node.config.feature_weights)(images).numpy()


def _losses(message: Message, context: Context, models: Sequence[ArrayRecord]) -> list[float]:
    """Return each model's mean loss on this client's training images, labels as they are."""
    node = open_node(message, context)
    model, data = _model(node), node.training_data()
    found = []
    for arrays in models:
        model.load_state_dict(arrays.to_torch_state_dict())
        found.append(evaluate_model(model, *data)[0])
    return found


def _model(node: SimulatedNode | DeviceNode) -> nn.Module:
    """Return a model of the right architecture; its weights come with the message."""
    return build_model(node.config.model, node.image_shape, node.num_classes, seed=0)


def _index(message: Message, context: Context) -> int:
    """Return this client's index, once its data could be read."""
    return open_node(message, context).index


def _description(message: Message, context: Context) -> dict[str, ConfigRecordValues]:
    node = open_node(message, context)
    return node.description() if isinstance(node, DeviceNode) else {}


def _sharing_noise(message: Message, context: Context) -> tuple[float, np.random.Generator]:
    """Return σ and what this client's noise is drawn from, other numbers for each kind of query."""
    node = open_node(message, context)
    query = zlib.crc32(message.metadata.message_type.encode())
    entropy = [*protocol.entropy(message), node.index, query, _NOISE_STREAM]
    real_device = isinstance(node, DeviceNode)
    return node.config.sharing_noise, noise_generator(*entropy, real_device=real_device)


app = ClientApp(mods=[device_mod, attack_mod])
answer_pre_round(app, _features, _index, _sharing_noise, _description)
answer_signature(app, _images, _index)
answer_losses(app, _losses)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of this client's cluster on this client's images."""
    restore_model(message, context)
    node = open_node(message, context)
    images, labels = node.training_data()
    settings = node.config.training_settings()
    reply = train_reply(message, _model(node), images, labels, settings, node.index)
    reply.content.metric_records[protocol.METRICS].update(change_flag(message, images))
    return reply


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model of this client's cluster on its own test images."""
    node = open_node(message, context)
    return evaluate_reply(message, _model(node), *node.test_data())


@app.query(protocol.KEEP_MODEL)
def keep_model(message: Message, context: Context) -> Message:
    """Save the final model where this device's `model-path` says, if it says so."""
    node = open_node(message, context)
    kept = False
    if isinstance(node, DeviceNode) and node.model_path is not None:
        card = ModelCard(
            architecture=node.config.model,
            image_shape=node.image_shape,
            class_names=node.agreement.class_names,
            strategy=str(node.told[protocol.STRATEGY]),
            cluster=protocol.setting(message, protocol.CLUSTER),
            num_rounds=protocol.setting(message, protocol.SERVER_ROUND),
        )
        arrays = protocol.to_arrays(message.content.array_records[protocol.ARRAYS])
        save_model(node.model_path, arrays, card)
        kept = True
    answer = MetricRecord({protocol.KEPT: int(kept)})
    return Message(RecordDict({protocol.METRICS: answer}), reply_to=message)
