"""A strategy ends once its clients' validation samples say that more rounds bring nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fl_app.results.statistics import middle_mean
from strategies import RoundReport

NO_BETTER = "its validation scores improve no more"
BEATEN = "every client's validation score was better by what ran before"

Reports = Sequence[RoundReport]
Validated = Mapping[int, Mapping[str, Sequence[float]]]
"""As in `RoundReport.validated`: what a client says of its own model is under an empty name."""

_SCORE, _LOSS = 1, 2


class EnoughRounds(Exception):  # noqa: N818 - nothing is wrong
    """A strategy's training is over before its last round."""


def why_enough(reports: Reports, patience: int, rivals: Sequence[Reports]) -> str:
    """Return why a strategy ends before its last round; empty: it goes on.

    Parameters
    ----------
    reports : sequence of RoundReport
        None yet: it goes on.
    patience : int
        So many tests have to say so, one after the other; of 0, it never ends.
    rivals : sequence of sequences of RoundReport
        Of strategies that have ended, and that it must not be worse than for everybody.
    """
    if not patience or not reports:
        return ""
    if is_enough(reports, patience):
        return NO_BETTER
    return BEATEN if is_beaten(reports, patience, rivals) else ""


def is_enough(reports: Reports, patience: int) -> bool:
    """Return whether neither score nor loss on validation samples was best in the last tests.

    The score is the accuracy, or of a number the mean error. By either, one test is as good as
    another if the middle half of the clients in both is as good in the mean: what one client says
    decides for nobody else. Rounds in which no client compared anything do not count.
    """
    tests = [report.validated for report in reports if report.validated]
    before, last = tests[:-patience], tests[-patience:]
    of_scores = 1 if reports[0].metrics.main.lower_is_better else -1
    return all(
        any(all(_is_as_low(one, other, place, sign) for other in last) for one in before)
        for place, sign in ((_SCORE, of_scores), (_LOSS, 1))
    )


def _is_as_low(one: Validated, other: Validated, place: int, sign: int) -> bool:
    """Return whether a number of a test is at most another test's for the middle half of clients.

    Those count that are in both. A loss that is not told, which is infinite, says nothing.
    """
    if not (both := sorted(one.keys() & other.keys())):
        return False
    pairs = np.array([[test[c][""][place] for test in (one, other)] for c in both])
    known = pairs[np.isfinite(pairs).all(axis=1)]
    return not len(known) or middle_mean(sign * (known[:, 0] - known[:, 1])) <= 0


def is_beaten(reports: Reports, patience: int, rivals: Sequence[Reports]) -> bool:
    """Return whether in the last tests some rival was better for each of the clients.

    They need not all have the same one, but it was better by then: what a rival reached in later
    rounds does not count.
    """
    tests = [report for report in reports if report.validated][-patience:]
    return len(tests) == patience and all(_is_beaten_at(report, rivals) for report in tests)


def _is_beaten_at(report: RoundReport, rivals: Sequence[Reports]) -> bool:
    others = [
        max(known, key=lambda other: other.round).validated
        for rival in rivals
        if (known := [one for one in rival if one.validated and one.round <= report.round])
    ]
    sign = -1 if report.metrics.main.lower_is_better else 1
    return all(
        any(sign * other[client][""][1] > sign * own[""][1] for other in others if client in other)
        for client, own in report.validated.items()
    )
