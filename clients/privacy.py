"""Differential privacy of what a client shares: clipping and Gaussian noise (docs/privacy.md).

Two sets of samples are neighbours if one sample counts in the one and is left out of the other; the
number of samples is no secret.
"""

import math
import secrets
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri

from clients.settings import PrivacySettings

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

PROJECTED = 32
"""To how many dimensions features are projected before noise: docs/privacy.md has the others."""

_PROJECTION_SEED = 0x50AC3  # public, and the same for all, or nothing could be compared


@dataclass(frozen=True)
class Promise(PrivacySettings):
    """A client's privacy promises, and for how long they hold."""

    # Number of trainings for which `training_epsilon` holds: one strategy, one seed
    rounds: int = 1
    most_trainings: int = 1  # how often the client trains at most in a whole run


class Randomness(Protocol):
    """The source of noise: a `numpy.random.Generator`, or `SystemRandomness`."""

    def random(self, size: int) -> Float64:
        """Return `size` numbers, uniform in [0, 1)."""

    def standard_normal(self, size: tuple[int, ...]) -> Float64:
        """Return an array of this shape, each number normal with deviation 1."""


class SystemRandomness:
    """Noise from the operating system: a server, which knows the seed, cannot subtract it."""

    def random(self, size: int) -> Float64:
        """Return `size` numbers, uniform in (0, 1): the middles of 2⁵² equal parts."""
        whole = np.frombuffer(secrets.token_bytes(8 * size), np.uint64) >> np.uint64(12)
        return (whole.astype(np.float64) + 0.5) * 2.0**-52

    def standard_normal(self, size: tuple[int, ...]) -> Float64:
        """Return an array of this shape, each number normal with deviation 1."""
        found: Float64 = ndtri(self.random(math.prod(size))).reshape(size)
        return found


def noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least σ for which noise of deviation σ·Δ is (ε, δ)-differentially private.

    Δ is the sensitivity in the Euclidean norm. The analytic Gaussian mechanism: B. Balle and Y.-X.
    Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, theorem 8.
    """

    def excess(log_sigma: float) -> float:
        half, shift = math.exp(-log_sigma) / 2, epsilon * math.exp(log_sigma)
        return float(ndtr(half - shift) - math.exp(epsilon + log_ndtr(-half - shift)) - delta)

    # A third of a second that the server's configuration need not wait for.
    from scipy.optimize import brentq  # noqa: PLC0415

    root: float = brentq(excess, -20.0, 40.0, xtol=1e-12)
    # On the safe side of the tolerance.
    return math.exp(root + 1e-9)


def bounded_features(features: Float32) -> Float64:
    """Return features projected to at most `PROJECTED` dimensions, each row of length 1.

    From float32 (n, d) to float64 (n, min(d, PROJECTED)), by a projection that is the same for all:
    fewer entries, less noise. Scaling takes the place of clipping: no sample counts less than the
    bound. Zeros stay zeros. A ValueError says that there is no row, or an entry is not finite.
    """
    if not len(features) or not np.isfinite(features).all():
        raise ValueError(
            "the client has no samples, or their features are not all finite: check its samples."
        )
    rows = features.astype(np.float64)
    if rows.shape[1] > PROJECTED:
        drawn = np.random.default_rng(_PROJECTION_SEED).standard_normal((rows.shape[1], PROJECTED))
        rows = rows @ np.linalg.qr(drawn)[0]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Float64 = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return scaled


def private_gram(
    features: Float64, epsilon: float, delta: float, randomness: Randomness
) -> Float32:
    """Return the Gram matrix of bounded features with noise: (ε, δ)-differentially private.

    So is all that is computed from it (C. Dwork et al., "Analyze Gauss", STOC 2014). One row of
    length 1 changes G = ΦᵀΦ/n by 1/n in the Frobenius norm; each entry gets independent noise of
    deviation σ/n. Then the matrix is made symmetric, which halves the variance off the diagonal.

    `features` are from `bounded_features`, (n, d); the result, (d, d), need not be positive.
    """
    gram = features.T @ features / len(features)
    deviation = noise_multiplier(epsilon, delta) / len(features)
    noisy = gram + deviation * randomness.standard_normal(gram.shape)
    return np.asarray((noisy + noisy.T) / 2, np.float32)
