"""How the authors of FLT average: whoever did not take part counts, too, with the last model.

Their code sums the models of all clients of a cluster, though a fifth of them have trained; the
others still hold the cluster's model (in its version of February 2021, what they trained last).
So a cluster moves by a fifth of what its clients ask for. The paper's Algorithm 3 has the clients
that trained, and so do the strategies of this project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fl_core.wire.protocol import NDArrays
from strategies.aggregations.aggregation import Aggregation, updates_by_cluster
from strategies.engine.means import mean_model
from strategies.engine.rounds import Round


@dataclass(frozen=True)
class MeanOfLastModels(Aggregation):
    """The plain mean over all clients of a cluster: trained models, and the cluster's for others.

    For clients with equally many images.
    """

    name: ClassVar[str] = "last-models"

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each cluster's model, whatever the order of the updates."""
        models = []
        for cluster, trained in enumerate(updates_by_cluster(state)):
            idle = len(state.clusters.members(cluster)) - len(trained)
            counted = [*(update.arrays for update in trained), state.models[cluster]]
            weights = [*[1] * len(trained), idle]
            models.append(mean_model(counted, weights) if trained else dict(counted[-1]))
        return models
