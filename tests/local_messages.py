"""Messages of one training to one client, as a server writes them: for local objectives."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from torch import nn

from clients.settings import TrainingSettings
from clients.training.personal import Personal
from clients.training.train import UsualTraining
from fl_core.messages import protocol

IDENTITY = "00ff"


def context() -> Context:
    return Context(1, 1, {"partition-id": 0}, RecordDict(), {})


def message(
    model: nn.Module | ArrayRecord,
    *,
    round: int = 1,
    kind: str = protocol.TRAIN,
    private: ArrayRecord | None = None,
    identity: str = IDENTITY,
    **told: Any,
) -> Message:
    """Return a message with a model; of `told`, `_` stands for `-`."""
    arrays = model if isinstance(model, ArrayRecord) else ArrayRecord(model.state_dict())
    entries = {key.replace("_", "-"): value for key, value in told.items()}
    entries |= {protocol.SERVER_ROUND: round}
    if identity:
        entries[protocol.TRAINING] = identity
    content = RecordDict({protocol.ARRAYS: arrays, protocol.CONFIG: ConfigRecord(entries)})
    if private is not None:
        content[protocol.PRIVATE] = private
    return Message(content, dst_node_id=1, message_type=kind)


def personal(asked: Message, own: Context, folder: Path | None = None) -> Personal:
    return Personal(asked, own, folder)


def one_image() -> tuple[torch.Tensor, torch.Tensor]:
    """Return one white pixel of class 0."""
    return torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), torch.tensor([0])


def two_numbers(value: float = 0.0) -> nn.Module:
    """Return a classifier of one pixel into two classes: weight and bias (value, -value)."""
    model = nn.Sequential(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(1, 2)))
    with torch.no_grad():
        model.output.weight.copy_(torch.tensor([[value], [-value]]))
        model.output.bias.copy_(torch.tensor([value, -value]))
    return model


def sgd(epochs: int = 1, **options: Any) -> UsualTraining:
    """Return a training by steps of one image with rate 0.1."""
    given = {"learning_rate": 0.1, "batch_size": 1, "local_epochs": epochs, **options}
    return UsualTraining(one_image, lambda: TrainingSettings("sgd", **given), 0)
