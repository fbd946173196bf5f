"""A verdict for each client: join, stay alone, one model for all, or nobody can tell yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import false_discovery_control

from fl_app.results.run_result import RunResult
from fl_app.results.statistics import Counts, Differences, Pair, holm_adjusted
from fl_app.results.verdict import (
    ERROR,
    JOIN,
    ONE,
    STAY,
    UNSURE,
    Gain,
    SeedVerdicts,
    Verdict,
)
from strategies.catalogue import ALL, ALONE

Tables = Mapping[str, Mapping[int, Mapping[str, Sequence[float]]]]
"""By strategy, `RoundReport.validated` of its last round, with strategies in place of labels."""


def verdicts_of(runs: Sequence[RunResult], alpha: float = ERROR) -> SeedVerdicts | None:
    """Return the verdict of each client that has compared its models, of strategies on one seed.

    A client's comparisons with staying alone err together by `alpha` at most, and so do its
    comparisons with one model for all, and those of the means over clients. None without `ALONE`,
    or if nobody compared anything.

    Parameters
    ----------
    runs : sequence of RunResult
        In the order in which they ran: clients compare each model with those before it.
    """
    name_of = {"": "", **{run.label: run.strategy for run in runs}}
    tables = {
        run.strategy: {
            client: {name_of[label]: said for label, said in of_client.items() if label in name_of}
            for client, of_client in run.reports[-1].validated.items()
        }
        for run in runs
    }
    by_name = {run.strategy: run for run in runs}
    if ALONE not in tables:
        return None
    is_number = runs[0].metrics.main.lower_is_better
    alone = {
        client: pairs
        for client in sorted(tables[ALONE])
        if (
            pairs := {
                name: pair
                for name in by_name
                if name != ALONE
                if (pair := pair_of(tables, client, name, ALONE, is_number)) is not None
            }
        )
    }
    if not alone:
        return None
    found, p_values = [], []
    for client, pairs in alone.items():
        verdict, p_value = _judged(client, pairs, by_name, alpha)
        over_one = _over_one(verdict, tables, is_number, alpha / len(pairs))
        found.append(replace(verdict, gain_over_single=over_one))
        p_values.append(p_value)
    over_alone = {
        name: [pairs[name].gain for pairs in alone.values() if name in pairs] for name in by_name
    }
    over_single = {
        name: [
            pair.gain
            for client in alone
            if (pair := pair_of(tables, client, name, ALL, is_number)) is not None
        ]
        for name in by_name
        if ALL in tables and name not in (ALONE, ALL)
    }
    return SeedVerdicts(
        seed=runs[0].seed,
        clients=found,
        told_among_all=int((false_discovery_control(p_values) <= alpha).sum()),
        means=_mean_gains(over_alone, alpha),
        over_single=_mean_gains(over_single, alpha),
    )


def _over_one(verdict: Verdict, tables: Tables, is_number: bool, alpha: float) -> Gain | None:
    """Return the gain over one model for all, of the one among a client's that was chosen."""
    if ALL not in tables or verdict.strategy == ALL:
        return None
    pair = pair_of(tables, verdict.client, verdict.strategy, ALL, is_number)
    return None if pair is None else (pair.gain, *pair.interval(alpha))


def _mean_gains(gains: Mapping[str, Sequence[float]], alpha: float) -> dict[str, Gain]:
    """Return strategies' mean gains over clients, with Student's intervals: of clients like these.

    Together they err by `alpha` at most. There is none of a single client, nor of clients with the
    same gain, whose interval would have no width: of few samples, that they agree is chance.
    """
    compared = {name: np.array(own) for name, own in gains.items() if len(own)}
    return {
        name: (mean, *Differences(mean, float(own.var(ddof=1)), len(own)).interval(level))
        for name, own in compared.items()
        if np.ptp(own) > 0
        for mean, level in [(float(own.mean()), alpha / len(compared))]
    }


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
    if second in of_first:
        said, (a, b) = of_first[""], of_first[second]
    elif first in of_second:
        said, (b, a) = of_second[""], of_second[first]
        if is_number:
            a, b = -b, a
    else:
        return None
    num = int(said[0])
    if is_number and num < 2:  # one difference says nothing of how much they differ
        return None
    return Differences(a, b, num) if is_number else Counts(int(a), int(b), num)


def _judged(
    client: int, pairs: Mapping[str, Pair], runs: Mapping[str, RunResult], alpha: float
) -> tuple[Verdict, float]:
    """Return a client's verdict, and its p-value.

    Each of m candidates has an interval at α/m, so that the one that is shown, whichever it is,
    errs at α at most. Holm's procedure tells a little more: what it tells ends at 0 at the latest.
    Nobody is told to stay alone, at any error, while a model was not compared: it may be better.
    """
    p_values = {name: pair.p_value() for name, pair in pairs.items()}
    adjusted = dict(zip(pairs, holm_adjusted(list(p_values.values())).tolist(), strict=True))
    p_value = told_at([pair.gain for pair in pairs.values()], list(adjusted.values()))
    sure = [name for name, pair in pairs.items() if pair.gain > 0 and adjusted[name] <= alpha]
    best = max(sure or pairs, key=lambda name: pairs[name].gain)
    strategy = best if pairs[best].gain > 0 else ALONE
    if strategy == ALONE and len(pairs) < len(runs) - 1:
        p_value = 1.0
    verdict = UNSURE
    if p_value <= alpha:
        verdict = {ALONE: STAY, ALL: ONE}.get(strategy, JOIN)
    level = alpha / len(pairs)
    needed = pairs[best].needed(level)
    gains = {name: _told(pair, level, adjusted[name] <= alpha) for name, pair in pairs.items()}
    judged = Verdict(
        client=client,
        verdict=verdict,
        strategy=strategy,
        cluster=runs[strategy].of_client.get(client, -1),
        validation_samples=pairs[best].num,
        compared=best,
        gain=gains[best],
        candidates={name: (*gain, p_values[name]) for name, gain in gains.items()},
        # So many as there are did not tell.
        samples_needed=max(needed, pairs[best].num + 1) if verdict == UNSURE and needed else None,
    )
    return judged, p_value


def told_at(gains: Sequence[float], p_values: Sequence[float]) -> float:
    """Return the smallest error at which a client would be told anything, by adjusted p-values.

    One better model is enough to join; to stay alone, all must be worse.
    """
    better = [p for gain, p in zip(gains, p_values, strict=True) if gain > 0]
    return min(better) if better else max(p_values)


def _told(pair: Pair, alpha: float, is_sure: bool) -> Gain:
    low, high = pair.interval(alpha)
    if is_sure:
        low, high = (max(low, 0.0), high) if pair.gain > 0 else (low, min(high, 0.0))
    return pair.gain, low, high
