"""SCAFFOLD: S. P. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020.

It assumes SGD without momentum, and refuses other optimizers. The authors published no code.
"""  # noqa: D205

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fl_core.messages.protocol import NDArrays
from fl_core.objectives.objective import LocalObjective, LocalTraining

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Scaffold(LocalObjective):
    """SCAFFOLD (Algorithm 1, option II, global step size 1): c − c_i is added to each gradient.

    c_i, a client's control variate, estimates its gradient; c, a cluster's, is the mean of its
    clients'. c travels beside the model; a client returns c + Δc_i.
    """

    name: ClassVar[str] = "scaffold"
    has_state: ClassVar[bool] = True
    assumes_sgd: ClassVar[bool] = True

    def first_beside(self, model: NDArrays) -> NDArrays:
        """Return c = 0 for each array of floats."""
        return {name: np.zeros_like(a) for name, a in model.items() if a.dtype.kind == "f"}

    def combine_beside(self, before: NDArrays, combined: NDArrays, share: float) -> NDArrays:
        """Return c + |S|/N mean(Δc_i) (line 17): clients that did not train keep theirs."""
        found: dict[str, Any] = {**before}
        return {name: c + share * (combined[name] - c) for name, c in found.items()}

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train with corrected gradients, and update c_i (lines 7 to 14)."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        settings, common = local.loop.settings, local.beside
        if settings.optimizer != "sgd" or settings.momentum:
            raise ValueError("scaffold assumes SGD without momentum: set optimizer=sgd momentum=0.")
        weights = {n: w for n, w in model.named_parameters() if w.requires_grad}
        received = {name: w.detach().clone() for name, w in weights.items()}
        own = {name: torch.zeros_like(w) for name, w in received.items()}
        own.update({name: c.to(own[name]) for name, c in (local.load() or {}).items()})
        steps = 0

        @torch.no_grad()
        def correct() -> None:
            nonlocal steps
            steps += 1
            for name, w in weights.items():
                if w.grad is not None:
                    w.grad.add_(common[name] - own[name])

        loss = local.fit(model, correct)
        scale = 1 / (steps * settings.learning_rate)
        change = {n: (received[n] - w.detach()) * scale - common[n] for n, w in weights.items()}
        local.save({name: own[name] + change[name] for name in weights})
        local.beside.update({name: common[name] + change[name] for name in weights})
        return loss
