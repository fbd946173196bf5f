"""Aggregations that tolerate wrong models, sent by accident or on purpose.

Each replaces `mean`, with any clustering: `strategy=spectral+median`. Clients count equally,
since an attacker may send any number of samples.

- D. Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML
  2018: the coordinate-wise median and trimmed mean.
- P. Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
  NeurIPS 2017: Krum and Multi-Krum.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fl_core.messages.protocol import NDArrays, as_type
from fl_core.options import number, option
from strategies.aggregations.aggregation import PerCluster
from strategies.rounds.means import mean_model
from strategies.rounds.round_state import Update
from strategies.rounds.updates import RUNNING_STATISTICS, inner_products, model_vector

Float64 = NDArray[np.float64]
logger = getLogger(__name__)

_BLOCK = 2**21  # numbers of all clients that are looked at together: 16 MiB


@dataclass(frozen=True)
class Robust(PerCluster):
    """An aggregation that needs a majority of honest clients in each cluster.

    With fewer than `fewest` answers in a cluster their plain mean is taken, and the log says so
    once.
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
                "%s tolerates one wrong answer if a cluster has at least %d answers; with %d "
                "answers it takes the mean",
                *(self.name, self.fewest, count),
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
        return _by_array(updates, partial(np.median, axis=0))


@dataclass(frozen=True)
class _Tolerant(Robust):
    tolerated: float = option(
        0.3,
        number(float, 0, 0.5, high_open=True),
        "share of a cluster's answers, rounded up, that may be malicious; of few answers, as many "
        "as it tolerates",
        key="tolerated-malicious",
    )

    def _malicious(self, count: int, most: int) -> int:
        """Return how many of `count` answers are expected to be malicious, at most `most`."""
        # Rounded, so that 0.07 of 100 is 7, which it is not in binary numbers.
        return min(math.ceil(round(self.tolerated * count, 9)), most)


@dataclass(frozen=True)
class TrimmedMean(_Tolerant):
    """The mean of each parameter without its extremes (Yin et al., Definition 2).

    `tolerated` is β, the share of the values left out at either end; at least one is left over.
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

    `tolerated` is f/n, the share of malicious clients. The paper needs n ≥ 2f + 3; where there are
    fewer clients, f is smaller. Of running statistics, the median of all is taken.
    """

    name: ClassVar[str] = "krum"
    fewest: ClassVar[int] = 5
    averages_best: ClassVar[bool] = False

    def of_enough(self, updates: Sequence[Update]) -> NDArrays:
        """Return the plain mean of the models that are selected."""
        count = len(updates)
        malicious = self._malicious(count, (count - 3) // 2)
        # From the model that the first update received, so that differences lose no digits.
        origin = updates[0].received
        products = inner_products([model_vector(update.arrays, origin) for update in updates])
        lengths = products.diagonal()
        squares = np.maximum(lengths[:, None] + lengths - 2 * products, 0)
        nearest = np.sort(squares, axis=1)[:, 1 : count - malicious - 1]  # the first is itself
        selected = count - malicious if self.averages_best else 1
        best = np.argsort(nearest.sum(axis=1), kind="stable")[:selected]
        mean = mean_model([updates[i].arrays for i in sorted(best)], [1] * len(best))
        return {**mean, **_by_array(updates, partial(np.median, axis=0), RUNNING_STATISTICS)}


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The mean of the n − f best models by Krum's measure (Blanchard et al., section 5)."""

    name: ClassVar[str] = "multi-krum"
    averages_best: ClassVar[bool] = True


def _by_array(
    updates: Sequence[Update], combined: Callable[[Float64], Float64], ends: tuple[str, ...] = ("",)
) -> NDArrays:
    """Apply `combined` to the parameters of names with these ends, in blocks that fit memory."""
    width = max(1, _BLOCK // len(updates))
    found = {}
    for name, array in updates[0].arrays.items():
        if not name.endswith(ends):
            continue
        combination = np.empty(array.size)
        for start in range(0, array.size, width):
            columns = slice(start, start + width)
            rows = [u.arrays[name].reshape(-1)[columns] for u in updates]
            combination[columns] = combined(np.stack(rows).astype(np.float64))
        found[name] = as_type(array.dtype, combination).reshape(array.shape)
    return found
