"""A verdict for each client: join, stay alone, no difference that matters, or cannot tell yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fl_app.results.gains import (
    Floats,
    Posterior,
    bounded,
    counts_variance,
    differences_variance,
    estimate_gains,
    samples_to_decide,
)
from fl_app.results.run_result import RunResult
from fl_app.results.verdict import (
    JOIN,
    MARGIN,
    SAME,
    STAY,
    SURE,
    UNSURE,
    Gain,
    SeedVerdicts,
    Verdict,
    Word,
)
from strategies.catalogue import ALONE

_NO_DIFFERENCE = 0.9  # the probability that a gain is within `MARGIN`
_WORSE = 0.01  # the largest probability of a gain at which a client stays alone

Tables = Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]
"""By strategy, `RoundReport.validated` of its last round, with strategies in place of labels."""


@dataclass(frozen=True)
class _Comparison:
    """A strategy's gains over staying alone; arrays have a row for each client in `index`."""

    index: dict[int, int]
    posterior: Posterior
    samples: Floats
    observed: Floats
    variances: Floats

    def gain(self, client: int, scale: float) -> Gain:
        """Return what is known of a client's gain, in the unit of `scale`."""
        at, posterior = self.index[client], self.posterior
        numbers = (posterior.mean[at], *posterior.interval[at], self.observed[at])
        mean, low, high, observed = (scale * float(number) for number in numbers)
        probability = float(posterior.better[at])
        return Gain(mean=mean, low=low, high=high, observed=observed, probability=probability)

    def needed(self, client: int) -> int | None:
        """Return how many validation samples would decide."""
        at = self.index[client]
        samples = int(self.samples[at])
        return samples_to_decide(self.posterior, at, float(self.variances[at]), samples, SURE)


def verdicts_of(runs: Sequence[RunResult], *folds: Sequence[RunResult]) -> SeedVerdicts | None:
    """Return the verdict of each client that has compared its models, of strategies on one seed.

    None without `ALONE`, or if no client compared anything.

    Parameters
    ----------
    runs : sequence of RunResult
        In the order in which they ran: clients compare each model with those before it.
    *folds : sequence of RunResult
        The same strategies where other samples validated, which are counted, too.
    """
    of_client = {run.strategy: run.of_client for run in runs}
    if ALONE not in of_client:
        return None
    tables = [_tables_of(fold) for fold in (runs, *folds)]
    alone = [said[""] for fold in tables for said in fold[ALONE].values() if "" in said]
    is_number = runs[0].metrics.main.lower_is_better
    scale = _mean_error(alone) if is_number and alone else 1.0
    compared = {
        name: one
        for name in tables[0]
        if name != ALONE and (one := _compare(tables, name, scale, is_number)) is not None
    }
    if not compared:
        return None
    means = {name: one.posterior.common_mean for name, one in compared.items()}
    best_first = sorted(compared, key=lambda name: -means[name][0])
    best = compared[best_first[0]].posterior
    no_difference = best.is_common_mean_within(MARGIN, _NO_DIFFERENCE)
    verdicts = []
    for client in sorted({client for one in compared.values() for client in one.index}):
        found = {name: compared[name] for name in best_first if client in compared[name].index}
        name = _choose(client, found)
        verdict = _decide(client, name, found, is_complete=len(found) == len(runs) - 1)
        gains = {key: one.gain(client, scale) for key, one in found.items()}
        is_cheapest = verdict in (STAY, SAME) or (no_difference and verdict == UNSURE)
        strategy = ALONE if is_cheapest or gains[name].mean <= 0 else name
        verdicts.append(
            Verdict(
                client=client,
                verdict=verdict,
                strategy=strategy,
                cluster=of_client[strategy].get(client, -1),
                validation_samples=int(found[name].samples[found[name].index[client]]),
                compared=name,
                gains=gains,
                samples_needed=found[name].needed(client) if verdict == UNSURE else None,
            )
        )
    return SeedVerdicts(
        seed=runs[0].seed,
        clients=verdicts,
        no_difference=no_difference or None,
        mean_of_joining=_mean_gain(compared, verdicts, scale),
        means={
            name: (scale * mean, scale * low, scale * high)
            for name, (mean, low, high) in means.items()
        },
    )


def _tables_of(runs: Sequence[RunResult]) -> Tables:
    name_of = {"": "", **{run.label: run.strategy for run in runs}}
    return {
        run.strategy: {
            client: {name_of[label]: of for label, of in said.items() if label in name_of}
            for client, said in run.reports[-1].validated.items()
        }
        for run in runs
    }


