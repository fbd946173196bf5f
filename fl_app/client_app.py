"""The ClientApp: which data this node holds, and what it answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.attacks import flip_labels
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
from clients.training import evaluate as evaluate_model
from fl_app.config import Config
from fl_app.malice import attack_mod
from fl_app.node import open_node
from fl_core import protocol
from fl_core.datasets import cache_dir
from fl_core.federation import Federation
from fl_core.models import build_model


@lru_cache(maxsize=2)
def _feature_map(name: str, weights: str) -> FeatureMap:
    path = Path(weights).expanduser() if weights else None
    return feature_map(name, weights=path, cache_dir=cache_dir())


def _training_data(message: Message, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what this client holds in this round; one that flips its labels sees them flipped."""
    config, federation, index = open_node(message, context)
    images, labels = federation.training_data(
        index, protocol.setting(message, protocol.SERVER_ROUND, 0)
    )
    if config.attack == "label-flip" and index in federation.malicious:
        labels = flip_labels(labels, federation.dataset.num_classes)
    return images, labels


def _images(message: Message, context: Context) -> torch.Tensor:
    return _training_data(message, context)[0]


def _features(message: Message, context: Context) -> NDArray[np.float32]:
    config, _, _ = open_node(message, context)
    images = _images(message, context)
    return _feature_map(config.features, config.feature_weights)(images).numpy()


def _loss(message: Message, context: Context, arrays: ArrayRecord) -> float:
    """Return the mean loss of a model on this client's training images, labels as they are."""
    config, federation, _ = open_node(message, context)
    model = _model(config, federation)
    model.load_state_dict(arrays.to_torch_state_dict())
    return evaluate_model(model, *_training_data(message, context))[0]


def _model(config: Config, federation: Federation) -> nn.Module:
    """Return a model of the right architecture; its weights come with the message."""
    dataset = federation.dataset
    return build_model(config.model, dataset.image_shape, dataset.num_classes, seed=0)


def _index(message: Message, context: Context) -> int:
    """Return this client's index, once its data could be read."""
    _, _, index = open_node(message, context)
    return index


app = ClientApp(mods=[attack_mod])
answer_pre_round(app, _features, _index)
answer_signature(app, _images, _index)
answer_losses(app, _loss)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of this client's cluster on this client's images."""
    restore_model(message, context)
    config, federation, index = open_node(message, context)
    images, labels = _training_data(message, context)
    settings = config.training_settings()
    reply = train_reply(message, _model(config, federation), images, labels, settings, index)
    reply.content.metric_records[protocol.METRICS].update(change_flag(context, images))
    return reply


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model of this client's cluster on the clean test images of its task."""
    config, federation, index = open_node(message, context)
    test_data = federation.test_data(index, protocol.setting(message, protocol.SERVER_ROUND, 0))
    return evaluate_reply(message, _model(config, federation), *test_data)
