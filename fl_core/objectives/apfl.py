"""APFL: Y. Deng, M. M. Kamani and M. Mahdavi, "Adaptive Personalized Federated Learning", 2020.

Authors' code: github.com/MLOPTPSU/FedTorch. It mixes the outputs of the two models; this mixes
their weights, as the paper does.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining
from fl_core.options import BOOLEAN, number, option

if TYPE_CHECKING:
    from torch import nn

_ALPHA = "apfl-alpha"  # where α is stored, beside the personal model's arrays


@dataclass(frozen=True)
class Apfl(LocalObjective):
    """APFL (Algorithm 1): a client's model is αv + (1 − α)w, w the shared model, v its own.

    In each step, w goes down the gradient of the loss at w, and v that of the loss at the mixture,
    by the configured optimizer. v starts as the first model that its client receives.
    """

    name: ClassVar[str] = "apfl"
    has_state: ClassVar[bool] = True
    apfl_alpha: float = option(
        0.5, number(float, 0, 1), "α, the share of a client's own model in the one that it tests"
    )
    apfl_adaptive: bool = option(
        False,
        BOOLEAN,
        "whether each client fits its α, by a step down the gradient at the start of each round; "
        "`apfl-alpha` is then the first",
    )

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train the shared model as usual, and the client's own one in the mixture."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        loop, own = local.loop, deepcopy(model)
        alpha = self._load(own, local)
        optimizers = loop.optimizer(model), loop.optimizer(own)
        losses = []
        model.train()
        own.train()
        named = zip(own.named_parameters(), model.parameters(), strict=True)
        pairs = [(name, v, w) for (name, v), w in named if v.requires_grad]
        for number_of_step, (samples, labels) in enumerate(loop.batches()):
            mixed = {
                name: (alpha * v + (1 - alpha) * w).detach().requires_grad_()
                for name, v, w in pairs
            }
            loss = loop.loss(torch.func.functional_call(own, mixed, (samples,)), labels)
            gradients = torch.autograd.grad(loss, list(mixed.values()), materialize_grads=True)
            fits_alpha = self.apfl_adaptive and number_of_step == 0
            slope = 0.0
            for (_, v, w), gradient in zip(pairs, gradients, strict=True):
                if fits_alpha:
                    slope += float(((v - w) * gradient).sum().detach())
                v.grad = alpha * gradient
            optimizers[0].zero_grad()
            loss = loop.loss(model(samples), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            if fits_alpha:
                alpha = min(1.0, max(0.0, alpha - loop.settings.learning_rate * slope))
            losses.append((loss.detach(), len(labels)))
        local.save({**own.state_dict(), _ALPHA: torch.tensor(alpha, dtype=torch.float64)})
        return local.last_epoch_loss(losses)

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Mix the received model and the client's own one."""
        own = deepcopy(model)
        alpha = self._load(own, local)
        weights = dict(model.named_parameters())
        for name, tensor in own.state_dict().items():
            if name in weights:
                tensor.mul_(alpha).add_(weights[name].detach(), alpha=1 - alpha)
        model.load_state_dict(own.state_dict())

    def _load(self, own: nn.Module, local: LocalTraining) -> float:
        """Load the client's own model, if there is one, and return its α."""
        stored = local.load()
        if stored is None:
            return self.apfl_alpha
        alpha = float(stored.pop(_ALPHA))
        own.load_state_dict(stored)
        return alpha
