"""FedAMP: each client has a model, made from similar clients' models.

Y. Huang, L. Chu, Z. Zhou, L. Wang, J. Liu, J. Pei, Y. Zhang, "Personalized Cross-Silo Federated
Learning on Non-IID Data", AAAI 2021, https://arxiv.org/abs/2007.03797. The authors' code is not
public; PFLlib (github.com/TsingZ0/PFLlib) has the variant by distances. The client's half is
fl_core/objectives/fedamp.py.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from fl_core.messages.protocol import NDArrays
from fl_core.options import POSITIVE, number, option
from strategies.aggregations.aggregation import Aggregation
from strategies.rounds.means import mean_model
from strategies.rounds.round_state import Round
from strategies.rounds.updates import Float64, cosine_similarities, inner_products, model_vector


@dataclass(frozen=True)
class AttentiveMean(Aggregation):
    """HeurFedAMP, the paper's FedAMP for neural networks: u_i = ξ_ii w_i + Σ_j≠i ξ_ij w_j.

    ξ_ij is (1 − ξ_ii) times the softmax over j ≠ i of σ cos(w_i, w_j); ξ_ii is set. A client that
    did not train in a round keeps its model, and is part of no other one. In a clustering, clients
    only attend to their cluster's.
    """

    name: ClassVar[str] = "attentive"
    per_client: ClassVar[bool] = True
    sharpness: float = option(
        25.0, POSITIVE, "σ, how much more a client attends to similar ones", key="fedamp-sharpness"
    )
    own_share: float = option(
        0.5, number(float, 0, 1), "ξ_ii, the share of a client in its model", key="fedamp-own-share"
    )

    def __call__(self, state: Round) -> list[NDArrays]:
        """Return each client's model, in the order of `state.clusters.of_client`."""
        models = dict(zip(state.clusters.of_client, state.models, strict=True))
        updates = sorted(state.updates, key=lambda u: u.client)
        for cluster in sorted({u.cluster for u in updates}):
            members = [u for u in updates if u.cluster == cluster]
            cosines = cosine_similarities(inner_products([model_vector(u.arrays) for u in members]))
            trained = [u.arrays for u in members]
            for update, shares in zip(members, self.attention(cosines), strict=True):
                models[update.client] = mean_model(trained, shares.tolist())
        return list(models.values())

    def attention(self, cosines: Float64) -> Float64:
        """Return ξ, shape (n, n), of n models' cosines; each row has the sum 1."""
        if len(cosines) == 1:
            return np.ones((1, 1))
        others = np.where(np.eye(len(cosines)), -np.inf, self.sharpness * cosines)
        shares: Float64 = (1 - self.own_share) * softmax(others, axis=1)
        np.fill_diagonal(shares, self.own_share)
        return shares
