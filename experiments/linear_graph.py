"""PCA + k-means + HC as the authors of FLT run it: a graph, and no hierarchy.

Their code makes two clients neighbours if their centroids, matched, are near, and each client
averages over its neighbours; its configurations have hierarchical clustering switched off. Near is
within 1.2, and was within 3 until 24 March 2021.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from strategies.clusterings.pca_km_hc import LinearSignatureClustering
from strategies.clusterings.signatures import neighbours_in, relatedness_graph
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters


@dataclass
class LinearGraph(LinearSignatureClustering):
    """Neighbours are clients within `graph_threshold`; clusters are as without them."""

    name: ClassVar[str] = "linear-graph"
    graph_threshold: float = 1.2

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for centroids, and relate clients with near ones."""
        found = super().find(conversation)
        answers = self._answers
        near = relatedness_graph(self.distances(answers, answers), self.graph_threshold)
        return replace(found, neighbours=neighbours_in(near, tuple(answers)))
