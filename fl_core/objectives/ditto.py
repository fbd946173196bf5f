"""Ditto: T. Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization".

At ICML 2021.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining, proximal_term, weights_of
from fl_core.options import number, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Ditto(LocalObjective):
    """Ditto (Algorithm 1): beside the shared model w, each client has a personal model v.

    In each round w is trained as usual, and v on the loss and λ/2 ‖v − w_t‖², w_t the model
    received. v is tested and stored. It starts as the first model that its client receives.
    """

    name: ClassVar[str] = "ditto"
    has_state: ClassVar[bool] = True
    ditto_weight: float = option(
        1.0,
        number(float, 0),
        "λ, how strongly a personal model is pulled to the shared one; 1 as in the authors' "
        "scripts for Fashion-MNIST; 0: not at all",
    )

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train the shared model as usual, and the personal one (Algorithm 1, lines 4 and 5)."""
        received, personal = weights_of(model), deepcopy(model)
        local.load_into(personal)
        loss = local.fit(model)
        local.fit(personal, proximal_term(personal, self.ditto_weight, received))
        local.save(personal.state_dict())
        return loss

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Take the personal model; a client that never trained has the received one."""
        local.load_into(model)
