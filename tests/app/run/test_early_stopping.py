from math import inf

import pytest

from fl_app.run.early_stopping import has_stopped_improving
from strategies import RoundReport


def reports(*tests, is_regression=False):
    """Return reports of rounds, each with two clients' score and loss, or without a test."""
    found = []
    for number, test in enumerate(tests, 1):
        report = RoundReport(number, 20, is_regression=is_regression)
        if test is not None:
            score, loss = test
            report.validated = {c: {"": [10, score + c / 100, loss]} for c in (0, 1)}
        found.append(report)
    return found


@pytest.mark.parametrize(
    ("tests", "enough"),
    [
        ([(0.5, 1.0), (0.6, 0.9), (0.6, 0.9)], False),
        ([(0.5, 1.0), (0.6, 0.9), (0.6, 0.9), (0.6, 0.9)], True),
        ([(0.5, 1.0), (0.6, 0.9), (0.5, 0.8), (0.6, 1.0)], False),  # the loss fell since
        ([(0.5, 1.0), (0.6, 0.9), (0.7, 1.2), (0.6, 1.3)], False),  # the score rose since
        ([(0.7, 0.5), None, (0.6, 0.6), None, (0.6, 0.7)], True),
        ([(0.7, 0.5), None, (0.6, 0.6), None], False),
        ([None, None, None, None], False),
        ([], False),  # all were rounds of warming up
        # A loss that is not told, as one's own of a number that was standardised, is infinite.
        ([(0.6, inf), (0.6, inf), (0.5, inf)], True),
        ([(0.6, inf), (0.7, inf), (0.6, inf)], False),
    ],
)
def test_a_strategy_ends_when_neither_score_nor_loss_was_best_in_the_last_two_tests(tests, enough):
    assert has_stopped_improving(reports(*tests), 2) is enough
    assert not has_stopped_improving(reports(*tests), 0)


def test_of_a_number_lower_is_better():
    rising = [(3.0, 9.0), (3.5, 10.0), (3.6, 11.0)]
    assert has_stopped_improving(reports(*rising, is_regression=True), 2)
    assert not has_stopped_improving(reports(*rising), 2)


def of_clients(*tests, is_regression=False, first=1):
    """Return reports of rounds in which each client has a score of its own; None: no test."""
    found = []
    for number, scores in enumerate(tests, first):
        report = RoundReport(number, 20, is_regression=is_regression)
        if scores is not None:
            report.validated = {c: {"": [10, score, 1.0]} for c, score in enumerate(scores)}
        found.append(report)
    return found


def test_who_is_not_in_both_tests_does_not_count():
    """Both clients improve in every test; the weaker one came later."""
    found = of_clients((0.9,), (0.92, 0.4), (0.94, 0.5), (0.96, 0.6))
    assert not has_stopped_improving(found, 2)
    for report in found[2:]:  # tests with nobody in common say nothing
        report.validated = {7: report.validated[0]}
    assert not has_stopped_improving(found, 2)
    fell = of_clients((0.9, 0.9), (0.8,), (0.7, 0.7))
    for report in fell:
        report.validated = {
            c: {"": [10, said[""][1], 2 - said[""][1]]} for c, said in report.validated.items()
        }
    assert has_stopped_improving(fell, 2)


@pytest.mark.parametrize("lie", [(0.0, inf), (1e30, -1e30), (1.0, 0.0)])
@pytest.mark.parametrize("is_regression", [False, True])
def test_one_client_of_four_decides_for_nobody_else(lie, is_regression):
    """Three get better in every test; what the fourth says is best in its first one."""
    sign = -1 if is_regression else 1
    rising = [(sign * number / 10, 1 / (number + 1)) for number in range(6)]
    tests = reports(*rising, is_regression=is_regression)
    for report in tests:
        report.validated |= {2: report.validated[1], 3: {"": [10, *lie]}}
    assert not has_stopped_improving(tests, 2)
