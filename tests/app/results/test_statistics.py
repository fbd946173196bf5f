"""Paired differences, by hand and beside SciPy's."""

import math

import numpy as np
import pytest
from scipy.stats import ttest_rel, wilcoxon

from fl_app.results.statistics import (
    best_names,
    difference,
    half_interval,
    holm,
    is_still_improving,
    shared_scores,
    signed_rank_p,
)


def of_seeds(*means):
    """Return the scores of four clients on each seed, by the mean of all."""
    spread = np.array([-0.1, -0.05, 0.05, 0.1])
    return {seed: mean + spread for seed, mean in enumerate(means)}


def test_an_interval_by_hand():
    # A deviation of 1: 4.3027 / √3. Five seeds: √2.5 · 2.7764 / √5.
    assert half_interval(np.array([1.0, 2, 3])) == pytest.approx(2.4841, abs=1e-4)
    assert half_interval(np.array([1.0, 2, 3, 4, 5])) == pytest.approx(1.9632, abs=1e-4)
    assert np.isnan(half_interval(np.array([1.0])))


def test_three_seeds_may_tell_nothing_apart():
    """Gains of 0.5, 2 and 4.4 points: 2.3 on average, ± 4.3027 · 1.967 / √3."""
    first, second = of_seeds(0.805, 0.82, 0.844), of_seeds(0.8, 0.8, 0.8)
    found = difference(first, second)
    assert (found.pairs, found.over) == (3, "seeds")
    assert found.mean == pytest.approx(0.023)
    assert found.ends == pytest.approx((-0.0259, 0.0719), abs=1e-4)
    assert not found.is_shown
    scipy = ttest_rel([0.805, 0.82, 0.844], [0.8] * 3).confidence_interval(0.95)
    assert found.ends == pytest.approx((scipy.low, scipy.high))
    sure = difference(first, of_seeds(0.7, 0.71, 0.74))
    assert sure.is_shown
    assert difference(of_seeds(0.7, 0.71, 0.74), first).mean == pytest.approx(-sure.mean)


def test_with_one_seed_pairs_are_the_clients_that_both_tested():
    first = {0: np.array([0.9, 0.8, 0.7, np.nan, 0.9])}
    second = {0: np.array([0.8, 0.6, 0.7, 0.1]), 1: np.array([0.3, 0.3, 0.3, 0.3])}
    found = difference(first, second)
    assert (found.pairs, found.over) == (3, "clients")
    scipy = ttest_rel([0.9, 0.8, 0.7], [0.8, 0.6, 0.7]).confidence_interval(0.95)
    assert found.ends == pytest.approx((scipy.low, scipy.high))
    assert not found.is_shown
    assert not difference({0: np.array([0.9])}, {0: np.array([0.1])}).is_shown
    assert not difference({0: np.array([0.9])}, {1: np.array([0.1])}).is_shown
    a, b = np.array([0.1 + 0.2, 0.7]), np.array([0.3, 0.7])  # a rounding is no difference
    assert not difference({0: a, 1: a, 2: a}, {0: b, 1: b, 2: b}).is_shown


@pytest.mark.parametrize("sign", [1, -1])
def test_the_best_are_those_that_no_interval_tells_apart(sign):
    scores = {"a": of_seeds(0.8, 0.84, 0.8), "b": of_seeds(0.81, 0.8, 0.79)}
    assert best_names(scores) == []
    scores["c"] = of_seeds(0.5, 0.53, 0.49)
    signed = {n: {s: sign * v for s, v in of.items()} for n, of in scores.items()}
    assert best_names(signed, lower_is_better=sign < 0) == ["a", "b"]
    assert best_names({"a": scores["a"]}) == []
    assert best_names({}) == []
    # Of a stopped run, a is at 80 and 60, b at 75 on the first seed alone: 5 points behind.
    assert best_names({"a": of_seeds(0.8, 0.6), "b": of_seeds(0.75)}) == ["a"]


