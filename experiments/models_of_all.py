"""FedSEM as the authors of FLT compare with it: all clients are grouped again in each round.

Their code (hjraad/FLT, `clustering_multi_center`) takes the model that each client last trained
itself, or the initial one, and runs k-means from the centres of the round before. The FedSEM of
this project groups once, when all have trained, and then moves participants alone, as its paper
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from experiments.last_models import last_trained
from fl_core.messages.protocol import NDArrays
from strategies.clusterings.clustering import Clustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round
from strategies.rounds.state import state_field
from strategies.rounds.updates import flatten, last_layer

_STARTS = 20  # of the first round's k-means, of which the best counts


@dataclass
class ModelsOfAll(Clustering):
    """k-means over the last models of all clients, in each round from the last round's centres.

    Attributes
    ----------
    num_clusters : int
    seed : int
        Of k-means++.
    """

    name: ClassVar[str] = "models-of-all"
    retains_models: ClassVar[bool] = True
    num_clusters: int
    seed: int = 0
    _trained: dict[int, NDArrays] = state_field(dict)
    _centres: list[NDArray[np.float64]] = state_field(list)

    def find(self, conversation: Conversation) -> Clusters:
        """Return one cluster with all clients, since none has trained."""
        self._trained, self._centres = {}, []
        return Clusters(dict.fromkeys(conversation.nodes, 0), self.num_clusters)

    def after_training(self, state: Round) -> Clusters:
        """Return the clusters of all clients' last models."""
        last = last_trained(self._trained, state)
        found = KMeans(
            self.num_clusters,
            init=self._centres or "k-means++",
            n_init=1 if self._centres else _STARTS,
            random_state=self.seed,
        )
        vectors = np.stack([flatten(self._compared(model)) for model in last.values()])
        labels = found.fit_predict(vectors)
        self._centres = list(found.cluster_centers_)
        return Clusters(dict(zip(last, labels.tolist(), strict=True)), self.num_clusters)

    def _compared(self, model: NDArrays) -> NDArrays:
        return model


@dataclass
class OutputLayersOfAll(ModelsOfAll):
    """`ModelsOfAll` by the output layer alone, as in the code of FedSEM's authors.

    Theirs (mingxuts/multi-center-fed-learning) clusters the kernel of the last layer, and has an
    output layer for each data set that it names.
    """

    name: ClassVar[str] = "output-layers-of-all"

    def _compared(self, model: NDArrays) -> NDArrays:
        return {name: model[name] for name in last_layer(model)}
