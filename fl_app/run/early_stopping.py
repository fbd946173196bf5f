"""A strategy ends once its clients' validation samples say that more rounds bring nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strategies import RoundReport


class EnoughRounds(Exception):  # noqa: N818 - nothing is wrong
    """A strategy's training is over before its last round."""


def is_enough(reports: Sequence[RoundReport], patience: int) -> bool:
    """Return whether neither score nor loss on validation samples was best in the last tests.

    The score is the accuracy, or of a number the mean error; it and the loss are means over the
    clients. Rounds in which no client compared anything do not count.

    Parameters
    ----------
    reports : sequence of RoundReport
    patience : int
        So many tests are the last ones; of 0, it is never enough.
    """
    tests = [list(report.validated.values()) for report in reports if report.validated]
    if not patience or len(tests) <= patience:
        return False
    _, scores, losses = np.array(
        [np.mean([compared[""] for compared in test], axis=0) for test in tests]
    ).T
    if not reports[0].metrics.main.lower_is_better:
        scores = -scores
    return all(np.argmin(one) < len(tests) - patience for one in (scores, losses))
