"""FedAMP's client: Y. Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data".

At AAAI 2021. The server's half is strategies/aggregations/fedamp.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining, proximal_term, weights_of
from fl_core.options import number, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FedAmp(LocalObjective):
    """FedAMP (Algorithm 1, line 5): minimise the loss and λ/(2α) ‖w_i − u_i‖².

    w_i is the client's model, which it stores, sends and tests; u_i is the one that it receives.
    w_i starts as the first of these.
    """

    name: ClassVar[str] = "fedamp"
    has_state: ClassVar[bool] = True
    fedamp_weight: float = option(
        1.0, number(float, 0), "λ/α, the pull of a client's model to the received one; 1 as PFLlib"
    )

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train the stored model, with a pull to the received one."""
        received = weights_of(model)
        self.personalise(model, local)
        loss = local.fit(model, proximal_term(model, self.fedamp_weight, received))
        local.save(model.state_dict())
        return loss

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Take the stored model; a client that never trained has the received one."""
        local.load_into(model)
