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

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

Floats = NDArray[np.float64]

_EDGES = np.linspace(-1, 1, 401)  # of cells; 0 is one of the edges
_CENTRES = (_EDGES[:-1] + _EDGES[1:]) / 2
_MEANS = np.linspace(-0.8, 0.8, 161)
_SPREADS = np.concatenate([[0.004], np.geomspace(0.008, 0.4, 13)])
_HALF_CAUCHY = 0.1  # the scale of the prior of τ: ten points, or a tenth of the error
_TAILS = 3  # degrees of freedom; with a normal distribution one outlier moves all others
_LARGEST = 0.995  # the largest gain that the cells hold
_FEWEST_DIFFERING = 0.02  # that no sample differs among few does not mean that none ever will
_LARGEST_VARIANCE = 1e6  # says nothing of a gain in [−1, 1]
_LEAST_VARIANCE = 1e-6  # of differences of errors, beside which the mean error is 1
_OTHERS_WEIGHT = 10  # samples; the weight of all clients' variance beside a client's


@dataclass(frozen=True)
class Posterior:
    """What is known of the gains of C clients by one strategy.

    A gain is in the unit of `estimate_gains`: a share of samples, or of the error.
    """

    cells: Floats  # C × 400; the probability of each cell of a client's gain
    common: Floats  # 161; the probability of each mean over all possible clients
    spread: float  # expected τ

    @property
    def mean(self) -> Floats:
        """Return the expected gain of each client."""
        return np.asarray(self.cells @ _CENTRES)

    def deviation(self, client: int) -> float:
        """Return the standard deviation of a client's gain, by its index."""
        cells = self.cells[client]
        return float(np.sqrt(max(cells @ _CENTRES**2 - (cells @ _CENTRES) ** 2, 0.0)))

    @property
    def better(self) -> Floats:
        """Return each client's probability that the strategy is better than staying alone."""
        return np.asarray(self.cells[:, len(_CENTRES) // 2 :].sum(axis=1))

    def within(self, client: int, margin: float) -> float:
        """Return the probability that a client's gain is at most `margin` from 0, by its index."""
        return float(self.cells[client, np.abs(_CENTRES) < margin].sum())

    def interval(self, share: float = 0.95) -> Floats:
        """Return the ends of each client's interval that has this probability; shape (C, 2)."""
        tails = [(1 - share) / 2, (1 + share) / 2]
        below = np.hstack([np.zeros((len(self.cells), 1)), self.cells.cumsum(axis=1)])
        return np.array([np.interp(tails, one, _EDGES) for one in below])

    def common_mean(self, share: float = 0.95) -> tuple[float, float, float]:
        """Return the expected mean over all possible clients, and the ends of its interval."""
        low, high = np.interp([(1 - share) / 2, (1 + share) / 2], self.common.cumsum(), _MEANS)
        return float(self.common @ _MEANS), float(low), float(high)


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
    priors, log_prior = _priors()
    evidence = np.maximum(likelihood @ priors.T, np.finfo(np.float64).tiny)
    log_weights = np.log(evidence).sum(axis=0) + log_prior
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    cells = likelihood * ((weights / evidence) @ priors)
    by_mean = weights.reshape(len(_MEANS), len(_SPREADS))
    return Posterior(cells, by_mean.sum(axis=1), float(by_mean.sum(axis=0) @ _SPREADS))


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
    gain, (mean, _, _) = float(posterior.cells[client] @ _CENTRES), posterior.common_mean()
    counts = np.unique(np.ceil(samples * np.geomspace(1, 10, 500)))[1:]
    variances = variance * samples / counts
    # The observed gain that is exceeded in four of five cases, and what it is drawn to.
    low = gain + norm.ppf(0.2) * np.sqrt(variances)
    spread = posterior.spread**2
    expected = (low * spread + mean * variances) / (spread + variances)
    deviation = np.sqrt(spread * variances / (spread + variances))
    enough = expected >= norm.ppf(probability) * deviation
    return int(counts[enough.argmax()]) if enough.any() else None