def test_strategies_are_compared_by_the_seeds_and_clients_that_all_have():
    nan = np.nan
    scores = {
        "a": {0: np.array([0.1, 0.2, nan]), 1: np.array([0.3, 0.3, 0.3]), 2: np.array([0.4])},
        "b": {0: np.array([nan, 0.5, 0.6]), 1: np.array([0.7, 0.7]), 3: np.array([0.8])},
        "untested": {0: np.array([nan, nan, nan])},
    }
    found = shared_scores(scores)
    assert {name: [*of] for name, of in found.items()} == {"a": [0, 1], "b": [0, 1]}
    np.testing.assert_array_equal(found["a"][0], [nan, 0.2, nan])
    np.testing.assert_array_equal(found["a"][1], [0.3, 0.3, nan])
    np.testing.assert_array_equal(found["b"][1], [0.7, 0.7])
    # Without a shared seed, all count.
    apart = shared_scores({"a": {0: np.array([0.1])}, "b": {1: np.array([0.2])}})
    assert {name: [*of] for name, of in apart.items()} == {"a": [0], "b": [1]}


def test_wilcoxon_over_six_clients_by_hand():
    """All six gain: of 2⁶ signs, two are as extreme."""
    gains = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06])
    assert signed_rank_p(0.5 + gains, np.full(6, 0.5)) == pytest.approx(2 / 64)
    assert signed_rank_p(gains, gains) == 1
    assert np.isnan(signed_rank_p(gains, np.full(6, np.nan)))


@pytest.mark.parametrize("factor", [1, 52346.7])
def test_roundings_break_no_ties(factor):
    """Five gains of 0.1 and three losses: all ranks are tied."""
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.9, 0.8])
    others = np.array([0.8, 0.7, 0.6, 0.5, 0.4, 0.5, 1.0, 0.9])
    expected = wilcoxon([1.0, 1, 1, 1, 1, -1, -1, -1]).pvalue
    assert expected == pytest.approx(0.7266, abs=1e-4)
    assert signed_rank_p(factor * scores, factor * others) == pytest.approx(expected)


def test_holm_by_hand():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


def rising(rounds, slope, clients=10, deviation=0.01):
    """Return scores of clients that rise by so much a round in the last third, from 0.5."""
    rng = np.random.default_rng(0)
    last = rounds - math.ceil(rounds / 3)
    return {
        number: {
            client: 0.5 + slope * max(0, number - last) + rng.normal(0, deviation)
            for client in range(clients)
        }
        for number in range(1, rounds + 1)
    }


@pytest.mark.parametrize(
    ("tests", "improves"),
    [
        (rising(21, 0.003), True),  # 6.3 points in 21 more rounds
        (rising(21, 0), False),
        (rising(21, -0.01), False),
        (rising(21, 0.003, deviation=0.2), False),  # the interval has zero in it
        (rising(21, 0.003, clients=1), False),  # no interval
        (rising(21, 0.0002, deviation=0), False),  # 0.4 points in 21 more rounds
        (rising(2, 0.1, deviation=0), False),  # two tests are no slope
        ({1: {0: 0.5, 1: 0.5}, 9: {0: 0.6}, 20: {1: 0.7}}, False),  # of different clients
        ({}, False),
    ],
)
def test_scores_still_improve_by_the_last_third(tests, improves):
    assert is_still_improving(tests) is improves
    errors = {number: {c: -one for c, one in of.items()} for number, of in tests.items()}
    assert is_still_improving(errors, lower_is_better=True) is improves
    assert not (improves and is_still_improving(errors))


def test_an_error_must_fall_by_a_hundredth():
    tests = {n: dict.fromkeys(range(3), 1000 - 0.2 * n) for n in range(1, 21)}  # 4 in 20 rounds
    assert not is_still_improving(tests, is_share=False, lower_is_better=True)
    tests = {n: dict.fromkeys(range(3), 1000 - 0.6 * n) for n in range(1, 21)}  # 12
    assert is_still_improving(tests, is_share=False, lower_is_better=True)
