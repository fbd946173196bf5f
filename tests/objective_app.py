"""A small app that trains for real: two layers on a few pixels, any strategy, any objective."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from torch import nn

from clients.client import Client, Images
from clients.handlers import answer_queries, answer_training
from clients.secure_aggregation import mask_mod
from clients.settings import TrainingSettings
from fl_core.messages import protocol
from fl_core.models.build import seeded
from fl_core.objectives.objective import LocalObjective
from strategies import ClusteredStrategy, GivenClusters
from tests.toy_app import CorruptedApp

NUM_CLIENTS = 5
BODY, HEAD = ["body.weight", "body.bias"], ["output.weight", "output.bias"]


def two_layers(seed: int = 0) -> nn.Module:
    with seeded(seed):
        layers = OrderedDict(flatten=nn.Flatten(), body=nn.Linear(4, 3), output=nn.Linear(3, 2))
        return nn.Sequential(layers)


INITIAL = ArrayRecord(two_layers().state_dict())


class Small(Client):
    """A client whose classes are the other way round if its index is odd."""

    def features(self) -> np.ndarray:
        return self.training_data()[0].flatten(1).numpy().astype(np.float32)

    def training_data(self) -> Images:
        generator = torch.Generator().manual_seed(self.index)
        size = (6 + self.index, 1, 2, 2)
        images = torch.randint(0, 256, size, generator=generator, dtype=torch.uint8)
        labels = (images.float().mean(dim=(1, 2, 3)) > 127).long()
        return images, 1 - labels if self.index % 2 else labels

    test_data = training_data

    def model(self) -> nn.Module:
        return two_layers(1)

    def training_settings(self) -> TrainingSettings:
        return TrainingSettings("sgd", learning_rate=0.5, batch_size=4, local_epochs=2)


def small_app(corrupt: Mapping[tuple[str, int], Any] | None = None) -> ClientApp:
    """`corrupt` is as in `tests.toy_app.toy_app`."""
    app = ClientApp(mods=[mask_mod])
    answer_queries(app, Small)
    answer_training(app, Small)
    return CorruptedApp(app, corrupt or {})


def strategy(local: LocalObjective, **options: Any) -> ClusteredStrategy:
    """Return one with a cluster of even clients and one of odd ones."""
    labels = {client: client % 2 for client in range(NUM_CLIENTS)}
    return ClusteredStrategy(GivenClusters(labels), local=local, **options)


def run(one: ClusteredStrategy, grid: Grid, rounds: int = 3) -> Result:
    record = ConfigRecord({protocol.SEED: 0})
    return one.start(grid, INITIAL, rounds, train_config=record, evaluate_config=record)


def arrays_of(result: Result) -> dict[str, bytes]:
    """Return all models' arrays as bytes, by cluster and name."""
    return {name: array.numpy().tobytes() for name, array in result.arrays.items()}


def names_in(messages: Sequence[Any]) -> set[str]:
    """Return the names of all arrays that messages bring as a model."""
    return {
        name
        for message in messages
        for name in message.content.array_records.get(protocol.ARRAYS, {})
    }
