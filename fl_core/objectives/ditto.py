"""Ditto: T. Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization".

At ICML 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from flwr.app import ArrayRecord

from fl_core.objectives.objective import (
    Fit,
    LocalObjective,
    PersonalStore,
    no_term,
    proximal_term,
    weights_of,
)
from fl_core.options import number, option

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Ditto(LocalObjective):
    """Ditto (Algorithm 1): beside the shared model w, each client has a personal model v.

    In each round w is trained as usual, and v on the loss and λ/2 ‖v − w_t‖², w_t the model
    received. v is tested and stored. It starts as the first model that its client receives.
    """

    name: ClassVar[str] = "ditto"
    has_state: ClassVar[bool] = True
    may_be_noisy: ClassVar[bool] = False
    tests_personal_model: ClassVar[bool] = True
    ditto_weight: float = option(
        1.0,
        number(float, 0),
        "λ, how strongly a personal model is pulled to the shared one; 1 as in the authors' "
        "scripts for Fashion-MNIST; 0: not at all",
    )

    def train(
        self, model: nn.Module, fit: Fit, personal: PersonalStore, layers: Sequence[str]
    ) -> float:
        """Train the shared model as usual, and the personal one (Algorithm 1, lines 4 and 5)."""
        received, first = weights_of(model), _copy_of(model)
        stored = personal.load()
        loss = fit(model, no_term, None)
        shared = _copy_of(model)
        model.load_state_dict(first if stored is None else stored.to_torch_state_dict())
        fit(model, proximal_term(model, self.ditto_weight, received), None)
        personal.save(ArrayRecord(dict(model.state_dict())))
        model.load_state_dict(shared)
        return loss


def _copy_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
