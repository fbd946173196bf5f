import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import xlogy
from scipy.stats import multinomial, ttest_1samp

from fl_app.results.statistics import Counts, Differences, holm_adjusted


def test_mcnemars_exact_test_is_a_sign_test_on_samples_that_differ():
    assert Counts(5, 0, 40).p_value() == pytest.approx(2 / 2**5)
    assert Counts(3, 1, 40).p_value() == pytest.approx(2 * (1 + 4) / 2**4)
    assert Counts(0, 0, 40).p_value() == 1.0


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.floats(0.0005, 0.2))
def test_an_interval_has_the_gain_in_it_and_turns_round_with_the_models(wins, losses, ties, alpha):
    num = wins + losses + ties
    if not num:
        return
    low, high = Counts(wins, losses, num).interval(alpha)
    assert -1 <= low <= Counts(wins, losses, num).gain <= high <= 1
    back = Counts(losses, wins, num).interval(alpha)
    assert back == pytest.approx((-high, -low), abs=1e-6)
    wider = Counts(wins, losses, num).interval(alpha / 2)
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9
    if Counts(wins, losses, num).p_value() > alpha:
        assert low <= 0 <= high


def test_intervals_cover_the_true_gain_as_often_as_they_say():
    """Over all outcomes of 20 samples, for models that differ on few, some and most of them."""
    num, alpha = 20, 0.05
    counts = [(w, loss) for w in range(num + 1) for loss in range(num + 1 - w)]
    intervals = [Counts(w, loss, num).interval(alpha) for w, loss in counts]
    for share in (0.05, 0.2, 0.5, 0.8):
        for theta in (0.5, 0.7, 0.9, 1.0):
            first, second = share * theta, share * (1 - theta)
            chances = multinomial.pmf(
                [(w, loss, num - w - loss) for w, loss in counts],
                num,
                (first, second, 1 - share),
            )
            covers = [low - 1e-9 <= first - second <= high + 1e-9 for low, high in intervals]
            assert chances[covers].sum() > 0.94


def test_how_many_samples_would_tell_grows_as_gains_shrink():
    assert Counts(0, 0, 10).needed(0.05) is None
    assert Counts(3, 3, 10).needed(0.05) is None
    few, many = Counts(30, 10, 100).needed(0.05), Counts(22, 18, 100).needed(0.05)
    assert few < 100 < many
    assert Counts(22, 18, 100).needed(0.005) > many
    # Connor (1987): (1.96 √0.4 + 0.8416 √(0.4 − 0.04))² / 0.04
    assert few == math.ceil((1.959964 * math.sqrt(0.4) + 0.841621 * 0.6) ** 2 / 0.04)


def test_differences_of_numbers_are_judged_by_students_t():
    values = np.array([2.0, 1.0, 0.5, -1.0, 3.0])
    found = Differences(values.mean(), values.var(ddof=1), len(values))
    wanted = ttest_1samp(values, 0)
    assert found.p_value() == pytest.approx(wanted.pvalue)
    interval = wanted.confidence_interval(0.9)
    assert found.interval(0.1) == pytest.approx((interval.low, interval.high))
    assert found.needed(0.05) > 5
    assert Differences(0.0, 1.0, 9).needed(0.05) is None
    # (1.96 + 0.8416)² · 4 / 0.5² = 125.6, and (2.5758 + 0.8416)² · 16 = 186.9
    assert Differences(-0.5, 4.0, 9).needed(0.05) == 126
    assert Differences(0.5, 4.0, 9).needed(0.01) == 187
    assert Differences(1.0, 2.0, 2).p_value() == pytest.approx(0.5)  # t = 1, of one degree
    assert Differences(1.0, 2.0, 2).interval(0.05) == pytest.approx((-11.7062, 13.7062), abs=1e-4)
    assert Differences(1.0, 0.0, 1).p_value() == 1.0
    assert Differences(1.0, 0.0, 1).interval(0.05) == (-math.inf, math.inf)
    assert Differences(0.0, 0.0, 4).p_value() == 1.0


def test_a_difference_that_is_always_the_same_tells_as_much_as_its_sign():
    """Two models that predict a constant each may be equally good, and differ alike on all."""
    four, six = Differences(1.0, 0.0, 4), Differences(1.0, 1e-12, 6)
    assert (four.p_value(), six.p_value()) == (2 / 2**4, 2 / 2**6)
    assert four.interval(0.05) == (0.0, 1.0)
    assert six.interval(0.05) == pytest.approx((1, 1), abs=1e-4)
    assert Differences(-1.0, 0.0, 4).interval(0.05) == (-1.0, 0.0)


@given(
    st.floats(-1e30, 1e30),
    st.floats(0, 1e38) | st.sampled_from([5e-324, 1e-300]),
    st.integers(2, 9),
)
def test_whatever_numbers_a_device_says_it_has_a_verdict(gain, variance, num):
    found = Differences(gain, variance, num)
    assert 0 <= found.p_value() <= 1
    low, high = found.interval(0.001)
    assert -1e39 < low <= gain <= high < 1e39
    assert found.needed(0.05) is None or found.needed(0.05) >= 6


def test_no_fewer_samples_are_advised_than_can_tell_anything():
    """Five of five are p = 0.0625, whatever the models do, six p = 0.03125."""
    assert Counts(5, 0, 5).needed(0.05) == Differences(1.0, 0.0, 4).needed(0.05) == 6
    assert Counts(6, 0, 6).p_value() < 0.05 < Counts(5, 0, 5).p_value()
    assert Counts(6, 0, 6).needed(0.01) == 8
    assert Counts(8, 0, 8).p_value() < 0.01 < Counts(7, 0, 7).p_value()


def test_holms_p_values_are_multiplied_by_how_many_are_left_and_never_fall():
    assert holm_adjusted([0.011, 0.02, 0.9]) == pytest.approx([0.033, 0.04, 0.9])
    assert holm_adjusted([0.9, 0.014, 0.001]) == pytest.approx([0.9, 0.028, 0.003])
    assert holm_adjusted([0.03, 0.031]) == pytest.approx([0.06, 0.06])  # not 0.031
    assert holm_adjusted([0.6, 0.6]).tolist() == [1.0, 1.0]
    assert holm_adjusted([0.2]).tolist() == [0.2]
    assert holm_adjusted([]).tolist() == []


@pytest.mark.parametrize("counts", [(1, 11, 44), (0, 11, 44), (30, 5, 100)])
def test_tangos_interval_ends_where_the_score_with_the_likeliest_shares_is_1_96(counts):
    """Without his closed form: the share that the second alone is right, by searching for it."""
    wins, losses, num = counts
    for gain, bound in zip(Counts(*counts).interval(0.05), (1.959964, -1.959964), strict=True):

        def unlikely(alone, gain=gain):
            shares = alone + gain, alone, 1 - 2 * alone - gain
            return -sum(xlogy([wins, losses, num - wins - losses], shares))

        ends = max(0.0, -gain) + 1e-12, (1 - gain) / 2 - 1e-12
        alone = minimize_scalar(unlikely, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
        error = (num * (2 * alone + gain * (1 - gain))) ** 0.5
        assert (wins - losses - num * gain) / error == pytest.approx(bound, rel=1e-3)
