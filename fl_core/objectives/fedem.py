"""FedEM: O. Marfoq, G. Neglia, A. Bellet, L. Kameni, R. Vidal, "Federated Multi-Task Learning under
a Mixture of Distributions", NeurIPS 2021, https://arxiv.org/abs/2108.10252.

Authors' code: github.com/omarfoq/FedEM.
"""  # noqa: D205

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fl_core.messages.protocol import NDArrays
from fl_core.objectives.objective import LocalObjective, LocalTraining

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class FedEm(LocalObjective):
    """FedEM (Algorithm 1): a client's data are a mixture of M distributions, one for each model.

    E-step: q_jm, model m's part in sample j, is in proportion to π_m exp(−loss_jm), and π_m, the
    client's share of model m, is their mean. M-step: each model trains on losses weighted by q. A
    client tests Σ π_m p_m(y | x), with π of its last training; before that, of an E-step.
    """

    name: ClassVar[str] = "fedem"
    has_state: ClassVar[bool] = True
    trains_several: ClassVar[bool] = True

    def first_beside(self, model: NDArrays) -> NDArrays:
        """Return the mean share of a model, which clients send."""
        return {"share": np.zeros(1, np.float32)}

    def train_several(self, models: Sequence[nn.Module], local: LocalTraining) -> float:
        """Run an E-step and an M-step."""
        parts = self.parts(models, local)
        shares = parts.mean(1)
        local.save({"shares": shares.cpu()})
        for beside, share in zip(local.besides, shares, strict=True):
            beside["share"] = share.reshape(1)
        self.note_labels(parts, local)
        return sum(local.loop.fit_weighted(*pair) for pair in zip(models, parts, strict=True))

    def mixture(self, models: Sequence[nn.Module], local: LocalTraining) -> Sequence[float]:
        """Return π."""
        stored = local.load()
        shares = self.parts(models, local).mean(1) if stored is None else stored["shares"]
        found: list[float] = shares.tolist()
        return found

    def parts(self, models: Sequence[nn.Module], local: LocalTraining) -> torch.Tensor:
        """Return q, shape (M, n)."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        losses = torch.stack([local.loop.losses(model) for model in models])
        stored = local.load()
        shares = torch.ones(len(models)) if stored is None else stored["shares"]
        logs = shares.to(losses.device).log()[:, None] - losses
        return (logs - self.log_prior(local)).softmax(0)

    def log_prior(self, local: LocalTraining) -> torch.Tensor | float:
        """Return what is taken from the log-likelihoods, shape (M, n): nothing."""
        return 0.0

    def note_labels(self, parts: torch.Tensor, local: LocalTraining) -> None:
        """Note what else goes to the server: nothing."""
