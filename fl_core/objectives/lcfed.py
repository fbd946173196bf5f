"""LCFed's client: Y. Zhang, H. Chen, Z. Lin, Z. Chen, J. Zhao, "LCFed: An Efficient Clustered
Federated Learning Framework for Heterogeneous Data", ICASSP 2025, https://arxiv.org/abs/2501.01850.

The authors published no code. The server's half is strategies/clusterings/lcfed.py.
"""  # noqa: D205

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fl_core.messages.protocol import NDArrays, as_type
from fl_core.models.layers import layer_of
from fl_core.objectives.objective import LocalObjective, LocalTraining, proximal_term
from fl_core.options import number, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LcFed(LocalObjective):
    """LCFed: minimise the loss + μ/2 ‖ω − Ω‖² + λ/2 ‖φ − Φ‖².

    Ω is the cluster's model, from which a training starts. φ, the embedding, is all of a model but
    its last layer, and Φ the mean embedding of the clients of all clusters, which the server sends
    beside Ω. Defaults are those of the implementations in the package cfla and for HAM10000.
    """

    name: ClassVar[str] = "lcfed"
    returns_beside: ClassVar[bool] = False
    uses_last_layer: ClassVar[bool] = True
    lcfed_cluster_weight: float = option(
        2.0, number(float, 0), "μ, the pull to the cluster's model"
    )
    lcfed_global_weight: float = option(1.0, number(float, 0), "λ, the pull to all clusters' mean")

    def first_beside(self, model: NDArrays) -> NDArrays:
        """Return the first embedding; a model of one layer has none."""
        last = layer_of([*model][-1])
        return {n: a for n, a in model.items() if a.dtype.kind == "f" and layer_of(n) != last}

    def common_beside(self, models: Sequence[NDArrays], trained: Sequence[int]) -> NDArrays:
        """Return the mean embedding of the clients that trained."""
        shares = np.array(trained, np.float64) / sum(trained)
        return {
            name: as_type(first.dtype, np.tensordot(shares, [one[name] for one in models], 1))
            for name, first in self.first_beside(models[0]).items()
        }

    def train(self, model: nn.Module, local: LocalTraining) -> float:
        """Train from the cluster's model, with both pulls."""
        to_cluster = proximal_term(model, self.lcfed_cluster_weight)
        pairs = [(p, local.beside[n]) for n, p in model.named_parameters() if n in local.beside]

        def add() -> None:
            to_cluster()
            for parameter, mean in pairs:
                if parameter.grad is not None:
                    parameter.grad.add_(parameter.detach() - mean, alpha=self.lcfed_global_weight)

        return local.fit(model, add)
