"""Aggregations that survive clients whose models are wrong, by accident or on purpose.

Each stands where `mean` stands, behind any clustering: `strategy=spectral+median`. Clients count
alike, whatever they say of their numbers of samples, since an attacker may say anything.

- D. Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML
  2018: the coordinate-wise median and trimmed mean.
- P. Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
  NeurIPS 2017: Krum and Multi-Krum.
- Z. Sun et al., "Can You Really Backdoor Federated Learning?", 2019: clipping updates to a norm.
- K. Pillutla et al., "Robust Aggregation for Federated Learning", IEEE Transactions on Signal
  Processing, 2022: the geometric median.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import getLogger
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.options import number, option
from fl_core.wire.arrays import as_type
from fl_core.wire.protocol import NDArrays
from strategies.aggregations.aggregation import PerCluster
from strategies.engine.means import mean_model
from strategies.engine.rounds import Update
from strategies.engine.updates import update_vector

Float64 = NDArray[np.float64]
logger = getLogger(__name__)

_STEPS = 100  # of Weiszfeld's algorithm; it usually stops after ten or twenty
_SETTLED = 1e-9  # change of the weights, which sum to 1, at which it stops
_BLOCK = 2**21  # numbers of all clients that are looked at together: 16 MiB
_NO_DISTANCE = 1e-6  # as a share of the median one, which rounding can make of 0


@dataclass(frozen=True)
class Robust(PerCluster):
    """An aggregation that needs a majority of honest clients in each cluster.

    Where a cluster's answers are too few to tell who is odd, their plain mean is taken, and the log
    says so, once for each number of answers.

    Attributes
    ----------
    fewest : int
        Answers from which on it stands against one odd one.
    """

    fewest: ClassVar[int] = 3
    _said: set[int] = field(default_factory=set, init=False, repr=False, compare=False)

    def of_updates(self, updates: Sequence[Update]) -> NDArrays:
        """Return the cluster's next model."""
        count = len(updates)
        if count >= self.fewest:
            return self.of_enough(updates)
        if count > 1 and count not in self._said:
            self._said.add(count)
            logger.warning(
                "%s stands against one odd answer if there are %d of a cluster or more; where there"
                " are %d, their mean is taken",
                self.name,
                self.fewest,
                count,
            )
        return mean_model([u.arrays for u in updates], [1] * count)

    @abstractmethod
    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return the next model from at least `fewest` updates."""


@dataclass(frozen=True)
class Median(Robust):
    """The median of each parameter (Yin et al., Definition 1)."""

    name: ClassVar[str] = "median"

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return each parameter's median; of an even number, the mean of the two in the middle."""
        return _by_array(updates, lambda values: np.median(values, axis=0))


@dataclass(frozen=True)
class _Tolerant(Robust):
    tolerated: float = option(
        0.3,
        number(float, 0, 0.5, high_open=True),
        "share of a cluster's answers, rounded up, that may be malicious; of few answers, as many "
        "as it can stand against",
        key="tolerated-malicious",
    )

    def _malicious(self, count: int, most: int) -> int:
        """Return how many of `count` answers are expected to be malicious, at most `most`."""
        # Rounded, so that 0.07 of 100 is 7, which it is not in binary numbers.
        return min(math.ceil(round(self.tolerated * count, 9)), most)


