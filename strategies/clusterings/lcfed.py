"""LCFed: each client joins the cluster whose model is nearest in few dimensions.

Y. Zhang, H. Chen, Z. Lin, Z. Chen, J. Zhao, "LCFed: An Efficient Clustered Federated Learning
Framework for Heterogeneous Data", ICASSP 2025, https://arxiv.org/abs/2501.01850. The authors
published no code. The client's half is fl_core/objectives/lcfed.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fl_core.messages.protocol import NDArrays
from fl_core.options import COUNT, option
from strategies.clusterings.fedsem import ModelClustering
from strategies.rounds.updates import Float64, Vector, inner_products, model_vector

_LEAST_SHARE = 1e-12  # of the largest variance: what is less is rounding


@dataclass
class LowRankClustering(ModelClustering):
    """A participant joins the cluster with the highest cosine of low-rank models.

    A low-rank model is what a model is along the principal directions of this round's models, the
    participants' and the clusters'. The first clusters are those of `ModelClustering`; as there, no
    client joins an empty one; the package cfla lets clients join any.
    """

    name: ClassVar[str] = "low-rank"
    rank: int = option(50, COUNT, "how many principal directions at most", key="lcfed-rank")

    def vector(self, model: NDArrays, initial: NDArrays) -> Vector:
        """Return a model itself: cosines depend on the origin."""
        return model_vector(model)

    def nearness(self, trained: Sequence[Vector], centres: Sequence[Vector]) -> Float64:
        """Return the cosines of n low-rank models with those of K clusters, shape (n, K)."""
        low = low_rank(inner_products([*trained, *centres]), self.rank)
        norms = np.linalg.norm(low, axis=0)
        unit = low / np.where(norms > 0, norms, 1)
        cosines: Float64 = unit[:, : len(trained)].T @ unit[:, len(trained) :]
        return cosines


def low_rank(products: Float64, rank: int) -> Float64:
    """Return n vectors along their principal directions, at most `rank`, shape (d, n).

    `products` are the inner products of the vectors. Directions are those of the vectors less their
    mean; the vectors themselves are projected. The sign of a row is arbitrary.

    Examples
    --------
    >>> vectors = np.array([[1.0, 2], [3, 2]])  # they differ along the first axis alone
    >>> np.abs(low_rank(vectors @ vectors.T, 2)).round(6).tolist()
    [[1.0, 3.0]]
    """
    less_mean = products - products.mean(axis=0)
    squares, directions = np.linalg.eigh(less_mean - less_mean.mean(axis=1, keepdims=True))
    chosen = np.flatnonzero(squares > _LEAST_SHARE * squares[-1])[-rank:]
    low: Float64 = directions[:, chosen].T @ less_mean / np.sqrt(squares[chosen])[:, None]
    return low
