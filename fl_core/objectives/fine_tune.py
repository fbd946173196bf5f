"""Test a client by what it makes of the model that it receives: FedAvg + FT, and PACFL.

K. Wang et al., "Federated Evaluation of On-device Personalization", 2019; L. Collins et al.,
"FedAvg with Fine Tuning: Local Updates Lead to Representation Learning", NeurIPS 2022; the code of
PACFL's authors, https://github.com/MMorafah/PACFL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining
from fl_core.options import COUNT, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class FineTune(LocalObjective):
    """Train as usual; a client trains a copy further on its own samples to test and save it."""

    name: ClassVar[str] = "fine-tune"
    fine_tune_epochs: int = option(
        5, COUNT, "passes over a client's samples before each test, and for the model it saves"
    )

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Train the received model further."""
        local.fit(model, epochs=self.fine_tune_epochs)


@dataclass(frozen=True)
class AfterTraining(LocalObjective):
    """Train as usual; a client tests and saves what its usual training makes of the model."""

    name: ClassVar[str] = "after-training"

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Train the received model as in a round."""
        local.fit(model)
