"""PCA + k-means + HC as the authors of FLT run it: a graph, and no hierarchy.

Their code makes two clients neighbours if their centroids, matched, are within 1.2, and each client
averages over its neighbours; its configurations have hierarchical clustering switched off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from strategies.clusterings.pca_km_hc import LinearSignatureClustering
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
        clients = np.array(list(self._signatures))
        near = self._distances(self._signatures.values()) < WITHIN
        return replace(
            found,
            neighbours={
                int(client): frozenset(clients[row].tolist())
                for client, row in zip(clients, near, strict=True)
            },
        )
