"""FedProx: T. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining, proximal_term
from fl_core.options import number, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Prox(LocalObjective):
    """FedProx (equation 2): add μ/2 ‖w − w_t‖², w_t the model received."""

    name: ClassVar[str] = "prox"
    may_be_noisy: ClassVar[bool] = True
    prox_weight: float = option(
        1.0,
        number(float, 0),
        "μ, how strongly a client is pulled back to the model that it was sent; the paper's for "
        "MNIST; its authors try 0.001, 0.01, 0.1, 0.5 and 1",
    )

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train with a pull towards the model received."""
        return local.fit(model, proximal_term(model, self.prox_weight))
