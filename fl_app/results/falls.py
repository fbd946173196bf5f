"""Clients whose score falls from one test to the next by more than chance explains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from fl_app.results.fields import Number
from fl_core.messages.protocol import NUM_EXAMPLES
from fl_core.metrics import Metric
from fl_core.text import listed
from strategies import RoundReport

SMALLEST_FALL = 0.2  # of a share, such as the accuracy; a smaller fall is not named
SMALLEST_GROWTH = 2.0  # of an error: by which factor
_MOST_SAID = 10
_Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True, kw_only=True)
class Fall:
    """Two tests of a client in a row, the second much worse than the first."""

    client: int
    rounds: tuple[int, int]
    scores: tuple[Number, Number]


def describe_falls(falls: Sequence[Fall], name_of: Callable[[int], str], metric: Metric) -> str:
    """Return a sentence on falls; empty: there are none."""
    said = []
    for fall in falls:
        (before, after), (first, second) = map(metric.with_unit, fall.scores), fall.rounds
        name = name_of(fall.client)
        said.append(f"{name} from {before} in round {first} to {after} in round {second}")
    return f"the {metric.title} got much worse: {listed(said, _MOST_SAID, ', ')}" if said else ""


def find_falls(reports: Sequence[RoundReport]) -> list[Fall]:
    """Return the clients whose score in the last round is much worse than in their test before.

    A share, such as the accuracy, falls by more than 20 points and by more than the 95 % interval
    of the difference of two shares (Newcombe, Statistics in Medicine 17, 1998, method 10), of as
    many test samples as the clients say. An error more than doubles, and by more than the interval
    of the ratio of two root mean squares of normal errors.
    """
    *earlier, last = reports
    before: dict[int, RoundReport] = {}
    for report in reversed(earlier):
        for client in report.tested.keys() & (last.tested.keys() - before.keys()):
            before[client] = report
        if len(before) == len(last.tested):
            break
    falls = []
    for client, report in sorted(before.items()):
        scores = (report.tested[client], last.tested[client])
        counts = [one.of(NUM_EXAMPLES).get(client, 0.0) for one in (report, last)]
        is_much_lower = _is_much_lower if last.metrics.main.is_share else _is_much_larger
        if min(counts) > 0 and is_much_lower(*scores, *counts):
            falls.append(Fall(client=client, rounds=(report.round, last.round), scores=scores))
    return falls


def _is_much_lower(before: float, after: float, count_before: float, count_after: float) -> bool:
    low = binomtest(round(before * count_before), round(count_before)).proportion_ci(
        method="wilson"
    )
    high = binomtest(round(after * count_after), round(count_after)).proportion_ci(method="wilson")
    return before - after > max(SMALLEST_FALL, math.hypot(before - low.low, high.high - after))


def _is_much_larger(before: float, after: float, count_before: float, count_after: float) -> bool:
    deviation = math.sqrt(1 / (2 * count_before) + 1 / (2 * count_after))
    return after > before * max(SMALLEST_GROWTH, math.exp(_Z * deviation))
