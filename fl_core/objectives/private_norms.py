"""FedBN: norm layers stay at the clients.

X. Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR
2021.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fl_core.models.layers import named_layers
from fl_core.objectives.objective import LocalObjective

if TYPE_CHECKING:
    from torch import nn

_TORCHS_NORMS = {f"torch.nn.modules.{m}" for m in ("batchnorm", "instancenorm", "normalization")}


@dataclass(frozen=True)
class PrivateNorms(LocalObjective):
    """FedBN: norm layers stay at the client, with their running statistics."""

    name: ClassVar[str] = "private-norms"
    has_state: ClassVar[bool] = True
    may_be_noisy: ClassVar[bool] = True
    norm_layers: str  # names, separated by commas: see `norm_layers`

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the norm layers."""
        return named_layers("norm-layers", self.norm_layers, names)


def norm_layers(model: nn.Module, model_name: str = "the model") -> str:
    """Return the names of a model's norm layers, of any of torch's kinds, by commas."""
    found = [
        name
        for name, module in model.named_modules()
        if _TORCHS_NORMS & {kind.__module__ for kind in type(module).__mro__}
        and module.state_dict()
    ]
    if not found:
        raise ValueError(
            f"private-norms (fedbn) needs norm layers, but {model_name} has none: choose cnn-norm."
        )
    return ",".join(found)
