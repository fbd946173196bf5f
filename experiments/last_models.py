"""How the authors of FLT average: whoever did not take part counts, too, with the last model.

Their code sums the models of all of a client's neighbours, though a fifth of them have trained; the
others still hold the model of the round before. So a model moves by a fifth of what its clients ask
for. The paper's Algorithm 3 has the clients that trained, and so do the strategies of this project.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fl_core.wire.protocol import NDArrays
from strategies.aggregations.aggregation import Aggregation
from strategies.engine.means import mean_model
from strategies.engine.rounds import Round


@dataclass(frozen=True)
class MeanOfLastModels(Aggregation):
    """Each client's model is the plain mean over all of its neighbours, itself among them.

    That is, of the models that they trained, or else hold. In a clustering without a graph, the
    clients of a cluster are neighbours. For clients with equally many images.
    """

    name: ClassVar[str] = "last-models"
    per_client: ClassVar[bool] = True

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each client's model, in the order of `state.clusters.of_client`."""
        of_client = state.clusters.of_client
        last = dict(zip(of_client, state.models, strict=True))
        last |= {update.client: update.arrays for update in state.updates}
        near = [state.clusters.neighbours_of(client) for client in of_client]
        means = {
            group: mean_model([last[client] for client in sorted(group)], [1] * len(group))
            for group in set(near)
        }
        return [means[group] for group in near]
