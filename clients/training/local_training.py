"""Training by local objective: what a client optimises, sends, stores and tests.

The server names the objective with each message (fl_core/objectives). Any ClientApp follows that
trains by `train_by_objective` and tests by `load_tested_model`, with any training loop, `Fit`.
"""

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import fields
from typing import cast

import torch
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
    if read_objective(message, user_defined).trains_several:
        return _train_several(message, personal, model, fit, user_defined)
    objective, local = _loaded(message, personal, model, fit, user_defined)
    loss = objective.train(model, local)
    left, private = split(model.state_dict(), local.private_layers)
    if private:
        personal.save(ArrayRecord(private))
    beside = local.beside if objective.returns_beside else {}
    return ArrayRecord({**left, **with_layer(protocol.BESIDE, beside)}), loss


def _train_several(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined
) -> tuple[ArrayRecord, float]:
    """Train the models of all clusters."""
    objective = read_objective(message, user_defined)
    models, local = _several(message, personal, model, fit)
    loss = objective.train_several(models, local)
    trained = (
        ArrayRecord({**one.state_dict(), **with_layer(protocol.BESIDE, beside)})
        for one, beside in zip(models, local.besides, strict=True)
    )
    return protocol.pack_models([*trained]), loss


def load_tested_model(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined = ()
) -> nn.Module:
    """Return the model that this client tests and saves; as `train_by_objective`.

    That is `model`, with its weights; or a mixture of the models of all clusters.
    """
    if (objective := read_objective(message, user_defined)).trains_several:
        models, local = _several(message, personal, model, fit)
        return Mixture(models, objective.mixture(models, local))
    objective, local = _loaded(message, personal, model, fit, user_defined)
    objective.personalise(model, local)
    return model


class Mixture(nn.Module):
    """A mixture of models' predictions: of classes, the logarithms of their mean probabilities."""

    def __init__(self, models: Sequence[nn.Module], shares: Sequence[float]) -> None:
        super().__init__()
        self.models, self.shares = nn.ModuleList(models), tuple(shares)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Return log Σ π_m p_m, shape (n, classes); or of a number Σ π_m f_m, shape (n, 1)."""
        outputs = torch.stack([model(samples) for model in self.models])
        shares = outputs.new_tensor(self.shares)[:, None, None]
        if outputs.shape[2] == 1:
            return (shares * outputs).sum(0)
        return (shares.log() + outputs.log_softmax(2)).logsumexp(0)


def _loaded(
    message: Message, personal: Personal, model: nn.Module, fit: Fit, user_defined: UserDefined
) -> tuple[LocalObjective, LocalTraining]:
    """Load the model of a message; return its objective, and what that is handed."""
    objective = read_objective(message, user_defined)
    received = message.content.array_records[protocol.ARRAYS]
    model.load_state_dict(whole_model(message, personal, received).to_torch_state_dict())
    there = _beside(received, model)
    return objective, LocalTraining(fit, personal, _private_layers_in(message), there)


def _beside(received: ArrayRecord, model: nn.Module) -> dict[str, torch.Tensor]:
    """Return what travels beside a model, on its device."""
    device = next((tensor.device for tensor in model.state_dict().values()), None)
    beside = ArrayRecord(split(received, [protocol.BESIDE])[1]).to_torch_state_dict()
    return {name: tensor.to(device) for name, tensor in without_layer(beside).items()}


def _several(
    message: Message, personal: Personal, model: nn.Module, fit: Fit
) -> tuple[list[nn.Module], LocalTraining]:
    """Load the models of all clusters into copies of a model; return them, and the training."""
    received = protocol.unpack_models(message.content.array_records[protocol.ARRAYS])
    models = [deepcopy(model) for _ in received]
    for one, record in zip(models, received, strict=True):
        one.load_state_dict(whole_model(message, personal, record).to_torch_state_dict())
    return models, LocalTraining(fit, personal, besides=[_beside(one, model) for one in received])


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
