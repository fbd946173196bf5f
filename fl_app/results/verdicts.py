"""A verdict for each client: join, stay alone, one model for all, or nobody can tell yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fl_app.report.verdicts import (
    ERROR,
    JOIN,
    ONE,
    STAY,
    UNSURE,
    Gain,
    SeedVerdicts,
    Verdict,
)
from fl_app.results.paired import Counts, Differences, Pair, holm_levels
from fl_app.results.run_result import RunResult
from strategies.catalogue import ALL, ALONE

Tables = Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]
"""By strategy, `RoundReport.validated` of its last round."""


def verdicts_of(runs: Sequence[RunResult], alpha: float = ERROR) -> SeedVerdicts | None:
    """Return the verdict of each client that has compared its models, of strategies on one seed.

    Comparisons with staying alone, of all clients and all strategies, err together by `alpha` at
    most, and so do those of the chosen strategies with one model for all, and those of the means.
    None without `ALONE`, or if nobody compared anything.

    Parameters
    ----------
    runs : sequence of RunResult
        In the order in which they ran: clients compare each model with those before it.
    """
    tables = {run.strategy: run.reports[-1].validated for run in runs}
    by_name = {run.strategy: run for run in runs}
    if ALONE not in tables:
        return None
    is_number = runs[0].metrics.main.lower_is_better
    alone = {
        (client, name): pair
        for client in sorted(set.intersection(*map(set, tables.values())))
        for name in by_name
        if name != ALONE
        if (pair := pair_of(tables, client, name, ALONE, is_number)) is not None
    }
    if not alone:
        return None
    judged = holm_levels([one.p_value() for one in alone.values()], alpha)
    levels = dict(zip(alone, judged, strict=True))
    clients = dict.fromkeys(client for client, _ in alone)
    found = [_judged(client, alone, levels, tables, by_name, is_number) for client in clients]
    over_one = [_over_one(one, tables, is_number) for one in found]
    known = [(place, pair) for place, pair in enumerate(over_one) if pair is not None]
    judged = holm_levels([pair.p_value() for _, pair in known], alpha)
    for (place, pair), level in zip(known, judged, strict=True):
        gain = (pair.gain, *pair.interval(level))
        found[place] = replace(found[place], gain_over_single=gain)
    means = {
        name: np.array([pair.gain for (_, whose), pair in alone.items() if whose == name])
        for name in dict.fromkeys(name for _, name in alone)
    }
    return SeedVerdicts(
        seed=runs[0].seed,
        clients=found,
        means={
            name: _mean_gain(gains, alpha / len(means))
            for name, gains in means.items()
            if len(gains) > 1
        },
    )


def _over_one(verdict: Verdict, tables: Tables, is_number: bool) -> Pair | None:
    if ALL not in tables or verdict.strategy == ALL:
        return None
    return pair_of(tables, verdict.client, verdict.strategy, ALL, is_number)


def _mean_gain(gains: NDArray[np.float64], alpha: float) -> Gain:
    """Return the mean over clients, and Student's interval: clients like these would gain it."""
    mean = float(gains.mean())
    clients = Differences(mean, float(gains.var(ddof=1)), len(gains))
    return mean, *clients.interval(alpha)


def pair_of(
    tables: Tables,
    client: int,
    first: str,
    second: str,
    is_number: bool,
) -> Pair | None:
    """Return how two strategies' models compare at a client, by what it said of either."""
    of_first, of_second = tables[first].get(client, {}), tables[second].get(client, {})
    if "" not in of_first or "" not in of_second:
        return None
    num = int(of_first[""][0])
    if second in of_first:
        a, b = of_first[second]
    elif first in of_second:
        b, a = of_second[first]
        if is_number:
            a, b = -b, a
    else:
        return None
    return Differences(a, b, num) if is_number else Counts(int(a), int(b), num)


def _judged(
    client: int,
    alone: Mapping[tuple[int, str], Pair],
    levels: Mapping[tuple[int, str], float],
    tables: Tables,
    runs: Mapping[str, RunResult],
    is_number: bool,
) -> Verdict:
    pairs = {name: pair for (whose, name), pair in alone.items() if whose == client}
    bounds = {name: pair.interval(levels[client, name]) for name, pair in pairs.items()}
    better = [name for name in pairs if bounds[name][0] > 0]
    worse = [name for name in pairs if bounds[name][1] < 0]

    def goodness(name: str) -> float:
        score = tables[name][client][""][1]
        return -score if is_number else score

    best = max(better or pairs, key=goodness)
    strategy = best if better or goodness(best) > goodness(ALONE) else ALONE
    verdict = UNSURE
    if better:
        verdict = ONE if strategy == ALL else JOIN
    elif len(worse) == len(pairs):
        verdict = STAY
    pair = pairs[best]
    return Verdict(
        client=client,
        verdict=verdict,
        strategy=strategy,
        cluster=runs[strategy].of_client.get(client, -1),
        validation_samples=pair.num,
        compared=best,
        gain=(pair.gain, *bounds[best]),
        samples_needed=pair.needed(levels[client, best]) if verdict == UNSURE else None,
    )
