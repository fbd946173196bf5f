"""A local objective: what both sides know of it, and what a client needs to train by it.

A server reads its options, sends its name and options to clients, and learns which layers stay
private; a client builds it from a message, and trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Protocol

from flwr.app import ArrayRecord, ConfigRecordValues

from fl_core.messages import protocol

if TYPE_CHECKING:
    import torch
    from torch import nn

GradientTerm = Callable[[], None]
"""Adds something to a model's gradients: called between `backward` and the optimizer's step."""
Fit = Callable[["nn.Module", GradientTerm, int | None], float]
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

    `anchor` has one tensor for each of the model's parameters; by default, their present values.
    With weight 0 not a bit is changed.
    """
    if not weight:
        return no_term
    import torch  # noqa: PLC0415 - it takes a second, and a server needs none

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


class PersonalStore(Protocol):
    """What a client stores for itself from round to round."""

    def load(self) -> ArrayRecord | None:
        """Return the stored arrays; None if there are none yet."""

    def save(self, arrays: ArrayRecord) -> None:
        """Store arrays in the place of those before."""


@dataclass(frozen=True)
class LocalObjective:
    """What a client optimises."""

    name: ClassVar[str] = ""  # by which a configuration and messages name it
    has_state: ClassVar[bool] = False  # whether a client stores something from round to round
    # Whether `training-epsilon` covers all that depends on a client's samples: a model that is
    # trained beside the shared one, and then tested, has no noise.
    may_be_noisy: ClassVar[bool] = True
    tests_personal_model: ClassVar[bool] = False  # whether the client's stored model is tested

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the layers that stay at the clients, of a model with arrays of these names.

        A ValueError says that the model has no such layer, or no other one.
        """
        return ()

    def message_entries(self, names: Iterable[str]) -> dict[str, ConfigRecordValues]:
        """Return the entries of every message, for a model with arrays of these names.

        The objective's name, its fields with `-` for `_`, and the private layers.
        """
        options = {one.name.replace("_", "-"): getattr(self, one.name) for one in fields(self)}
        layers = list(self.private_layers_of(names))
        private = {protocol.PRIVATE_LAYERS: layers} if layers else {}
        return {protocol.OBJECTIVE: self.name, **options, **private}

    def train(
        self, model: nn.Module, fit: Fit, personal: PersonalStore, layers: Sequence[str]
    ) -> float:
        """Train at the client, and return the mean loss: by default, as usual.

        Parameters
        ----------
        model : nn.Module
            With the received weights; its final state leaves the client, but for `layers`.
        fit : callable
            Trains it.
        personal : PersonalStore
            What the client stores.
        layers : sequence of str
            Those that stay at the client.
        """
        return fit(model, no_term, None)
