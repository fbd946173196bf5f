"""PCA + k-means + HC as the authors of FLT run it: a graph, and no hierarchy.

Their code makes two clients neighbours if their centroids, matched, are within 1.2, and each client
averages over its neighbours; its configurations have hierarchical clustering switched off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.signatures import neighbours_in
from strategies.engine.conversation import Conversation
from strategies.engine.rounds import Clusters

WITHIN = 1.2


@dataclass
class LinearGraph(LinearSignatureClustering):
    """Neighbours are clients whose centroids are within `WITHIN`; clusters are as without them."""

    name: ClassVar[str] = "linear-graph"

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for centroids, then see who is near whom."""
        found = super().find(conversation)
        near = self._distances(self._signatures.values()) < WITHIN
        return replace(found, neighbours=neighbours_in(near, tuple(self._signatures)))
