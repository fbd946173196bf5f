"""From the models of clients to the models of clusters: pure functions over arrays.

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas, "Communication-Efficient Learning of
Deep Networks from Decentralized Data", AISTATS 2017, https://arxiv.org/abs/1602.05629 (FedAvg).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fl_core.messages.protocol import NDArrays
from strategies.rounds.means import mean_model
from strategies.rounds.round_state import Round, Update
from strategies.rounds.state import Stateful


class Aggregation(Stateful, ABC):
    """From the current models and the clients' updates to the next models."""

    name: ClassVar[str] = ""  # by which a configuration pairs it with a clustering
    per_client: ClassVar[bool] = False  # whether there is a model for each client
    # Whether clients count by their number of samples: the default for pairs of no paper.
    weighted: bool = False

    @abstractmethod
    def __call__(self, state: Round) -> list[NDArrays]:
        """Return as many models as `state.models`; nothing in `state` is changed."""

    def bytes_between_servers(self, state: Round) -> int:
        """Return the bytes that servers send up to a global one after this round."""
        return 0


class PerCluster(Aggregation):
    """An aggregation of each cluster's updates; a cluster without any keeps its model."""

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each cluster's model, in any order of the updates."""
        of_cluster: list[list[Update]] = [[] for _ in state.models]
        for update in sorted(state.updates, key=lambda u: u.client):
            of_cluster[update.cluster].append(update)
        return [
            self.of_updates(updates) if updates else model  # itself: it is written only once
            for updates, model in zip(of_cluster, state.models, strict=True)
        ]

    @abstractmethod
    def of_updates(self, updates: Sequence[Update]) -> NDArrays:
        """Return a cluster's next model from its updates, by client; there is at least one."""


@dataclass(frozen=True)
class ClusterMean(PerCluster):
    """FedAvg in each cluster (RCC-PFL, Algorithm 1, line 9), or `weighted` by samples."""

    name: ClassVar[str] = "mean"
    weighted: bool = False

    def of_updates(self, updates: Sequence[Update]) -> NDArrays:
        """Return the cluster's mean."""
        return _mean_of_updates(updates, self.weighted)


@dataclass(frozen=True)
class GraphMean(Aggregation):
    """FLT's Case I (Algorithm 3, line 17): every client has a separate model.

    A client's next model is the mean of the models that its neighbours, itself included, have
    trained; without any, it keeps its model. If `weighted`, weights are the numbers of samples, the
    paper's p_j. In a clustering without a graph, the clients of a cluster are neighbours.
    """

    name: ClassVar[str] = "graph"
    per_client: ClassVar[bool] = True
    weighted: bool = True

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each client's model, in the order of `state.clusters.of_client`."""
        trained = {update.client for update in state.updates}
        # Clients with the same neighbours get the same mean: it is worked out once.
        means: dict[frozenset[int], NDArrays] = {}
        models = []
        for client, model in zip(state.clusters.of_client, state.models, strict=True):
            near = state.clusters.neighbours_of(client) & trained
            if not near:
                models.append(model)
                continue
            if near not in means:
                chosen = sorted(
                    (u for u in state.updates if u.client in near), key=lambda u: u.client
                )
                means[near] = _mean_of_updates(chosen, self.weighted)
            models.append(means[near])
        return models


def _mean_of_updates(updates: Sequence[Update], weighted: bool) -> NDArrays:
    """Return the mean of trained models, in the order of the updates."""
    return mean_model(
        [u.arrays for u in updates], [u.num_examples if weighted else 1 for u in updates]
    )
