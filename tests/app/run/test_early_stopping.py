import pytest

from fl_app.run.early_stopping import is_enough
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
    ],
)
def test_a_strategy_ends_when_neither_score_nor_loss_was_best_in_the_last_two_tests(tests, enough):
    assert is_enough(reports(*tests), 2) is enough
    assert not is_enough(reports(*tests), 0)


def test_of_a_number_lower_is_better():
    rising = [(3.0, 9.0), (3.5, 10.0), (3.6, 11.0)]
    assert is_enough(reports(*rising, is_regression=True), 2)
    assert not is_enough(reports(*rising), 2)
