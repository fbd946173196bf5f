"""A client whose score falls from one test to the next, by numbers worked by hand."""

import pytest

from fl_app.results.falls import find_falls
from strategies import RoundReport


def report_of(number, scores, count=50, *, is_regression=False):
    name = "rmse" if is_regression else "accuracy"
    counts = dict.fromkeys(scores, float(count))
    found = {name: scores, "num-examples": counts}
    return RoundReport(number, 9, scores=found, is_regression=is_regression)


# Wilson's intervals of 9 and 5 of 10: 0.596 to 0.982 and 0.237 to 0.763. The difference of 0.4 has
# the half-width √(0.304² + 0.263²) = 0.402; of 18 and 10 of 20 it is √(0.201² + 0.201²) = 0.284.
@pytest.mark.parametrize(
    ("before", "after", "count", "is_named"),
    [
        (1.0, 0.0, 10, True),  # half-width √(0.278² + 0.278²) = 0.393
        (1.0, 0.0, 1, False),  # 1.12
        (0.9, 0.5, 10, False),
        (0.9, 0.5, 20, True),
        (0.9, 0.69, 1000, True),
        (0.9, 0.71, 1000, False),  # 19 points
        (0.0, 1.0, 1000, False),
    ],
)
def test_a_share_falls_by_20_points_and_more_than_chance(before, after, count, is_named):
    reports = [report_of(2, {3: before}, count), report_of(3, {3: after}, count)]
    found = [(fall.client, fall.rounds, fall.scores) for fall in find_falls(reports)]
    assert found == ([(3, (2, 3), (before, after))] if is_named else [])


# 20 samples: exp(1.96 √(1/40 + 1/40)) = 1.55, below 2; with 4 samples exp(0.98) = 2.66.
@pytest.mark.parametrize(
    ("before", "after", "count", "is_named"),
    [(1.0, 2.1, 20, True), (1.0, 1.9, 20, False), (1.0, 2.5, 4, False), (0.0, 1000.0, 20, True)],
)
def test_an_error_more_than_doubles(before, after, count, is_named):
    reports = [
        report_of(number, {0: error}, count, is_regression=True)
        for number, error in ((1, before), (2, after))
    ]
    assert len(find_falls(reports)) == is_named


def test_a_test_is_compared_with_that_clients_test_before():
    reports = [
        report_of(1, {0: 1.0, 1: 1.0}),
        report_of(2, {0: 0.9}),
        report_of(3, {}),
        report_of(4, {1: 0.1}),
    ]
    (fall,) = find_falls(reports)
    assert (fall.client, fall.rounds, fall.scores) == (1, (1, 4), (1.0, 0.1))
    assert find_falls(reports[:3]) == find_falls(reports[:1]) == []
