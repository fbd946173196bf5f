"""A strategy ends once its clients' validation samples say that more rounds bring nothing."""

from collections.abc import Mapping, Sequence

import numpy as np

from fl_app.results.statistics import middle_mean
from strategies import RoundReport

Validated = Mapping[int, Mapping[str, Sequence[float]]]
"""As in `RoundReport.validated`: a client's result of its own model is under an empty name."""

_SCORE, _LOSS = 1, 2


class StopEarly(Exception):  # noqa: N818 - nothing is wrong
    """A strategy's training is over before its last round."""


def has_stopped_improving(reports: Sequence[RoundReport], patience: int) -> bool:
    """Return whether neither score nor loss on validation samples was best in the last tests.

    The last `patience` tests count; with a patience of 0, it is never enough. The score is the
    accuracy, or of a number the mean error. By either, one test is as good as another if the middle
    half of the clients in both is as good in the mean: one client alone decides nothing. Rounds in
    which no client compared anything do not count.
    """
    if not patience or not reports:
        return False
    tests = [report.validated for report in reports if report.validated]
    before, last = tests[:-patience], tests[-patience:]
    of_scores = 1 if reports[0].metrics.main.lower_is_better else -1
    return all(
        any(all(_is_as_low(one, other, number, sign) for other in last) for one in before)
        for number, sign in ((_SCORE, of_scores), (_LOSS, 1))
    )


def _is_as_low(one: Validated, other: Validated, number: int, sign: int) -> bool:
    """Return whether a number of a test is at most another test's for the middle half of clients.

    Only clients in both tests count, and only finite numbers.
    """
    if not (both := sorted(one.keys() & other.keys())):
        return False
    pairs = np.array([[test[c][""][number] for test in (one, other)] for c in both])
    known = pairs[np.isfinite(pairs).all(axis=1)]
    return not len(known) or middle_mean(sign * (known[:, 0] - known[:, 1])) <= 0
