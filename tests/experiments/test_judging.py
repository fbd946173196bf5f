"""What seeds say of a claim, by hand: with three of them, Student's t is 4.3027."""

import numpy as np
import pytest

from experiments.claims import Claim
from experiments.judging import CellVerdict, judge_cell


def numbers(*values):
    return dict(enumerate(values))


def judged(relation, left, right, points=0.0, **more):
    """Return the word for a left method's numbers against a right one's, or against a number."""
    if isinstance(right, float):
        return judge_cell(Claim("so", "a", relation, right, points, **more), [left], []).word
    return judge_cell(Claim("so", "a", relation, "b", points, **more), [left], [right]).word


THREE = numbers(2.0, 3.0, 4.0)  # from 0.516 to 5.484


@pytest.mark.parametrize(
    ("relation", "points", "word"),
    [
        ("above", 0, "holds"),
        ("above", 0.5, "holds"),
        ("above", 0.6, "undecided"),
        ("above", 5.4, "undecided"),
        ("above", 5.5, "does not hold"),
        ("at least", -1, "holds"),
        ("at least", 3, "undecided"),
        ("below", 0, "does not hold"),
        ("below", -5.5, "holds"),
        ("at most", -3, "undecided"),
        ("within", 5.5, "holds"),
        ("within", 5.4, "undecided"),
        ("within", 0.6, "undecided"),
        ("within", 0.5, "does not hold"),
    ],
)
def test_of_three_seeds_all_of_the_interval_must_be_on_a_side(relation, points, word):
    shifted = {seed: 90 + value for seed, value in THREE.items()}
    assert judged(relation, shifted, 90.0, points) == word
    # Seed by seed: the seeds differ by far more than the methods.
    right = numbers(90.0, 10.0, 50.0)
    left = {seed: right[seed] + value for seed, value in THREE.items()}
    assert judged(relation, left, right, points) == word


def test_an_interval_around_all_that_is_within_is_undecided():
    assert judged("within", numbers(-1.0, 0.0, 1.0), 0.0, 0.5) == "undecided"  # ± 2.48
    assert judged("within", numbers(-1.0, 0.0, 1.0), 0.0, 2.5) == "holds"


def test_a_lead_of_about_so_much_is_refuted_from_both_sides():
    for left, word in ((18.2, "does not hold"), (9.8, "holds"), (5.9, "does not hold")):
        assert judged("within", numbers(left), numbers(0.0), 3, ahead=9) == word


@pytest.mark.parametrize(
    ("relation", "left", "right", "word"),
    [
        ("at least", 87.3, 87.0, "holds"),  # 0.29999… apart in binary numbers
        ("within", 94.4, 94.1, "holds"),
        ("above", 94.4, 94.1, "does not hold"),
    ],
)
def test_a_number_on_the_border_is_judged_as_it_is_written(relation, left, right, word):
    assert judged(relation, numbers(left), right, 0.3) == word


def test_equal_numbers_have_an_interval_of_nothing():
    one = numbers(0.9, 0.8, 0.7)
    assert judged("above", one, one) == "does not hold"
    assert judged("at least", one, one) == "holds"


def test_of_one_or_two_runs_their_mean_is_judged():
    claim = Claim("so", "a", "above", "b")
    right = numbers(91.0, 94.5, 70.0)
    assert judge_cell(claim, [numbers(94.0)], [right]) == CellVerdict("holds", 1)
    assert judge_cell(claim, [numbers(94.0, 92.0)], [right]) == CellVerdict("holds", 2)  # by 0.25
    assert judge_cell(claim, [numbers(94.0, 91.0)], [right]) == CellVerdict("does not hold", 2)


def test_it_must_hold_for_each_pair():
    claim = Claim("so", "a, c", "above", "b, d", 0)
    above, far, close = numbers(2.0, 3.0, 4.0), numbers(8.0, 9.0, 10.0), numbers(1.0, 2.0, 3.0)
    zero, one = numbers(0.0, 0.0, 0.0), numbers(0.5, 0.5, 0.5)
    assert judge_cell(claim, [above, far], [zero, one]).word == "holds"
    assert judge_cell(claim, [close, far], [zero, one]).word == "undecided"  # 2 ± 2.48
    assert judge_cell(claim, [close, far], [zero, far]).word == "does not hold"
    assert judge_cell(claim, [above, numbers(8.0)], [zero, one]) == CellVerdict("holds", 1)


@pytest.mark.parametrize(
    ("ari", "said"),
    [
        ((1.0, 1.0, 1.0), CellVerdict("holds", 3, "in 3 of 3 seeds")),
        ((0.47, 1.0), CellVerdict("partly", 2, "in 1 of 2 seeds")),
        ((0.47, 0.99), CellVerdict("does not hold", 2, "in 0 of 2 seeds")),
    ],
)
def test_what_is_said_of_each_run_is_judged_in_each(ari, said):
    found = Claim("so", "a", "at least", 1.0, measure="ari", statistic="each seed")
    assert judge_cell(found, [numbers(*ari)], []) == said
    perfect = numbers(1.0, 1.0, 1.0)
    assert judge_cell(found, [perfect, numbers(*ari)], []) == said


STEADY = numbers(0.0, 1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("times", "above", "below"),
    [  # Of five seeds each, F is 9.60: variances tell apart what is 3.1 times as wide.
        (3.2, "holds", "does not hold"),
        (3.0, "undecided", "undecided"),
        (1 / 3.0, "undecided", "undecided"),
        (1 / 3.2, "does not hold", "holds"),
        (0.0, "does not hold", "holds"),
    ],
)
def test_standard_deviations_are_distinguished_by_their_variances(times, above, below):
    left = {seed: 50 + times * value for seed, value in STEADY.items()}
    assert judged("above", left, STEADY, statistic="std") == above
    assert judged("below", left, STEADY, statistic="std") == below


def test_what_never_varies_is_no_steadier_than_what_never_varies():
    never = dict.fromkeys(range(5), 2.0)
    assert judged("above", STEADY, never, statistic="std") == "holds"
    assert judged("below", never, never, statistic="std") == "undecided"
    # Equal floats have a variance of about 1e-30 where their mean is rounded.
    one, other = (dict.fromkeys(range(5), value) for value in (12.96, 42.27))
    assert np.var(list(one.values()), ddof=1) > 0 == np.var(list(other.values()), ddof=1)
    for relation in ("above", "below"):
        assert judged(relation, one, other, statistic="std") == "undecided"


def test_four_seeds_are_too_few_for_a_standard_deviation():
    four = numbers(0.0, 100.0, 200.0, 300.0)
    claim = Claim("so", "a", "above", "b", statistic="std")
    why = "too few seeds for a standard deviation"
    assert judge_cell(claim, [four], [STEADY]) == CellVerdict("not judged", 4, why)


@pytest.mark.parametrize("more", [{"points": 1.0}, {"relation": "within"}, {"right": 2.0}])
def test_only_above_or_below_is_said_of_standard_deviations(more):
    given = {"relation": "above", "right": "b", **more}
    with pytest.raises(ValueError, match='the claim "so" is of std'):
        Claim("so", "a", statistic="std", **given)
