"""What each client gains over staying alone, estimated with what the other clients gain.

A client has few validation samples, so its observed gain says little by itself. The clients of a
federation resemble each other, so the gains of the others say something about it: its estimate is
drawn towards their mean, the more so the fewer samples it has. True gains are spread around a
common mean μ like Student's t with three degrees of freedom and scale τ, whose heavy tails leave a
client that is unlike the others where it is. μ has a flat prior and τ a half-Cauchy prior; both
are integrated out over a grid.

Sources: Efron and Morris, "Data analysis using Stein's estimator and its generalizations" (1975);
Gelman et al., "Bayesian Data Analysis" (third edition), chapter 5; Stephens, "False discovery
rates: a new deal" (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

Floats = NDArray[np.float64]

_EDGES = np.linspace(-1, 1, 401)  # of cells; 0 is one of the edges
_CENTRES = (_EDGES[:-1] + _EDGES[1:]) / 2
_MEANS = np.linspace(-0.8, 0.8, 161)
_MEAN_EDGES = np.linspace(-0.805, 0.805, 162)
_SPREADS = np.concatenate([[0.004], np.geomspace(0.008, 0.4, 13)])
_HALF_CAUCHY = 0.1  # the scale of the prior of τ: ten points, or a tenth of the error
_TAILS = 3  # degrees of freedom; with a normal distribution one outlier moves all others
_LARGEST = 0.995  # the largest gain that the cells hold
_FEWEST_DIFFERING = 0.02  # that no sample differs among few does not mean that none ever will
_LARGEST_VARIANCE = 1e6  # says nothing of a gain in [−1, 1]
_LEAST_VARIANCE = 1e-6  # of differences of errors, beside which the mean error is 1
_ENDS = (0.025, 0.975)  # of intervals
_OTHERS_WEIGHT = 10  # samples; the weight of all clients' variance beside a client's


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of the gains of C clients by one strategy.

    A gain is in the unit of `estimate_gains`: a share of samples, or of the error.
    """

    likelihood: Floats  # C × 400; of what was observed, by the cell of a client's gain
    weights: Floats  # 2254; the probability of each pair of μ and τ

    @cached_property
    def cells(self) -> Floats:
        """Return the probability of each cell of each client's gain, shape (C, 400)."""
        priors, _ = _priors()
        evidence = _evidence(self.likelihood)
        return np.asarray(self.likelihood * ((self.weights / evidence) @ priors))

    @cached_property
    def mean(self) -> Floats:
        """Return the expected gain of each client."""
        return np.asarray(self.cells @ _CENTRES)

    @cached_property
    def deviation(self) -> Floats:
        """Return the standard deviation of each client's gain."""
        return np.asarray(np.sqrt(np.maximum(self.cells @ _CENTRES**2 - self.mean**2, 0)))

    @cached_property
    def better(self) -> Floats:
        """Return each client's probability that the strategy is better than staying alone."""
        return np.asarray(np.minimum(self.cells[:, len(_CENTRES) // 2 :].sum(axis=1), 1))

    def within(self, client: int, margin: float) -> float:
        """Return the probability that a client's gain is at most `margin` from 0, by its index."""
        return float(self.cells[client, np.abs(_CENTRES) < margin].sum())

    @cached_property
    def interval(self) -> Floats:
        """Return the ends of each client's interval of 95 %; shape (C, 2)."""
        below = np.hstack([np.zeros((len(self.cells), 1)), self.cells.cumsum(axis=1)])
        return np.array([np.interp(_ENDS, one, _EDGES) for one in below])

    @cached_property
    def common_mean(self) -> tuple[float, float, float]:
        """Return the expected mean over all possible clients, and the ends of its interval."""
        low, high = np.interp(_ENDS, self._mean_below, _MEAN_EDGES)
        return float(self._of_means @ _MEANS), float(low), float(high)

    def is_common_mean_within(self, margin: float, probability: float) -> bool:
        """Return whether μ is at most `margin` from 0, so probably, and τ is not larger."""
        low, high = np.interp((-margin, margin), _MEAN_EDGES, self._mean_below)
        return bool(high - low >= probability and self.spread <= margin)

    @cached_property
    def _of_means(self) -> Floats:
        """Return the probability of each μ."""
        return np.asarray(self.weights.reshape(len(_MEANS), -1).sum(axis=1))

    @property
    def _mean_below(self) -> Floats:
        """Return the probability that μ is below each edge of its cells."""
        return np.append(0, self._of_means.cumsum())

    @cached_property
    def spread(self) -> float:
        """Return the expected τ."""
        return float(self.weights.reshape(len(_MEANS), -1).sum(axis=0) @ _SPREADS)

    def average(self, clients: Sequence[int]) -> tuple[float, float]:
        """Return the mean gain of these clients, by their indices, and its standard deviation."""
        priors, _ = _priors()
        likelihood = self.likelihood[list(clients)]
        evidence = _evidence(likelihood)
        first = likelihood @ (priors * _CENTRES).T / evidence
        variances = likelihood @ (priors * _CENTRES**2).T / evidence - first**2
        means = first.mean(axis=0)
        mean = float(self.weights @ means)
        variance = self.weights @ (means**2 + variances.sum(axis=0) / len(clients) ** 2) - mean**2
        return mean, float(np.sqrt(max(variance, 0)))


def estimate_gains(observed: Floats, variances: Floats) -> Posterior:
    """Return what is known of clients' true gains.

    Parameters
    ----------
    observed : array, shape (C,)
        Each client's gain on its validation samples, in [−1, 1]; larger ones count as ±0.995.
    variances : array, shape (C,)
        Of `observed`, all positive: `counts_variance` and `differences_variance` return them.
    """
    gains = np.clip(observed, -_LARGEST, _LARGEST)[:, None]
    errors = np.sqrt(np.minimum(variances, _LARGEST_VARIANCE))[:, None]
    likelihood = np.diff(norm.cdf((_EDGES - gains) / errors), axis=1)
    likelihood /= likelihood.max(axis=1, keepdims=True)
    _, log_prior = _priors()
    log_weights = np.log(_evidence(likelihood)).sum(axis=0) + log_prior
    weights = np.exp(log_weights - log_weights.max())
    return Posterior(likelihood, weights / weights.sum())


def _evidence(likelihood: Floats) -> Floats:
    """Return how likely each pair of μ and τ makes what each client observed, C × 2254."""
    priors, _ = _priors()
    return np.maximum(likelihood @ priors.T, np.finfo(np.float64).tiny)


@lru_cache
def _priors() -> tuple[Floats, Floats]:
    """Return the probability of each cell for each pair of μ and τ, and the pairs' log density."""
    edges = (_EDGES - _MEANS[:, None, None]) / _SPREADS[:, None]
    priors = np.diff(t.cdf(edges, _TAILS), axis=2).reshape(-1, len(_CENTRES))
    by_spread = np.log(np.gradient(_SPREADS)) - np.log1p((_SPREADS / _HALF_CAUCHY) ** 2)
    return priors, np.tile(by_spread, len(_MEANS))


def bounded(numbers: Floats) -> Floats:
    """Return clients' numbers, at most ten times their median: none decides for all clients."""
    return np.asarray(np.minimum(numbers, 10 * np.median(numbers)))


def counts_variance(wins: Floats, losses: Floats, samples: Floats) -> Floats:
    """Return the variances of clients' gains in accuracy.

    The share of samples on which one model alone is right is that of all clients together: with few
    samples, a client's own is too small as often as not, and its interval too narrow.

    Parameters
    ----------
    wins, losses : array, shape (C,)
        On how many samples only the strategy's model is right, and only the local one.
    samples : array, shape (C,)
        How many validation samples each client has, at least 1.
    """
    weights = bounded(samples)
    differing = max(float(weights @ ((wins + losses) / samples) / weights.sum()), _FEWEST_DIFFERING)
    mean = float(weights @ ((wins - losses) / samples) / weights.sum())
    return np.asarray(max(differing - mean**2, differing / 4) / samples)


def differences_variance(variances: Floats, samples: Floats) -> Floats:
    """Return the variances of clients' gains where a number is predicted.

    Parameters
    ----------
    variances : array, shape (C,)
        Of the differences of errors over a client's samples (n − 1), in the square of the unit in
        which `estimate_gains` has the gains.
    samples : array, shape (C,)
        How many validation samples each client has, at least 2.
    """
    degrees = samples - 1
    known = bounded(degrees)
    pooled = max(float(known @ bounded(variances) / known.sum()), _LEAST_VARIANCE)
    weights = degrees / (degrees + _OTHERS_WEIGHT)
    return np.asarray((weights * variances + (1 - weights) * pooled) / samples)


def samples_to_decide(
    posterior: Posterior, client: int, variance: float, samples: int, probability: float
) -> int | None:
    """Return how many validation samples would decide in four of five cases.

    They decide if the strategy is then better with this probability, where the client's gain, μ and
    τ are as expected now and gains are spread normally. None where ten times as many would not do.

    Parameters
    ----------
    posterior : Posterior
    client : int
        Its index in `posterior`.
    variance : float
        Of its observed gain on its `samples`.
    samples : int
    probability : float
    """
    gain, (mean, _, _) = float(posterior.mean[client]), posterior.common_mean
    counts = np.unique(np.ceil(samples * np.geomspace(1, 10, 500)))[1:]
    variances = variance * samples / counts
    # The observed gain that is exceeded in four of five cases, and what it is drawn to.
    low = gain + norm.ppf(0.2) * np.sqrt(variances)
    spread = posterior.spread**2
    expected = (low * spread + mean * variances) / (spread + variances)
    deviation = np.sqrt(spread * variances / (spread + variances))
    enough = expected >= norm.ppf(probability) * deviation
    return int(counts[enough.argmax()]) if enough.any() else None
