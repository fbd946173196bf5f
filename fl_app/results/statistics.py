"""Whether one model is better than another on the same samples, and by how much.

Of classes, only samples count on which one model is right and the other wrong: McNemar's test, a
sign test on those. Of numbers, Student's t on how much farther off the other model is, which tells
no more than that all differences have one sign can tell: two models may differ by a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import binomtest, norm, t, trim_mean

_EDGE = 1e-9
_POWER = 0.8
_MOST_SAMPLES = 1_000_000  # more is no advice


@dataclass(frozen=True)
class Counts:
    """On how many samples the first model alone is right, and the second alone.

    The gain is in accuracy, in [−1, 1].
    """

    wins: int
    losses: int
    num: int

    @property
    def gain(self) -> float:
        """Return how much higher the first model's accuracy is."""
        return (self.wins - self.losses) / self.num

    @lru_cache(maxsize=65_536)  # noqa: B019 - three numbers, and many clients have the same
    def p_value(self) -> float:
        """Return the p-value of McNemar's exact test; 1 if the models are right about the same."""
        differing = self.wins + self.losses
        return float(binomtest(self.wins, differing).pvalue) if differing else 1.0

    @lru_cache(maxsize=65_536)  # noqa: B019 - three numbers, and many clients have the same
    def interval(self, alpha: float) -> tuple[float, float]:
        """Return Tango's score interval of the true gain (Statistics in Medicine 17, 1998).

        It covers the true gain with a probability close to 1 − α, from ten samples on, whatever the
        gain (docs/verdicts.md). It has 0 in it if McNemar's exact test does not exclude that.
        """
        bound = float(norm.isf(alpha / 2))
        ends = [self._where_score_is(bound), self._where_score_is(-bound)]
        if self.p_value() > alpha:
            ends = [min(ends[0], 0.0), max(ends[1], 0.0)]
        return ends[0], ends[1]

    def _where_score_is(self, bound: float) -> float:
        """Return the gain at which the score statistic, which falls as gains grow, is `bound`."""
        ends = (-1 + _EDGE, 1 - _EDGE)
        if self._score(ends[0]) <= bound:
            return -1.0
        if self._score(ends[1]) >= bound:
            return 1.0
        return float(brentq(lambda gain: self._score(gain) - bound, *ends))

    def _score(self, gain: float) -> float:
        """Return how many standard errors the gain that was seen is above another one."""
        wins, losses, num = self.wins, self.losses, self.num
        b = -wins - losses + (2 * num - wins + losses) * gain
        c = -losses * gain * (1 - gain)
        root = math.sqrt(max(b * b - 8 * num * c, 0))
        alone = (root - b) / (4 * num)  # the second alone is right: likeliest share
        variance = num * (2 * alone + gain * (1 - gain))
        return (wins - losses - num * gain) / math.sqrt(max(variance, _EDGE))

    def needed(self, alpha: float) -> int | None:
        """Return how many samples tell in four of five cases (Connor 1987), if all is as seen."""
        differing, gain = (self.wins + self.losses) / self.num, abs(self.gain)
        if not gain:
            return None
        sure, power = norm.isf(alpha / 2), norm.ppf(_POWER)
        root = sure * math.sqrt(differing) + power * math.sqrt(max(differing - gain**2, 0))
        return _advice((root / gain) ** 2, alpha)


@dataclass(frozen=True)
class Differences:
    """How much farther off a number the second model is: mean and variance (n − 1) over samples.

    The gain is in the unit of the number.
    """

    gain: float
    variance: float
    num: int

    def p_value(self) -> float:
        """Return the p-value of a paired t-test, at least that of n differences of one sign."""
        if self.num < 2 or not self.gain:
            return 1.0
        by_size = 2 * t.sf(abs(self.gain) / self._error, self.num - 1) if self._error else 0.0
        return float(max(by_size, 2.0 ** (1 - self.num)))

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return Student's interval of the mean difference, with 0 in it if p is above α."""
        if self.num < 2:
            return -math.inf, math.inf
        half = float(t.isf(alpha / 2, self.num - 1)) * self._error
        low, high = self.gain - half, self.gain + half
        if self.p_value() > alpha:
            low, high = min(low, 0.0), max(high, 0.0)
        return low, high

    def needed(self, alpha: float) -> int | None:
        """Return how many samples tell in four of five cases, if all is as seen."""
        if not self.gain:
            return None
        both = float(norm.isf(alpha / 2) + norm.ppf(_POWER))
        root = both * math.sqrt(self.variance) / self.gain
        return _advice(root * root, alpha)  # not root**2, which fails where it is too large

    @property
    def _error(self) -> float:
        return math.sqrt(self.variance / self.num)


Pair = Counts | Differences
"""One model against another, on `num` samples; `gain` is positive if the first is better."""


def holm_adjusted(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Return p-values of which those up to α are told so that any of them errs at α at most.

    Holm's procedure (Scandinavian Journal of Statistics 6, 1979): the smallest of m is multiplied
    by m, the next one by m − 1, and so on, and none is below one before it.

    Examples
    --------
    >>> holm_adjusted([0.5, 0.001, 0.02, 0.04]).tolist()
    [0.5, 0.004, 0.06, 0.08]
    """
    found = np.asarray(p_values, np.float64)
    order = np.argsort(found)
    adjusted = np.empty(len(found))
    grown = found[order] * np.arange(len(found), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(grown), 1)
    return adjusted


def _advice(samples: float, alpha: float) -> int | None:
    """Return how many samples to advise; fewer tell nothing, whatever the models do."""
    fewest = 1 - math.floor(math.log2(alpha))
    return max(math.ceil(samples), fewest) if samples <= _MOST_SAMPLES else None


def middle_mean(gains: Sequence[float]) -> float:
    """Return the mean of the middle half: of clients' gains, whatever a quarter of them says.

    Examples
    --------
    >>> middle_mean([0.1, 0.2, 0.3, 1e30])
    0.25
    """
    return float(trim_mean(gains, 0.25))
