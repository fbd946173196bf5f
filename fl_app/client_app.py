"""The ClientApp: which data this node holds, and what it answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import threadpoolctl
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
    partition_id,
    restore_model,
    train_reply,
)
from clients.training import evaluate as evaluate_model
from fl_app.config import Config, parse_config
from fl_app.malice import attack_mod
from fl_core import protocol
from fl_core.datasets import cache_dir
from fl_core.federation import Federation, simulate_federation
from fl_core.models import build_model


def _one_thread() -> None:
    """Give each simulated client one thread, whatever Ray grants: they share a machine.

    Sums are then added up in the same order on any number of workers. Asked for every time, since
    libraries that are loaded later (numba) raise the number again.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    _limit_threads_of_libraries()


@lru_cache(maxsize=1)
def _limit_threads_of_libraries() -> None:
    threadpoolctl.threadpool_limits(1)


@lru_cache(maxsize=2)
def _feature_map(name: str, weights: str) -> FeatureMap:
    path = Path(weights).expanduser() if weights else None
    return feature_map(name, weights=path, cache_dir=cache_dir())


def _open(message: Message, context: Context) -> tuple[Config, Federation, int]:
    """Return the configuration, the simulated federation and this client's index."""
    _one_thread()
    config = parse_config(context.run_config)
    sent = message.content.config_records[protocol.CONFIG]
    settings = config.federation_settings(
        int(str(sent[protocol.NUM_CLIENTS])), int(str(sent[protocol.SEED]))
    )
    index = partition_id(message, context)
    if not 0 <= index < settings.num_clients:
        raise ValueError(
            f"this node's partition-id is {index}, but there are {settings.num_clients} clients: "
            f"start SuperNodes with partition-id 0 to {settings.num_clients - 1}."
        )
    return config, simulate_federation(settings), index


def _round(message: Message) -> int:
    return int(str(message.content.config_records[protocol.CONFIG].get(protocol.SERVER_ROUND, 0)))


def _training_data(message: Message, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what this client holds in this round; one that flips its labels sees them flipped."""
    config, federation, index = _open(message, context)
    images, labels = federation.training_data(index, _round(message))
    if config.attack == "label-flip" and index in federation.malicious:
        labels = flip_labels(labels, federation.dataset.num_classes)
    return images, labels


def _images(message: Message, context: Context) -> torch.Tensor:
    return _training_data(message, context)[0]


def _features(message: Message, context: Context) -> NDArray[np.float32]:
    config, _, _ = _open(message, context)
    images = _images(message, context)
    return _feature_map(config.features, config.feature_weights)(images).numpy()


def _loss(message: Message, context: Context, arrays: ArrayRecord) -> float:
    """Return the mean loss of a model on this client's training images, labels as they are."""
    config, federation, _ = _open(message, context)
    model = _model(config, federation)
    model.load_state_dict(arrays.to_torch_state_dict())
    return evaluate_model(model, *_training_data(message, context))[0]


def _model(config: Config, federation: Federation) -> nn.Module:
    """Return a model of the right architecture; its weights come with the message."""
    dataset = federation.dataset
    return build_model(config.model, dataset.image_shape, dataset.num_classes, seed=0)


def _index(message: Message, context: Context) -> int:
    """Return this client's index, once its data could be read."""
    _, _, index = _open(message, context)
    return index


app = ClientApp(mods=[attack_mod])
answer_pre_round(app, _features, _index)
answer_signature(app, _images, _index)
answer_losses(app, _loss)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of this client's cluster on this client's images."""
    restore_model(message, context)
    config, federation, index = _open(message, context)
    images, labels = _training_data(message, context)
    settings = config.training_settings()
    reply = train_reply(message, _model(config, federation), images, labels, settings, index)
    reply.content.metric_records[protocol.METRICS].update(change_flag(context, images))
    return reply


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model of this client's cluster on the clean test images of its task."""
    config, federation, index = _open(message, context)
    test_data = federation.test_data(index, _round(message))
    return evaluate_reply(message, _model(config, federation), *test_data)
