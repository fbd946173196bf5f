"""Training by local objective: what a client optimises, sends and stores.

The server names the objective with each message, and its `train` (fl_core/objectives) does it. Any
ClientApp follows that trains by `train_by_objective` and tests by `model_to_test`, with any
training loop, `Fit`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple, cast

from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import nn

from clients.training.personal import Personal
from fl_core.messages import protocol
from fl_core.models.layers import split
from fl_core.objectives.known import OBJECTIVES
from fl_core.objectives.objective import Fit, LocalObjective


class Instructions(NamedTuple):
    """A message's local objective."""

    objective: LocalObjective
    layers: tuple[str, ...]  # those that stay here

    @classmethod
    def of(cls, message: Message) -> Instructions:
        """Read them; without any, the objective is the plain one.

        A ValueError says that this client does not know the objective, or that an option is
        missing.
        """
        said = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
        objective = str(said.get(protocol.OBJECTIVE, "plain"))
        version = "install the server's version of this app here."
        if objective not in OBJECTIVES:
            raise ValueError(
                f'the server asks for the local objective "{objective}", but this client knows '
                f"{', '.join(OBJECTIVES)}: {version}"
            )
        kind = OBJECTIVES[objective]
        keys = {one.name: one.name.replace("_", "-") for one in fields(kind)}
        if absent := [key for key in keys.values() if key not in said]:
            raise ValueError(
                f'the server asks for the local objective "{objective}" and does not say its '
                f"{absent[0]}: {version}"
            )
        # The names of private layers are those of this model: "last", say, has been looked up.
        layers = tuple(cast(list[str], said.get(protocol.PRIVATE_LAYERS, [])))
        options = {n: said[key] for n, key in keys.items() if key != protocol.PRIVATE_LAYERS}
        return cls(kind(**options), layers)


def train_by_objective(
    message: Message, personal: Personal, model: nn.Module, fit: Fit
) -> tuple[ArrayRecord, float]:
    """Train by the objective that a message names; return the shared model, and the loss.

    Parameters
    ----------
    message : Message
        With the shared model (IFCA: after `clients.handlers.restore_model`).
    personal : Personal
        Private layers are stored in it after the training.
    model : nn.Module
        Of the right architecture; any weights.
    fit : callable
        Trains a model: see `Fit`.

    Returns
    -------
    ArrayRecord
        The shared model after its training, by the names that the message has.
    float
        Its mean loss, as `fit` returns it.

    Raises
    ------
    ValueError
        If the objective is unknown, or this client has lost its private layers.
    """
    instructions = Instructions.of(message)
    personal.forget_others()
    shared = message.content.array_records[protocol.ARRAYS]
    model.load_state_dict(whole_model(message, personal, shared).to_torch_state_dict())
    loss = instructions.objective.train(model, fit, personal, instructions.layers)
    left, private = split(model.state_dict(), instructions.layers)
    if private:
        personal.save(ArrayRecord(private))
    return ArrayRecord(left), loss


def whole_model(message: Message, personal: Personal, shared: ArrayRecord) -> ArrayRecord:
    """Return a shared model with this client's private layers, or the message's first ones.

    A ValueError says that there are neither.
    """
    if not Instructions.of(message).layers:
        return shared
    private = personal.load() or message.content.array_records.get(protocol.PRIVATE)
    if private is None:
        raise ValueError(
            "this client has lost its private layers; it gets initial ones when it next trains."
        )
    return ArrayRecord({**shared, **private})


def model_to_test(message: Message, personal: Personal) -> ArrayRecord:
    """Return the client's model, for the shared one that a message carries.

    With `ditto`, its personal model; with private layers, the shared ones and these; otherwise the
    model received.
    """
    received = message.content.array_records[protocol.ARRAYS]
    if Instructions.of(message).objective.tests_personal_model:
        return personal.load() or received
    return whole_model(message, personal, received)
