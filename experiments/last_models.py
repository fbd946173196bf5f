"""How the authors of FLT average: clients that did not take part count with an earlier model.

Their code sums the models of all of a client's neighbours, though a fifth of them have trained. So
a model moves by a fifth of what its clients ask for. The paper's Algorithm 3 has the clients that
trained, and so do the strategies of this project.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fl_core.messages.protocol import NDArrays
from strategies.aggregations.aggregation import Aggregation
from strategies.rounds.means import mean_model
from strategies.rounds.round_state import Round
from strategies.rounds.state import state_field


@dataclass(frozen=True)
class MeanOfLastModels(Aggregation):
    """Each client's model is the plain mean over all of its neighbours, itself among them.

    That is, of the models that they trained, or else hold, as in the code since 12 March 2021. In a
    clustering without a graph, the clients of a cluster are neighbours. For clients with equally
    many images.
    """

    name: ClassVar[str] = "last-models"
    per_client: ClassVar[bool] = True

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each client's model, in the order of `state.clusters.of_client`."""
        held = dict(zip(state.clusters.of_client, state.models, strict=True))
        return _means(state, held | {update.client: update.arrays for update in state.updates})


@dataclass
class MeanOfLastTrained(Aggregation):
    """`MeanOfLastModels` of what each client last trained itself, as in the code before.

    A client that has not trained yet counts with the initial model.
    """

    name: ClassVar[str] = "last-trained"
    per_client: ClassVar[bool] = True
    _trained: dict[int, NDArrays] = state_field(dict)

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each client's model, in the order of `state.clusters.of_client`."""
        return _means(state, last_trained(self._trained, state))


def last_trained(known: dict[int, NDArrays], state: Round) -> dict[int, NDArrays]:
    """Add a round's updates to the known ones; return each client's last or initial model."""
    known |= {update.client: update.arrays for update in state.updates}
    return {client: known.get(client, state.initial) for client in state.clusters.of_client}


def _means(state: Round, last: Mapping[int, NDArrays]) -> list[NDArrays]:
    near = [state.clusters.neighbours_of(client) for client in state.clusters.of_client]
    means = {
        group: mean_model([last[client] for client in sorted(group)], [1] * len(group))
        for group in set(near)
    }
    return [means[group] for group in near]
