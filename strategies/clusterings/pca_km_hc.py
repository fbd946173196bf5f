"""PCA + k-means + HC: FLT's linear competitor, with no encoder and no manifold.

Described by Jamali-Rad et al., 2022 (see `flt`), section IV-C, after D. K. Dennis, T. Li,
V. Smith, "Heterogeneity for the win: one-shot federated clustering", ICML 2021, PMLR 139.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.options import one_of, option
from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    NumClusters,
    agglomerate_distances,
    closest_clusters,
)
from strategies.clusterings.clustering import Clustering
from strategies.clusterings.flt import SignatureClustering, ask_signatures
from strategies.clusterings.signatures import CENTROID_DISTANCES, CentroidDistance
from strategies.clusterings.spectral import SpectralClustering
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Comparison
from strategies.rounds.state import state_field

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
_NUM_COMPONENTS = 128  # of each client
Coordinates = Literal["components", "pixels"]


@dataclass
class LinearSignatureClustering(Clustering):
    """Clients send k-means centroids of their principal components (FLT, section IV-C).

    FLT's authors compare coordinates along each client's axes, which are hardly comparable; mapped
    back to pixels, the same centroids are, but they are images.
    """

    name: ClassVar[str] = "linear-signature"
    shares: ClassVar[str] = "centroids"
    exact_number: ClassVar[bool] = True
    count_rules: ClassVar[tuple[str, ...]] = COUNT_RULES
    num_clusters: NumClusters = "elbow"
    num_centroids: int = SignatureClustering.num_centroids
    coordinates: Coordinates = option(
        "components",
        one_of(get_args(Coordinates)),
        "where centroids are compared: along each client's axes, as FLT's authors did, or "
        "mapped back to `pixels`, which is far better but shows blurred images",
        key="centroid-coordinates",
    )
    centroid_distance: CentroidDistance = SignatureClustering.centroid_distance
    linkage: str = SpectralClustering.linkage
    _signatures: dict[int, Float32] = state_field(dict)

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for centroids, then agglomerate."""
        self._signatures = signatures = self._ask(conversation, None, None)
        distances = self._distances(signatures.values())
        grouping = agglomerate_distances(distances, self.num_clusters, self.linkage)
        return Clusters.of_labels(
            signatures,
            grouping.labels,
            comparison=Comparison(
                tuple(signatures),
                1 / (1 + distances),
                grouping.merges,
                "closeness 1/(1 + distance)",
            ),
        )

    def place(
        self, newcomers: Sequence[int], clusters: Clusters, conversation: Conversation
    ) -> Clusters:
        """Ask newcomers alone, and place each in the cluster that is nearest on average."""
        known = self._signatures
        width = next(iter(known.values())).shape[1]
        fresh = self._ask(conversation, newcomers, width)
        between = self._distances((*known.values(), *fresh.values()))
        distances = between[len(known) :, : len(known)]
        members = [clusters.of_client[client] for client in known]
        placed = dict(zip(fresh, closest_clusters(-distances, members).tolist(), strict=True))
        self._signatures = {**known, **fresh}
        first = np.isin([*known], clusters.compared)
        return clusters.with_clients(
            placed, dict(zip(fresh, 1 / (1 + distances[:, first]), strict=True))
        )

    def _distances(self, signatures: Iterable[Float32]) -> Float64:
        return CENTROID_DISTANCES[self.centroid_distance](
            [rows.astype(float) for rows in signatures]
        )

    def _ask(
        self, conversation: Conversation, clients: Sequence[int] | None, width: int | None
    ) -> dict[int, Float32]:
        options = {
            protocol.NUM_CENTROIDS: self.num_centroids,
            protocol.NUM_COMPONENTS: _NUM_COMPONENTS,
            protocol.MAPPED_CENTROIDS: int(self.coordinates == "pixels"),
        }
        answers = ask_signatures(conversation, RecordDict(), options, clients, width)
        return {client: answer.centroids for client, answer in answers.items()}
