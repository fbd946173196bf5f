"""Training by local objective: what a client optimises, sends, stores and tests.

The server names the objective with each message (fl_core/objectives). Any ClientApp follows that
trains by `train_by_objective` and tests by `load_tested_model`, with any training loop, `Fit`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import cast

from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import nn

from clients.training.personal import Personal
from fl_core.messages import protocol
from fl_core.models.layers import split, with_layer, without_layer
from fl_core.objectives.known import OBJECTIVES
from fl_core.objectives.objective import Fit, LocalObjective, LocalTraining

UserDefined = Collection[type[LocalObjective]]
"""The objectives that a client knows beside those of `OBJECTIVES`."""


def read_objective(message: Message, user_defined: UserDefined = ()) -> LocalObjective:
    """Return a message's local objective, or the plain one; a ValueError if it is unknown here."""
    said = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
    objective = str(said.get(protocol.OBJECTIVE, "plain"))
    version = "install the server's version of this app here."
    known = {**{kind.sent_name(): kind for kind in user_defined}, **OBJECTIVES}
    if objective not in known:
        raise ValueError(
            f'the server asks for the local objective "{objective}", but this client knows '
            f"{', '.join(known)}: {version}"
        )
    kind = known[objective]
    keys = {one.name: one.name.replace("_", "-") for one in fields(kind)}
    if absent := [key for key in keys.values() if key not in said]:
        raise ValueError(
            f'the server asks for the local objective "{objective}" and does not say its '
            f"{absent[0]}: {version}"
        )
    # Private layers are sent by their names in this model: "last", say, was looked up.
    options = {n: said[key] for n, key in keys.items() if key != protocol.PRIVATE_LAYERS}
    return kind(**options)


def _private_layers_in(message: Message) -> tuple[str, ...]:
    said = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
    return tuple(cast(list[str], said.get(protocol.PRIVATE_LAYERS, [])))


def train_by_objective(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined = ()
) -> tuple[ArrayRecord, float]:
    """Train by the objective that a message names; return what is shared, and the mean loss.

    Parameters
    ----------
    message : Message
        With the shared model (IFCA: after `clients.handlers.restore_model`).
    personal : Personal
        Private layers are stored in it after the training.
    model : nn.Module
        Of the right architecture; any weights.
    fit : callable
        Trains a model: see `Fit`, and `Loop` for objectives with a loop of their own.
    user_defined : collection of type
        Objectives that a message may name by `LocalObjective.sent_name`.

    Raises
    ------
    ValueError
        If the objective is unknown, or this client has lost its private layers.
    """
    personal.forget_others()
    objective, local = _loaded(message, personal, model, fit, user_defined)
    loss = objective.train(model, local)
    left, private = split(model.state_dict(), local.private_layers)
    if private:
        personal.save(ArrayRecord(private))
    return ArrayRecord({**left, **with_layer(protocol.BESIDE, local.beside)}), loss


def load_tested_model(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined = ()
) -> None:
    """Give a model the weights that this client tests and saves; as `train_by_objective`."""
    objective, local = _loaded(message, personal, model, fit, user_defined)
    objective.personalise(model, local)


def _loaded(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined
) -> tuple[LocalObjective, LocalTraining]:
    """Load the model of a message; return its objective, and what that is handed."""
    objective = read_objective(message, user_defined)
    received = message.content.array_records[protocol.ARRAYS]
    model.load_state_dict(whole_model(message, personal, received).to_torch_state_dict())
    device = next((tensor.device for tensor in model.state_dict().values()), None)
    beside = ArrayRecord(split(received, [protocol.BESIDE])[1]).to_torch_state_dict()
    there = {name: tensor.to(device) for name, tensor in without_layer(beside).items()}
    return objective, LocalTraining(fit, personal, _private_layers_in(message), there)


def whole_model(message: Message, personal: Personal, shared: ArrayRecord) -> ArrayRecord:
    """Return a shared model with this client's, or the message's first, private layers."""
    arrays = split(shared, [protocol.BESIDE])[0]
    if not _private_layers_in(message):
        return ArrayRecord(arrays)
    private = personal.load() or message.content.array_records.get(protocol.PRIVATE)
    if private is None:
        raise ValueError(
            "this client has lost its private layers; it gets initial ones when it next trains."
        )
    return ArrayRecord({**arrays, **private})
