"""Training by local objective: what a client optimises, what it sends and what it keeps.

The server says the objective with each message (`strategies/objectives.py`). Any ClientApp obeys it
that trains by `train_by_objective` and tests by `model_to_test`: how a model is trained, by `Fit`,
is its own matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from torch import nn

from clients.training.objectives import nothing, pull, pull_to, trained_alone
from clients.training.personal import Personal
from fl_core.models.layers import split
from fl_core.wire import protocol

Between = Callable[[], None]
Fit = Callable[[nn.Module, Between, int | None], float]
"""Train a model in place, and return its mean loss.

It calls its second argument in each step between `backward` and the optimizer's step; the third is
how often to pass over the images, None for as often as usual. Only parameters that require a
gradient may change.
"""


@dataclass(frozen=True)
class Told:
    """What a message says of the local objective.

    Attributes
    ----------
    objective : str
    weight : float
        FedProx's μ or Ditto's λ.
    layers : tuple of str
        Those that stay here.
    head_epochs, body_epochs : int
        FedRep's.
    """

    objective: str
    weight: float
    layers: tuple[str, ...]
    head_epochs: int
    body_epochs: int

    @classmethod
    def of(cls, message: Message) -> Told:
        """Read it; a message that says nothing means the plain objective.

        Raises
        ------
        ValueError
            If this client does not know the objective.
        """
        said = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
        objective = str(said.get(protocol.OBJECTIVE, "plain"))
        if objective not in OBJECTIVES:
            raise ValueError(
                f'the server asks for the local objective "{objective}", but this client knows '
                f"{', '.join(OBJECTIVES)}: install the server's version of this app here."
            )
        return cls(
            objective,
            float(str(said.get(protocol.PULL, 0.0))),
            tuple(cast(list[str], said.get(protocol.PRIVATE_LAYERS, []))),
            int(str(said.get(protocol.HEAD_EPOCHS, 1))),
            int(str(said.get(protocol.BODY_EPOCHS, 1))),
        )


def train_by_objective(
    message: Message, personal: Personal, model: nn.Module, fit: Fit
) -> tuple[ArrayRecord, float]:
    """Train by the objective that a message names; return what leaves the client, and the loss.

    Parameters
    ----------
    message : Message
        With the shared model; what IFCA's clients have kept of it must be back in it
        (`clients.handlers.restore_model`).
    personal : Personal
        What stays here is kept in it, once all has gone well.
    model : nn.Module
        Of the right architecture; any weights.
    fit : callable
        Trains a model: see `Fit`.

    Returns
    -------
    ArrayRecord
        The shared model after its training, under the names that the message has.
    float
        Its mean loss, as `fit` returns it.

    Raises
    ------
    ValueError
        If the objective is unknown, or this client has lost its private layers.
    """
    told = Told.of(message)
    shared = message.content.array_records[protocol.ARRAYS]
    model.load_state_dict(whole_model(message, personal, shared).to_torch_state_dict())
    return OBJECTIVES[told.objective](told, personal, model, fit)


def whole_model(message: Message, personal: Personal, shared: ArrayRecord) -> ArrayRecord:
    """Return a shared model with this client's private layers, or else the message's first ones.

    Raises
    ------
    ValueError
        If the client has none, and the message brings none.
    """
    if not Told.of(message).layers:
        return shared
    own = personal.load() or message.content.array_records.get(protocol.PRIVATE)
    if own is None:
        raise ValueError(
            "this client has lost its private layers; it is sent first ones again when it next "
            "trains."
        )
    return ArrayRecord({**shared, **own})


def model_to_test(message: Message, personal: Personal) -> ArrayRecord:
    """Return the model that is the client's own, for the shared one that a message carries.

    With `ditto`, its personal model; with private layers, the shared ones and its own; otherwise
    the model received.
    """
    received = message.content.array_records[protocol.ARRAYS]
    if Told.of(message).objective == "ditto":
        return personal.load() or received
    return whole_model(message, personal, received)


def _plain(told: Told, personal: Personal, model: nn.Module, fit: Fit) -> tuple[ArrayRecord, float]:
    personal.forget_others()
    loss = fit(model, nothing, None)
    return _record(model), loss


def _prox(told: Told, personal: Personal, model: nn.Module, fit: Fit) -> tuple[ArrayRecord, float]:
    personal.forget_others()
    loss = fit(model, pull(model, told.weight), None)
    return _record(model), loss


def _ditto(told: Told, personal: Personal, model: nn.Module, fit: Fit) -> tuple[ArrayRecord, float]:
    """Train the shared model as usual, and the personal one (Algorithm 1, lines 4 and 5)."""
    received = [parameter.detach().clone() for parameter in model.parameters()]
    own = personal.load()
    first = _copied(model.state_dict()) if own is None else own.to_torch_state_dict()
    loss = fit(model, nothing, None)
    shared = _record(model)
    model.load_state_dict(first)
    fit(model, pull_to(model, received, told.weight), None)
    personal.save(_record(model))
    return shared, loss


def _private_layers(
    told: Told, personal: Personal, model: nn.Module, fit: Fit
) -> tuple[ArrayRecord, float]:
    loss = fit(model, nothing, None)
    return _parted(told, personal, model), loss


def _private_head(
    told: Told, personal: Personal, model: nn.Module, fit: Fit
) -> tuple[ArrayRecord, float]:
    """Train the head beneath which the body stays, then the body (Algorithm 1, lines 7 to 11)."""
    with trained_alone(model, told.layers, within=True):
        fit(model, nothing, told.head_epochs)
    with trained_alone(model, told.layers, within=False):
        loss = fit(model, nothing, told.body_epochs)
    return _parted(told, personal, model), loss


def _parted(told: Told, personal: Personal, model: nn.Module) -> ArrayRecord:
    """Keep the private layers; return the others."""
    shared, private = split(model.state_dict(), told.layers)
    personal.save(_of(private))
    return _of(shared)


def _record(model: nn.Module) -> ArrayRecord:
    return _of(model.state_dict())


def _of(state: Mapping[str, torch.Tensor]) -> ArrayRecord:
    return ArrayRecord(dict(state))


def _copied(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


OBJECTIVES: Mapping[str, Callable[[Told, Personal, nn.Module, Fit], tuple[ArrayRecord, float]]] = {
    "plain": _plain,
    "prox": _prox,
    "ditto": _ditto,
    "private-layers": _private_layers,
    "private-head": _private_head,
    "private-norms": _private_layers,
}
WITHOUT_NOISE = ("ditto", "private-head")
"""Objectives for which no noise is counted: what is trained beside, and then tested, has none."""
