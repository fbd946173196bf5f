"""Soft clusters: each client trains the models of all clusters, and has a share of each.

The local objective says how: FedEM (fl_core/objectives/fedem.py), FedRC (fedrc.py).
"""

from dataclasses import dataclass, field
from typing import ClassVar

from strategies.clusterings.clustering import Clustering
from strategies.clusterings.ifca import DrawModel
from strategies.rounds.conversation import Conversation
from strategies.rounds.round_state import Clusters, Round


@dataclass
class SoftClustering(Clustering):
    """M models that start at random; results count a client to the one of its largest share."""

    name: ClassVar[str] = "soft"
    is_soft: ClassVar[bool] = True
    retains_models: ClassVar[bool] = True
    num_clusters: int  # M
    draw_model: DrawModel = field(compare=False)  # as of `LossClustering`

    def find(self, conversation: Conversation) -> Clusters:
        """Draw M models."""
        models = [self.draw_model(number) for number in range(self.num_clusters)]
        clients = dict.fromkeys(conversation.nodes, 0)
        return Clusters(clients, self.num_clusters, models=models)

    def after_training(self, state: Round) -> Clusters:
        """Count each client that trained to its largest share; of equals, the first."""
        found: dict[int, int] = {}
        for update in sorted(state.updates, key=lambda u: (-u.share, u.cluster)):
            found.setdefault(update.client, update.cluster)
        return Clusters({**state.clusters.of_client, **found}, self.num_clusters)
