"""pFedMe: C. T. Dinh, N. H. Tran and T. D. Nguyen, "Personalized Federated Learning with Moreau
Envelopes", NeurIPS 2020.

Authors' code: github.com/CharlieDinh/pFedMe.
"""  # noqa: D205

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.objectives.objective import LocalObjective, LocalTraining
from fl_core.options import COUNT, POSITIVE, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class PFedMe(LocalObjective):
    """pFedMe (Algorithm 1, β = 1): a personal model θ for each batch, which pulls the shared w.

    For each batch, θ takes K steps down the gradient of the loss and λ/2 ‖θ − w‖²; then w goes to
    w − ηλ(w − θ), η the learning rate. In a round θ starts from the received model and continues
    from batch to batch, as in the authors' code. The last θ is tested.
    """

    name: ClassVar[str] = "pfedme"
    has_state: ClassVar[bool] = True
    unused_options: ClassVar[frozenset[str]] = frozenset({"optimizer", "momentum", "weight-decay"})
    pfedme_weight: float = option(15.0, POSITIVE, "λ, how strongly θ and w pull each other")
    pfedme_steps: int = option(5, COUNT, "K, steps of θ for each batch")
    pfedme_rate: float = option(0.09, POSITIVE, "learning rate of θ's steps")

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train θ and w in turns (Algorithm 1, lines 5 to 8); return the loss of θ's last steps."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        loop, personal = local.loop, deepcopy(model)
        personal.train()
        named = zip(personal.parameters(), model.parameters(), strict=True)
        pairs = [(theta, w) for theta, w in named if theta.requires_grad]
        thetas = [theta for theta, _ in pairs]
        losses = []
        for samples, labels in loop.batches():
            for _ in range(self.pfedme_steps):
                loss = loop.loss(personal(samples), labels)
                gradients = torch.autograd.grad(loss, thetas, materialize_grads=True)
                with torch.no_grad():
                    for (theta, w), gradient in zip(pairs, gradients, strict=True):
                        pull = self.pfedme_weight * (theta - w)
                        theta.sub_(gradient + pull, alpha=self.pfedme_rate)
            with torch.no_grad():
                for theta, w in pairs:
                    w.sub_(w - theta, alpha=loop.settings.learning_rate * self.pfedme_weight)
            losses.append((loss.detach(), len(labels)))
        for buffer, seen in zip(model.buffers(), personal.buffers(), strict=True):
            buffer.copy_(seen)  # running statistics, which θ has
        local.save(personal.state_dict())
        return local.last_epoch_loss(losses)

    def personalise(self, model: nn.Module, local: LocalTraining) -> None:
        """Take the last θ; a client that never trained has the received model."""
        local.load_into(model)