def _mean_gain(
    compared: Mapping[str, _Comparison], verdicts: Sequence[Verdict], scale: float
) -> tuple[float, float, float] | None:
    """Return the mean gain of the clients that join and the ends of its interval, None of none.

    It is that of their middle half: what a quarter of them reports does not matter. Those of
    different strategies count as if their errors went together: none is too sure.
    """
    by_gain = sorted((o for o in verdicts if o.verdict == JOIN), key=lambda o: o.gain.mean)
    if not by_gain:
        return None
    cut = len(by_gain) // 4
    joining: dict[str, list[int]] = {}
    for one in by_gain[cut : len(by_gain) - cut]:
        joining.setdefault(one.compared, []).append(compared[one.compared].index[one.client])
    parts = [
        (len(clients), *compared[name].posterior.average(clients))
        for name, clients in joining.items()
    ]
    counts, means, deviations = np.array(parts).T
    mean = scale * float(counts @ means / counts.sum())
    reach = 1.96 * scale * float(counts @ deviations / counts.sum())
    return mean, mean - reach, mean + reach


def _mean_error(alone: Sequence[Sequence[float]]) -> float:
    """Return the mean error of local models over all validation samples: the unit of gains."""
    samples, errors = map(bounded, np.array([said[:2] for said in alone], np.float64).T)
    return float(samples @ errors / samples.sum()) or 1.0


def _compare(
    tables: Sequence[Tables], name: str, scale: float, is_number: bool
) -> _Comparison | None:
    """Return a strategy's gains over staying alone, by all folds; None if no client compared it."""
    pairs = {}
    for client in sorted(set().union(*(fold[ALONE] for fold in tables))):
        pair = pooled_pair([pair_of(fold, client, name, is_number) for fold in tables], is_number)
        if pair is not None:
            pairs[client] = pair
    if not pairs:
        return None
    claimed, first, second = np.array(list(pairs.values()), np.float64).T
    samples = bounded(claimed)
    if is_number:
        observed, variances = first / scale, differences_variance(second / scale**2, samples)
    else:
        wins, losses = first * samples / claimed, second * samples / claimed
        observed = (wins - losses) / samples
        variances = counts_variance(wins, losses, samples)
    index = {client: at for at, client in enumerate(pairs)}
    return _Comparison(index, estimate_gains(observed, variances), samples, observed, variances)


def pair_of(
    tables: Tables, client: int, name: str, is_number: bool
) -> tuple[float, float, float] | None:
    """Return how a strategy's model compares with the local one, by what a client said of either.

    The number of samples, then wins and losses; where a number is predicted, the mean by which the
    local model is farther off, and its variance. None where the client has not compared them.
    """
    of_strategy, of_alone = tables[name].get(client, {}), tables[ALONE].get(client, {})
    if "" not in of_strategy or "" not in of_alone:
        return None
    if ALONE in of_strategy:
        samples, (a, b) = of_strategy[""][0], of_strategy[ALONE]
    elif name in of_alone:
        samples, (a, b) = of_alone[""][0], of_alone[name]
        a, b = (-a, b) if is_number else (b, a)
    else:
        return None
    return samples, a, b


def pooled_pair(
    pairs: Sequence[tuple[float, float, float] | None], is_number: bool
) -> tuple[float, float, float] | None:
    """Return the comparison on the samples of all folds, from what `pair_of` returns of each.

    Models of folds share training samples, so that the true variance is larger than this one.
    """
    known = np.array([pair for pair in pairs if pair is not None], np.float64)
    if not len(known):
        return None
    counts, first, second = known.T
    samples = float(counts.sum())
    if is_number and samples < 2:  # one difference says nothing of how much they differ
        return None
    if not is_number or len(known) == 1:
        return samples, float(first.sum()), float(second.sum())
    mean = float(counts @ first / samples)
    squares = (counts - 1) @ second + counts @ (first - mean) ** 2
    return samples, mean, float(squares / (samples - 1))


def _choose(client: int, found: Mapping[str, _Comparison]) -> str:
    """Return the strategy with the highest mean gain in the federation: the first one.

    Another one if the client's gain there is higher by more than its standard deviation.
    """
    means = {name: float(one.posterior.mean[one.index[client]]) for name, one in found.items()}
    first, best = next(iter(found)), max(found, key=lambda name: means[name])
    deviation = float(found[first].posterior.deviation[found[first].index[client]])
    return best if means[best] > means[first] + deviation else first


def _decide(client: int, name: str, found: Mapping[str, _Comparison], is_complete: bool) -> Word:
    """Return a client's verdict on the strategy that is best for it.

    No client stays alone while a model was not compared: it may be better.
    """
    one, at = found[name], found[name].index[client]
    if one.posterior.better[at] >= SURE and one.observed[at] >= 0:
        return JOIN
    is_worse = (
        other.posterior.better[other.index[client]] <= _WORSE
        and other.observed[other.index[client]] < 0
        for other in found.values()
    )
    if is_complete and all(is_worse):
        return STAY
    return SAME if one.posterior.within(at, MARGIN) >= _NO_DIFFERENCE else UNSURE
