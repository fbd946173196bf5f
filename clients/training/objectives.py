"""What local objectives do to a model's gradients and parameters: pure functions over tensors.

The papers are at the head of `strategies/objectives.py`, which says what a server must know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from fl_core.models.layers import is_within


def nothing() -> None:
    """Add nothing to gradients."""


def pull(model: nn.Module, weight: float) -> Callable[[], None]:
    """Return what adds the gradient of weight/2 ‖w − w_t‖² to a model's, w_t its weights now.

    FedProx's term (equation 2), whose weight is μ. To be called between `backward` and the
    optimizer's step. With weight 0 not a bit is changed.
    """
    return pull_to(model, [p.detach().clone() for p in model.parameters()], weight)


def pull_to(model: nn.Module, anchor: Sequence[torch.Tensor], weight: float) -> Callable[[], None]:
    """Return what adds the gradient of weight/2 ‖w − anchor‖² to a model's (Ditto's λ).

    Parameters
    ----------
    anchor : sequence of torch.Tensor
        One for each of the model's parameters, of its shape.
    weight : float
        Not negative.
    """
    if not weight:
        return nothing

    @torch.no_grad()
    def add() -> None:
        for parameter, place in zip(model.parameters(), anchor, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(parameter - place, alpha=weight)

    return add


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
