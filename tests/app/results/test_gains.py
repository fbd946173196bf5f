"""Clients' gains, informed by those of the others: against sampling, and by simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fl_app.results.gains import (
    bounded,
    counts_variance,
    differences_variance,
    estimate_gains,
    samples_to_decide,
)


def test_gains_are_those_of_a_computation_by_random_draws():
    """Draws from the prior, weighted by how likely they make what was observed."""
    observed = np.array([0.12, 0.02, -0.06, 0.1])
    variances = np.array([0.002, 0.004, 0.001, 0.01])
    rng, draws = np.random.default_rng(0), 2_000_000
    mean = rng.uniform(-0.8, 0.8, draws)
    spread = np.abs(0.1 * rng.standard_cauchy(draws))
    is_possible = spread < 0.4
    mean, spread = mean[is_possible], spread[is_possible]
    gains = mean + spread * rng.standard_t(3, (4, len(mean)))
    weights = np.exp(-((observed[:, None] - gains) ** 2 / variances[:, None]).sum(axis=0) / 2)
    weights /= weights.sum()
    found = estimate_gains(observed, variances)
    assert found.mean == pytest.approx(gains @ weights, abs=0.003)
    assert found.better == pytest.approx((gains > 0) @ weights, abs=0.01)
    assert found.common_mean[0] == pytest.approx(mean @ weights, abs=0.003)
    assert found.spread == pytest.approx(spread @ weights, abs=0.005)
    order = np.argsort(gains[0])
    ends = gains[0, order][np.searchsorted(weights[order].cumsum(), [0.025, 0.975])]
    assert found.interval[0] == pytest.approx(ends, abs=0.005)
    deviation = np.sqrt(gains[1] ** 2 @ weights - (gains[1] @ weights) ** 2)
    assert found.deviation[1] == pytest.approx(deviation, abs=0.003)
    average = gains[[0, 3]].mean(axis=0)
    mean, deviation = found.average([0, 3])
    assert mean == pytest.approx(average @ weights, abs=0.003)
    assert deviation == pytest.approx(np.sqrt((average - mean) ** 2 @ weights), abs=0.003)
    assert found.within(1, 0.01) == pytest.approx((np.abs(gains[1]) < 0.01) @ weights, abs=0.01)


def test_the_interval_of_the_common_mean_is_around_it():
    """Of 2,000 clients without a gain, it is in the cell around 0, from −0.5 to 0.5 points."""
    mean, low, high = estimate_gains(np.zeros(2000), np.full(2000, 0.01)).common_mean
    assert (mean, low, high) == pytest.approx((0, -0.00475, 0.00475), abs=1e-5)


@settings(max_examples=25)
@given(
    arrays.arrays(np.float64, 5, elements=st.floats(-1e30, 1e30)),
    arrays.arrays(np.float64, 5, elements=st.floats(1e-12, 1e30)),
    st.permutations(range(5)),
)
def test_neither_order_nor_sign_matters_and_any_number_has_a_gain(observed, variances, order):
    found = estimate_gains(observed, variances)
    assert np.isfinite(found.cells).all()
    assert found.cells.sum(axis=1) == pytest.approx(np.ones(5))
    other = estimate_gains(observed[order], variances[order])
    assert other.mean == pytest.approx(found.mean[order], abs=1e-9)
    turned = estimate_gains(-observed, variances)
    assert turned.mean == pytest.approx(-found.mean, abs=1e-9)
    assert turned.better == pytest.approx(1 - found.better, abs=1e-9)


def test_few_samples_are_drawn_to_the_others_and_many_or_one_unlike_them_are_not():
    observed = np.array([0.08] * 19 + [-0.1, -0.1, -0.4])
    variances = np.full(22, 0.2 / 60)
    variances[-2] = 0.2 / 6000
    mean = estimate_gains(observed, variances).mean
    assert mean[0] == pytest.approx(0.08, abs=0.02)
    assert -0.06 < mean[-3] < 0
    assert mean[-2] == pytest.approx(-0.1, abs=0.01)
    assert mean[-1] < -0.3


@pytest.mark.parametrize(
    ("gain", "clients", "joining", "wrong"),
    [
        (lambda rng, n: rng.normal(0.05, 0.04, n), 20, (0.25, 0.5), 0.05),
        (lambda rng, n: np.where(np.arange(n) % 5 == 4, -0.08, 0.08), 20, (0.2, 0.5), 0.03),
        *((lambda rng, n: np.zeros(n), clients, (0, 0.02), 1) for clients in (4, 8, 40)),
    ],
)
def test_few_lose_of_those_that_join_and_intervals_have_the_gain_in_them(
    gain, clients, joining, wrong
):
    """Of 60 samples a fifth differ."""
    rng, found = np.random.default_rng(0), []
    for _ in range(2000 // clients):
        true = gain(rng, clients)
        differing = np.maximum(0.2 * rng.uniform(0.5, 1.5, clients), np.abs(true) + 0.01)
        wins = rng.binomial(60, (differing + true) / 2)
        losses = rng.binomial(60 - wins, (differing - true) / (2 - differing - true))
        counts = np.full(clients, 60.0)
        one = estimate_gains((wins - losses) / counts, counts_variance(wins, losses, counts))
        found.append((true, one.better >= 0.975, *one.interval.T))
    true, joins, low, high = np.concatenate(found, axis=1)
    assert joining[0] <= joins.mean() <= joining[1]
    assert (true[joins > 0] <= 0).mean() <= wrong
    assert ((low <= true) & (true <= high)).mean() > 0.91


def test_variances_are_those_of_all_clients_together():
    wins, losses, samples = np.array([6.0, 0.0]), np.array([2.0, 0.0]), np.array([20.0, 20.0])
    # 8 of 40 samples differ, by 4 in 40: 0.2 − 0.1², over 20.
    assert counts_variance(wins, losses, samples) == pytest.approx([0.0095, 0.0095])
    none = np.zeros(2)
    assert counts_variance(none, none, samples) == pytest.approx([0.001, 0.001])  # 2 % differ
    # (10 · 4 + 10 · 2) / 20 = 3; a client's variance counts with 10 degrees of 20.
    found = differences_variance(np.array([4.0, 2.0]), np.array([11.0, 11.0]))
    assert found == pytest.approx([3.5 / 11, 2.5 / 11])


def test_no_client_decides_for_the_others():
    assert bounded(np.array([1.0, 2.0, 1e12])).tolist() == [1, 2, 20]
    wins, losses = np.array([4.0, 4.0, 0.0]), np.array([0.0, 4.0, 0.0])
    liar = counts_variance(wins, losses, np.array([20.0, 20.0, 1e12]))
    assert liar[0] > 0.02 / 20


@pytest.mark.parametrize("observed", [0.08, 0.1, 0.12])
def test_so_many_samples_decide_in_four_of_five_cases(observed):
    """Other samples are drawn where the client gains as expected, its τ as expected, too."""
    gains, variances = np.array([0.02, 0.04, 0.06, observed]), np.full(4, 0.2 / 40)
    found = estimate_gains(gains, variances)
    needed = samples_to_decide(found, 3, float(variances[3]), 40, 0.975)
    rng, mean, spread = np.random.default_rng(0), found.common_mean[0], found.spread

    def decided(samples):
        drawn = rng.normal(found.mean[3], np.sqrt(0.2 / samples), 20_000)
        weight = spread**2 / (spread**2 + 0.2 / samples)
        deviation = np.sqrt(weight * 0.2 / samples)
        return np.mean(weight * drawn + (1 - weight) * mean > 1.96 * deviation)

    assert decided(needed) == pytest.approx(0.8, abs=0.02)
    assert decided(needed // 2) < 0.75


def test_no_number_of_samples_is_advised_where_ten_times_as_many_would_not_do():
    found = estimate_gains(np.zeros(5), np.full(5, 0.2 / 40))
    assert samples_to_decide(found, 0, 0.2 / 40, 40, 0.975) is None
