"""Local objectives at the client: a function for each, by the name that the server has for it.

A function is given the model with the received weights in it, the client's training (`Fit`), what
the client keeps (`Personal`), and by name what the server's class has as fields. It leaves in the
model what the others may see, and returns the loss; layers that stay are kept apart by
`train_by_objective`. The papers are at the head of `strategies/objectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord
from torch import nn

from clients.training.personal import Personal
from fl_core.models.layers import is_within

GradientTerm = Callable[[], None]
"""Adds something to a model's gradients: called between `backward` and the optimizer's step."""
Fit = Callable[[nn.Module, GradientTerm, int | None], float]
"""Train a model in place, and return its mean loss.

It calls its second argument in each step between `backward` and the optimizer's step; the third is
how often to pass over the images, None for as often as usual. Only parameters that require a
gradient may change.
"""


def no_term() -> None:
    """Add nothing to gradients."""


def proximal_term(
    model: nn.Module, weight: float, anchor: Sequence[torch.Tensor] | None = None
) -> GradientTerm:
    """Return a function that adds the gradient of weight/2 ‖w − anchor‖² to a model's.

    With weight 0 not a bit is changed.

    Parameters
    ----------
    weight : float
        FedProx's μ or Ditto's λ, not negative.
    anchor : sequence of torch.Tensor, optional
        One for each of the model's parameters, of its shape; by default, what they are now.
    """
    if not weight:
        return no_term
    there = weights_of(model) if anchor is None else anchor

    @torch.no_grad()
    def add() -> None:
        for parameter, place in zip(model.parameters(), there, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - place, alpha=weight)

    return add


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    """Return copies of a model's parameters."""
    return [parameter.detach().clone() for parameter in model.parameters()]


@contextmanager
def trained_alone(model: nn.Module, layers: Sequence[str], *, within: bool) -> Iterator[None]:
    """Let only the parameters within `layers` be trained, or only those outside them.

    FedRep's alternation. What is held back has no gradient, so no optimizer moves it, by weight
    decay neither.
    """
    frozen = [
        parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and is_within(name, layers) != within
    ]
    for parameter in frozen:
        parameter.grad = None
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


def plain(model: nn.Module, fit: Fit, personal: Personal) -> float:
    """Train as usual: FedAvg's; FedPer's and FedBN's, too, whose layers only stay."""
    return fit(model, no_term, None)


def prox(model: nn.Module, fit: Fit, personal: Personal, *, prox_weight: float) -> float:
    """Train with a pull towards the model received (FedProx, equation 2)."""
    return fit(model, proximal_term(model, prox_weight), None)


def ditto(model: nn.Module, fit: Fit, personal: Personal, *, ditto_weight: float) -> float:
    """Train the shared model as usual, and the personal one (Algorithm 1, lines 4 and 5)."""
    received, first = weights_of(model), _copy_of(model)
    own = personal.load()
    loss = fit(model, no_term, None)
    shared = _copy_of(model)
    model.load_state_dict(first if own is None else own.to_torch_state_dict())
    fit(model, proximal_term(model, ditto_weight, received), None)
    personal.save(ArrayRecord(dict(model.state_dict())))
    model.load_state_dict(shared)
    return loss


def private_head(
    model: nn.Module,
    fit: Fit,
    personal: Personal,
    *,
    private_layers: list[str],
    head_epochs: int,
    body_epochs: int,
) -> float:
    """Train the head beneath which the body stays, then the body (Algorithm 1, lines 7 to 11)."""
    with trained_alone(model, private_layers, within=True):
        fit(model, no_term, head_epochs)
    with trained_alone(model, private_layers, within=False):
        return fit(model, no_term, body_epochs)


def _copy_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@dataclass(frozen=True)
class Objective:
    """What a client does by a local objective.

    Attributes
    ----------
    train : callable
        A function as above.
    tests_own_model : bool
        Whether the model that the client keeps is tested in the place of the one received.
    may_be_noisy : bool
        Whether noise is counted for all that it trains: what is trained beside, and then tested,
        has none. As the server's class says, which no client need believe.
    """

    train: Callable[..., float]
    tests_own_model: bool = False
    may_be_noisy: bool = True


OBJECTIVES: Mapping[str, Objective] = {
    "plain": Objective(plain),
    "prox": Objective(prox),
    "ditto": Objective(ditto, tests_own_model=True, may_be_noisy=False),
    "private-layers": Objective(plain),
    "private-head": Objective(private_head, may_be_noisy=False),
    "private-norms": Objective(plain),
}
