"""PCA + k-means + HC: FLT's linear competitor, with no encoder and no manifold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from flwr.app import RecordDict

from fl_core import protocol
from strategies.aggregation import ClusterMean
from strategies.base import ClusteredStrategy, Options
from strategies.clustering import Clustering
from strategies.conversation import Conversation
from strategies.flt import ask_signatures
from strategies.grouping import NumClusters, agglomerate_distances
from strategies.rounds import Clusters
from strategies.signatures import closest_distances


@dataclass
class LinearSignatureClustering(Clustering):
    """Clients send k-means centroids in their own principal coordinates (FLT, section IV-C).

    The distance between two clients is that of their closest centroids, as in FLT.

    Attributes
    ----------
    num_clusters : int, "elbow" or "silhouette"
    num_centroids : int
        k.
    num_components : int
        Principal components that each client keeps.
    linkage : str
        Any of scipy's linkage methods.
    """

    num_clusters: NumClusters = "elbow"
    num_centroids: int = 5
    num_components: int = 128
    linkage: str = "average"

    def find(self, conversation: Conversation) -> Clusters:
        """Ask for centroids, then agglomerate.

        Raises
        ------
        ValueError
            If there are more clusters than clients that answered.
        RuntimeError
            If no client answers.
        """
        options = {
            protocol.NUM_CENTROIDS: self.num_centroids,
            protocol.NUM_COMPONENTS: self.num_components,
        }
        signatures = ask_signatures(conversation, RecordDict(), options, None)
        distances = closest_distances([own.astype(float) for own in signatures.values()])
        grouping = agglomerate_distances(distances, self.num_clusters, self.linkage)
        return Clusters(
            dict(zip(signatures, grouping.labels.tolist(), strict=True)),
            similarity=1 / (1 + distances),
            measure="closeness 1/(1 + distance)",
            merges=grouping.merges,
        )


class PcaKmHc(ClusteredStrategy):
    """PCA + k-means at the clients, hierarchical clustering at the server, FedAvg per cluster.

    Parameters
    ----------
    num_clusters, num_centroids, num_components, linkage
        See `LinearSignatureClustering`.
    weighted_mean : bool
        Weight clients by their number of samples.
    **options
        See `ClusteredStrategy`.
    """

    def __init__(
        self,
        num_clusters: NumClusters = "elbow",
        *,
        num_centroids: int = 5,
        num_components: int = 128,
        linkage: str = "average",
        weighted_mean: bool = True,
        **options: Unpack[Options],
    ) -> None:
        clustering = LinearSignatureClustering(num_clusters, num_centroids, num_components, linkage)
        super().__init__(clustering, ClusterMean(weighted_mean), **options)
