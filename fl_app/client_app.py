"""The ClientApp: which data this node holds, and what it answers."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import threadpoolctl
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray
from torch import nn

from clients.features import FeatureMap, feature_map
from clients.handlers import answer_pre_round, evaluate_reply, partition_id, train_reply
from fl_app.config import Config, parse_config
from fl_core import protocol
from fl_core.datasets import cache_dir
from fl_core.federation import Federation, simulate_federation
from fl_core.models import build_model


@lru_cache(maxsize=1)
def _one_thread() -> None:
    """Give each simulated client one thread, whatever Ray grants: they share a machine.

    Sums are then added up in the same order on any number of workers.
    """
    torch.set_num_threads(1)
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


def _features(message: Message, context: Context) -> NDArray[np.float32]:
    config, federation, index = _open(message, context)
    images, _ = federation.training_data(index)
    return _feature_map(config.features, config.feature_weights)(images).numpy()


def _model(config: Config, federation: Federation) -> nn.Module:
    """Return a model of the right architecture; its weights come with the message."""
    dataset = federation.dataset
    return build_model(config.model, dataset.image_shape, dataset.num_classes, seed=0)


def _index(message: Message, context: Context) -> int:
    """Return this client's index, once its data could be read."""
    _, _, index = _open(message, context)
    return index


app = ClientApp()
answer_pre_round(app, _features, _index)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of this client's cluster on this client's images."""
    config, federation, index = _open(message, context)
    images, labels = federation.training_data(index)
    settings = config.training_settings()
    return train_reply(message, _model(config, federation), images, labels, settings, index)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model of this client's cluster on the clean test images of its task."""
    config, federation, index = _open(message, context)
    return evaluate_reply(message, _model(config, federation), *federation.test_data(index))
