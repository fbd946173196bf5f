"""PCA + k-means + HC: FLT's linear competitor, with no encoder and no manifold.

Described by Jamali-Rad et al., 2022 (see `flt`), section IV-C, after D. K. Dennis, T. Li,
V. Smith, "Heterogeneity for the win: one-shot federated clustering", ICML 2021, PMLR 139.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import one_of, option
from strategies.clusterings.flt import SignatureClustering, ask_signatures
from strategies.clusterings.one_shot import Answers, OneShotClustering
from strategies.clusterings.signatures import CENTROID_DISTANCES, CentroidDistance
from strategies.rounds.conversation import Conversation

_NUM_COMPONENTS = 128  # of each client
Coordinates = Literal["components", "pixels"]


@dataclass
class LinearSignatureClustering(OneShotClustering):
    """Clients send k-means centroids of their principal components (FLT, section IV-C).

    FLT's authors compare coordinates along each client's axes, which are hardly comparable; mapped
    back to pixels, the same centroids are, but they are images.
    """

    name: ClassVar[str] = "linear-signature"
    shares: ClassVar[str] = "centroids"
    num_centroids: int = SignatureClustering.num_centroids
    coordinates: Coordinates = option(
        "components",
        one_of(get_args(Coordinates)),
        "where centroids are compared: along each client's axes, as FLT's authors did, or "
        "mapped back to `pixels`, which is far better but shows blurred images",
        key="centroid-coordinates",
    )
    centroid_distance: CentroidDistance = SignatureClustering.centroid_distance

    def ask(self, conversation: Conversation, clients: Sequence[int] | None) -> Answers:
        """Return centroids, shapes (1 to k, e)."""
        width = None if clients is None else next(iter(self._answers.values())).shape[1]
        options = {
            protocol.NUM_CENTROIDS: self.num_centroids,
            protocol.NUM_COMPONENTS: _NUM_COMPONENTS,
            protocol.MAPPED_CENTROIDS: int(self.coordinates == "pixels"),
        }
        answers = ask_signatures(conversation, RecordDict(), options, clients, width)
        return {client: centroids for client, (centroids, _) in answers.items()}

    def distances(self, some: Answers, others: Answers) -> NDArray[np.float64]:
        """Return FLT's distances of centroids."""
        every = [*others.values(), *(some.values() if some is not others else ())]
        found = CENTROID_DISTANCES[self.centroid_distance]([rows.astype(float) for rows in every])
        return found[-len(some) :, : len(others)]
