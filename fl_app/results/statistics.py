"""Statistics of paired scores: gains of clients, differences between strategies."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit
from scipy.stats import trim_mean, wilcoxon

Scores = Mapping[int, NDArray[np.float64]]
"""By seed, the score of each client, NaN if it was not tested."""

_TAIL = 0.975  # of a 95 % interval
_DIGITS = 12  # of a score; what is beyond is a rounding
_ROUNDING = 10**-_DIGITS
_FEWEST_TESTS = 3  # of a slope
_MARGIN = 0.01  # a point of accuracy, or one per cent of an error


def middle_mean(gains: Sequence[float]) -> float:
    """Return the mean of the middle half: of clients' gains, whatever a quarter of them says."""
    return float(trim_mean(gains, 0.25))


def known_mean(values: Iterable[float]) -> float:
    """Return the mean of the finite values; NaN without any."""
    known = [value for value in values if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan


def half_interval(values: NDArray[np.float64]) -> float:
    """Return half the width of the 95 % interval of a mean, by Student's t; NaN of one value."""
    count = len(values)
    if count < 2:
        return math.nan
    return float(stdtrit(count - 1, _TAIL) * values.std(ddof=1) / math.sqrt(count))


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, with its 95 % interval; NaN ends: of fewer than two pairs."""

    mean: float
    half: float  # of the interval's width
    pairs: int
    over: Literal["seeds", "clients"]

    @property
    def is_shown(self) -> bool:
        """Return whether the interval excludes zero."""
        return abs(self.mean) > self.half

    @property
    def ends(self) -> tuple[float, float]:
        """Return the lower and the upper end of the interval."""
        return self.mean - self.half, self.mean + self.half


def difference(first: Scores, second: Scores) -> Difference:
    """Return the difference of two strategies: the first one's scores minus the second one's.

    Pairs are the means on each seed that both ran on, or of one such seed, the clients both tested.
    """
    seeds = {
        seed: gains
        for seed in sorted(first.keys() & second.keys())
        if (gains := gains_of_clients(first[seed], second[seed])).size
    }
    if len(seeds) > 1:
        values = np.array([gains.mean() for gains in seeds.values()])
        return Difference(float(values.mean()), half_interval(values), len(values), "seeds")
    values = next(iter(seeds.values()), np.zeros(0))
    mean = float(values.mean()) if values.size else math.nan
    return Difference(mean, half_interval(values), len(values), "clients")


def gains_of_clients(
    scores: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the difference of each client that both tested; a rounding is no difference."""
    count = min(len(scores), len(others))  # devices join later runs, too
    scores, others = scores[:count], others[:count]
    gains = np.where(np.isclose(scores, others, _ROUNDING, 0), 0.0, scores - others)
    return gains[np.isfinite(gains)]


def shared_scores(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    """Return the scores with which strategies are compared: those that all of them have.

    These are of the seeds on which all ran and of the clients that all tested there; the others are
    NaN. A strategy that tested no client is left out. Where nothing is shared, all scores count.
    """
    tested = {
        name: known
        for name, of_seed in scores.items()
        if (known := {seed: one for seed, one in of_seed.items() if np.isfinite(one).any()})
    }
    shared: dict[str, dict[int, NDArray[np.float64]]] = {name: {} for name in tested}
    for seed in sorted(set.intersection(*map(set, tested.values()))) if tested else ():
        count = min(len(of_seed[seed]) for of_seed in tested.values())  # devices join later runs
        each = [of_seed[seed][:count] for of_seed in tested.values()]
        has_all = np.isfinite(np.array(each)).all(axis=0)
        if has_all.any():
            for name, of_clients in zip(tested, each, strict=True):
                shared[name][seed] = np.full(len(tested[name][seed]), math.nan)
                shared[name][seed][:count][has_all] = of_clients[has_all]
    return {**(shared if any(shared.values()) else tested)}


def mean_score(scores: Scores) -> float:
    """Return the mean over seeds of the mean over clients; there must be one in each seed."""
    return float(np.mean([np.nanmean(one) for one in scores.values()]))


def best_names(scores: Mapping[str, Scores], *, lower_is_better: bool = False) -> list[str]:
    """Return the strategy with the best mean, and those that no interval distinguishes from it.

    Empty: there is nothing to compare, or no other one differs.
    """
    sign = -1 if lower_is_better else 1
    compared = shared_scores(scores)
    means = {name: sign * mean_score(of_seed) for name, of_seed in compared.items()}
    best = max(means, key=lambda name: means[name], default="")
    gains = {name: difference(compared[best], of_seed) for name, of_seed in compared.items()}
    names = [name for name, gain in gains.items() if not (gain.is_shown and sign * gain.mean > 0)]
    return names if len(names) < len(means) else []


def is_still_improving(
    tests: Mapping[int, Mapping[int, float]],
    *,
    is_share: bool = True,
    lower_is_better: bool = False,
) -> bool:
    """Return whether scores still improve at the end, from each client's score by round.

    Each client has a slope, by least squares, over the last third of the tests, at least three. The
    95 % interval of the slopes' mean must exclude zero, and as many rounds again must bring a point
    of accuracy, or one per cent of the error, at this slope.
    """
    rounds = sorted(tests)[-max(_FEWEST_TESTS, math.ceil(len(tests) / 3)) :]
    by_client: dict[int, list[tuple[int, float]]] = {}
    for number in rounds:
        for client, score in tests[number].items():
            if math.isfinite(score):
                by_client.setdefault(client, []).append((number, score))
    known = [np.array(pairs).T for _, pairs in sorted(by_client.items()) if len(pairs) > 1]
    if len(rounds) < _FEWEST_TESTS or not known:
        return False
    slopes = np.array([np.polyfit(places, scores, 1)[0] for places, scores in known])
    mean = (-1 if lower_is_better else 1) * float(slopes.mean())
    level = 1.0 if is_share else abs(float(np.concatenate(known, axis=1)[1].mean()))
    return mean > half_interval(slopes) and mean * rounds[-1] >= _MARGIN * level


def signed_rank_p(scores: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return Wilcoxon's signed-rank p-value over clients: 1 if none differs, NaN without any."""
    gains = gains_of_clients(scores, others)
    if not gains.size:
        return math.nan
    # Equal gains have equal ranks, whatever their roundings.
    scale = float(np.nanmedian(np.abs(np.concatenate([scores, others])))) or 1.0
    gains = np.round(gains / scale, _DIGITS)
    return float(wilcoxon(gains).pvalue) if gains.any() else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm, 1979)."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.maximum.accumulate(factors * np.array(p_values)[order]).clip(max=1)
    return [float(one) for one in adjusted]
