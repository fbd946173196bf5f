"""FedRep: a private head, trained in turns with the shared body.

L. Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021.
"""

from __future__ import annotations

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
    unused_options: ClassVar[frozenset[str]] = frozenset({"local-epochs"})
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
        weights = [one for one in model.named_parameters() if one[1].requires_grad]
        for is_head, epochs in ((True, self.head_epochs), (False, self.body_epochs)):
            for name, weight in weights:
                weight.requires_grad_(is_within(name, local.private_layers) == is_head)
                weight.grad = None
            loss = local.fit(model, epochs=epochs)
        for _, weight in weights:
            weight.requires_grad_(True)
        return loss
