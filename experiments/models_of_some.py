"""FedSEM where the first round's participants alone are grouped, as the paper does with all.

With a share of the clients in each round, those that sit out the first join the largest cluster
and leave it only when a cluster's model is nearer to what they train. The FedSEM of this project
lets all clients train first, which serves it better; this one measures by how much.
"""

from dataclasses import dataclass
from typing import ClassVar

from strategies.clusterings.fedsem import ModelClustering


@dataclass
class ModelsOfSome(ModelClustering):
    """k-means over the models trained in round 1; the other clients join the largest cluster."""

    name: ClassVar[str] = "models-of-some"
    knows_by_training: ClassVar[bool] = False
