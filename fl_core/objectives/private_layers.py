"""FedPer: M. G. Arivazhagan et al., "Federated Learning with Personalization Layers", 2019."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from fl_core.models.layers import LAST, LAYER_NAMES, named_layers
from fl_core.objectives.objective import LocalObjective
from fl_core.options import option


@dataclass(frozen=True)
class PrivateLayers(LocalObjective):
    """FedPer: base layers are shared, personalization layers stay at the client.

    The first layers instead of the last ones make it LG-FedAvg (P. P. Liang et al., 2020).
    """

    name: ClassVar[str] = "private-layers"
    has_state: ClassVar[bool] = True
    may_be_noisy: ClassVar[bool] = True
    private_layers: str = option(
        LAST,
        LAYER_NAMES,
        f"layers that never leave a client; `{LAST}`: the last one, as FedRep's authors have it "
        "for FedPer and FedRep",
    )

    def private_layers_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those that are named."""
        return named_layers("private-layers", self.private_layers, names)