@dataclass(frozen=True)
class TrimmedMean(_Tolerant):
    """The mean of each parameter without its extremes (Yin et al., Definition 2).

    Attributes
    ----------
    tolerated : float
        β: the share of the values left out at either end, in [0, 0.5). At least one is left over.
    """

    name: ClassVar[str] = "trimmed-mean"

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return each parameter's trimmed mean."""
        from scipy import stats  # noqa: PLC0415 - it takes half a second

        count = len(updates)
        cut = self._malicious(count, (count - 1) // 2)
        # Half a value more, since scipy rounds down: `cut` values exactly.
        share = (cut + 0.5) / count
        return _by_array(updates, lambda values: stats.trim_mean(values, share, axis=0))


@dataclass(frozen=True)
class Krum(_Tolerant):
    """The one model that is nearest to its n − f − 2 nearest ones (Blanchard et al., section 3).

    Attributes
    ----------
    tolerated : float
        f/n, the share of malicious clients, in [0, 0.5). The paper needs n ≥ 2f + 3; where there
        are fewer clients, f is smaller.
    """

    name: ClassVar[str] = "krum"
    fewest: ClassVar[int] = 5

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return the plain mean of the models that are selected."""
        count = len(updates)
        malicious = self._malicious(count, (count - 3) // 2)
        products = inner_products(updates)
        squares = _squared_distances_between(products)
        nearest = np.sort(squares, axis=1)[:, 1 : count - malicious - 1]  # the first is itself
        best = np.argsort(nearest.sum(axis=1), kind="stable")[: self._selected(count, malicious)]
        return mean_model([updates[i].arrays for i in sorted(best)], [1] * len(best))

    def _selected(self, count: int, malicious: int) -> int:
        return 1


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the n − f models that Krum likes best (Blanchard et al., section 5)."""

    name: ClassVar[str] = "multi-krum"

    def _selected(self, count: int, malicious: int) -> int:
        return count - malicious


@dataclass(frozen=True)
class ClippedMean(Robust):
    """The mean of updates that are cut to the length of the cluster's median one.

    Sun et al. leave the length open; the median needs no knowledge of the model and goes down with
    the training. An update that is shorter stays as it is.
    """

    name: ClassVar[str] = "clipped-mean"

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return the mean of each client's received model plus its clipped update."""
        lengths = [float(np.linalg.norm(update_vector(u))) for u in updates]
        longest = float(np.quantile(lengths, 0.5, method="lower"))
        models = [
            _clipped(update, longest / length) if length > longest else update.arrays
            for update, length in zip(updates, lengths, strict=True)
        ]
        return mean_model(models, [1] * len(models))


@dataclass(frozen=True)
class GeometricMedian(Robust):
    """The point with the least sum of distances to the clients' models (Pillutla et al., eq. 2)."""

    name: ClassVar[str] = "geometric-median"

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return the models' mean with the weights that make it their geometric median."""
        weights = geometric_median_weights(inner_products(updates))
        return mean_model([u.arrays for u in updates], weights.tolist())


def geometric_median_weights(products: Float64) -> Float64:
    """Return the weights, shape (n,), with sum 1, of n points in their geometric median.

    Weiszfeld's algorithm, with Vardi and Zhang's step where it meets one of the points ("The
    multivariate L1-median and associated data depth", PNAS 2000, eq. 2.6). A step costs n²
    operations, however long the points are.

    Parameters
    ----------
    products : NDArray[np.float64], shape (n, n)
        The points' inner products, about any origin; one among the points loses no digits.
    """
    count = len(products)
    weights = np.full(count, 1 / count)
    for _ in range(_STEPS):
        distances = _distances_from(weights, products)
        apart = distances > _NO_DISTANCE * np.median(distances)
        if not apart.any():
            break
        pull = np.divide(1, distances, out=np.zeros_like(distances), where=apart)
        step = pull / pull.sum() - weights
        pulled = math.sqrt(max(step @ products @ step, 0)) * pull.sum()
        held = count - int(apart.sum())  # by the points that it has met
        step *= max(0.0, 1 - held / pulled) if pulled else 0.0
        weights += step
        if np.abs(step).max() < _SETTLED:
            break
    # It comes near a point that is the median only slowly.
    sums = np.sqrt(_squared_distances_between(products)).sum(axis=1)
    best = int(sums.argmin())
    if sums[best] <= _distances_from(weights, products).sum():
        weights = np.zeros(count)
        weights[best] = 1
    return weights


def _squared_distances_between(products: Float64) -> Float64:
    """Return the points' squared distances, shape (n, n), from their inner products."""
    lengths = products.diagonal()
    squares: Float64 = np.maximum(lengths[:, None] + lengths - 2 * products, 0)
    return squares


def _distances_from(weights: Float64, products: Float64) -> Float64:
    """Return how far each point is from the points' mean with these weights, shape (n,)."""
    along = products @ weights
    squares = products.diagonal() - 2 * along + weights @ along
    distances: Float64 = np.sqrt(np.maximum(squares, 0))
    return distances


def inner_products(updates: Sequence[Update]) -> Float64:
    """Return the models' inner products, shape (n, n), about the medians of their parameters.

    There honest models are short, whatever the others sent, and differences lose no digits.
    Integer buffers are left out.
    """
    products = np.zeros((len(updates), len(updates)))
    for name, _, values in _blocks(updates):
        if np.issubdtype(updates[0].arrays[name].dtype, np.floating):
            centred = values - np.median(values, axis=0)
            products += centred @ centred.T
    return products


def _by_array(updates: Sequence[Update], combined: Callable[[Float64], Float64]) -> NDArrays:
    """Apply `combined` to each parameter; it is given them as the columns of blocks."""
    arrays = updates[0].arrays
    found = {name: np.empty(array.size) for name, array in arrays.items()}
    for name, columns, values in _blocks(updates):
        found[name][columns] = combined(values)
    return {
        name: as_type(array.dtype, found[name]).reshape(array.shape)
        for name, array in arrays.items()
    }


def _blocks(updates: Sequence[Update]) -> Iterator[tuple[str, slice, Float64]]:
    """Yield the name of an array, which of its numbers these are, and everybody's, a row each.

    Block by block, since all numbers of thousands of models at once, as float64, and what is
    sorted beside them, would need several times the memory of the models.
    """
    width = max(1, _BLOCK // len(updates))
    for name, array in updates[0].arrays.items():
        for start in range(0, array.size, width):
            columns = slice(start, start + width)
            rows = [u.arrays[name].reshape(-1)[columns] for u in updates]
            yield name, columns, np.stack(rows).astype(np.float64)


def _clipped(update: Update, share: float) -> NDArrays:
    """Return the received model plus a share of the client's update; integers as sent."""
    clipped = dict(update.arrays)
    for name, array in update.arrays.items():
        if np.issubdtype(array.dtype, np.floating):
            trained, start = (a.astype(np.float64) for a in (array, update.received[name]))
            clipped[name] = as_type(array.dtype, start + share * (trained - start))
    return clipped
