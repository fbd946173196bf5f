"""FedRep: a private head, trained in turns with the shared body.

L. Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.models.layers import is_within
from fl_core.objectives.objective import LocalTraining
from fl_core.objectives.private_layers import PrivateLayers
from fl_core.options import COUNT, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class PrivateHead(PrivateLayers):
    """FedRep (Algorithm 1): first the private head is trained, then the shared body beneath it."""

    name: ClassVar[str] = "private-head"
    may_be_noisy: ClassVar[bool] = False
    head_epochs: int = option(
        10, COUNT, "passes over the samples for the head alone, with the body's weights as received"
    )
    body_epochs: int = option(
        1,
        COUNT,
        "passes for the body, after the head's; these two take the place of `local-epochs`, and "
        "are those of the authors' script for CIFAR-10 with two classes a client; most others have "
        "5",
    )

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train the head, then the body beneath it (Algorithm 1, lines 7 to 11)."""
        with trained_alone(model, local.private_layers, within=True):
            local.fit(model, epochs=self.head_epochs)
        with trained_alone(model, local.private_layers, within=False):
            return local.fit(model, epochs=self.body_epochs)


@contextmanager
def trained_alone(model: nn.Module, layers: Sequence[str], *, within: bool) -> Iterator[None]:
    """Train only the parameters within `layers`, or only those outside them.

    FedRep's alternation. The others have no gradient, so no optimizer moves them, not even by
    weight decay.
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
