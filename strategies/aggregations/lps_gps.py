"""MT-HFL: spectral clusters, and a hierarchy of servers that shares only some layers.

A. Ali, A. Arafa, "Data Similarity-Based One-Shot Clustering for Multi-Task Hierarchical Federated
Learning", 2024, https://arxiv.org/abs/2410.02733.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from fl_core.messages.protocol import NDArrays
from fl_core.models.layers import LAYER_NAMES, check_layers, is_within
from fl_core.options import COUNT, option
from strategies.aggregations.aggregation import Aggregation, ClusterMean
from strategies.rounds.means import mean_model
from strategies.rounds.round_state import Round

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LpsGps(Aggregation):
    """MT-HFL's hierarchy (Algorithm 1): a local server per cluster, a global one above them.

    Each cluster's local parameter server (LPS) runs FedAvg. Every `local_rounds` rounds, the LPSs
    send their common layers to the global parameter server (GPS), which averages them, weighted by
    the number of samples of each LPS's clients, and sends them back. Lines 4 to 7 loop over all
    LPSs: one without an update since the last exchange shares what it has.
    """

    name: ClassVar[str] = "lps-gps"
    # Names of modules: `conv1` stands for all arrays below it
    common_layers: tuple[str, ...] = option(
        "paper",
        replace(LAYER_NAMES, allowed='"paper", or names of modules separated by commas'),
        "the layers that all clusters share; `paper`: the convolutions, or a perceptron's first "
        "layer (`logistic-regression` has only one layer and shares nothing)",
        default=MISSING,
    )
    local_rounds: int = option(1, COUNT, "rounds in the clusters for each exchange between them")
    weighted: bool = True  # at the GPS, an LPS counts as much as its clients that have trained

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each LPS's model."""
        names = self._common(state.models[0])
        models = ClusterMean(self.weighted)(state)
        weights = [
            sum(
                state.num_examples[client] if self.weighted else 1
                for client in state.clusters.members(cluster)
                if client in state.num_examples
            )
            for cluster in range(len(models))
        ]
        if not names or state.number % self.local_rounds or not sum(weights):
            return models
        shared = mean_model([{n: model[n] for n in names} for model in models], weights)
        return [{**model, **shared} for model in models]

    def bytes_between_servers(self, state: Round) -> int:
        """Return the bytes that all inhabited LPSs send to the GPS; it sends as many back."""
        if state.number % self.local_rounds:
            return 0
        model = state.models[0]
        size = sum(model[name].nbytes for name in self._common(model))
        return size * len(set(state.clusters.of_client.values()))

    def _common(self, model: NDArrays) -> list[str]:
        check_layers("common-layers", self.common_layers, model)
        return [name for name in model if is_within(name, self.common_layers)]


def common_layers(layers: str, model: nn.Module) -> tuple[str, ...]:
    """Return the names of the modules that MT-HFL's clusters share.

    "paper" stands for the convolutions, or, in a perceptron, the first layer (section IV); a one-
    layer model has nothing to share, as the last layer belongs to a task. Otherwise, `layers` are
    names of modules, separated by commas.
    """
    from torch import nn  # noqa: PLC0415 - only some servers need torch

    if layers != "paper":
        names = tuple(layers.split(","))
        check_layers("common-layers", names, model.state_dict())
        return names
    all_layers = [n for n, m in model.named_modules() if list(m.parameters(recurse=False))]
    convolutions = tuple(n for n, m in model.named_modules() if isinstance(m, nn.Conv2d))
    return convolutions or tuple(all_layers[:1] if len(all_layers) > 1 else ())
