"""Columns of one scale, by training rows alone: numbers worked by hand."""

import numpy as np
import pytest
import torch

from fl_core.data.dataset import Dataset
from fl_core.data.samples import GivenPartition
from fl_core.data.scaling import ColumnStatistics, Scaling, _columns
from fl_core.partitions.federation import spread
from fl_core.partitions.settings import FederationSettings

TRAIN = [[0, 7, 0], [4, 7, 0], [10, 9, 1], [14, 9, 0]]
"""Means 7, 8 and a quarter; deviations √29, 1, and that of a flag, which counts as 1."""
TEST = [[7, 8, 1], [1000, 10, 1]]


def data(train=TRAIN, test=TEST, dtype=torch.float32, held=True):
    train, test = (torch.tensor(rows, dtype=dtype) for rows in (train, test))
    labels = [torch.arange(len(rows)) % 2 for rows in (train, test)]
    two = GivenPartition((2, 2), (1, 1), names=("a", "b"))
    return Dataset(
        "some",
        *(train, labels[0], test, labels[1], ("no", "yes")),
        given_partition=two if held else None,
        column_names=("x", "y [m]", "flag")[: train.shape[1]],
    )


def together(parts):
    """Return each column's mean and divisor, of some parts' rows, and whether it is constant."""
    found = ColumnStatistics.merged([ColumnStatistics.of(rows) for rows in parts])
    scaling = Scaling.fit(found)
    return np.array(scaling.mean), np.array(scaling.deviation), found.deviation == 0


def moments(rows):
    return together([rows])


def federation(scope, given):
    settings = FederationSettings(
        dataset="some", num_clients=2, seed=0, standardise=scope, num_tasks=1, min_samples=1
    )
    return spread(settings, given)


def samples(scope, *given, **options):
    found = federation(scope, data(*given, **options)).dataset
    return found.train_samples, found.test_samples


def test_all_is_by_all_training_rows_together():
    train, test = samples("all")
    root = 29**0.5
    expected = [[-7 / root, -1, -0.25], [-3 / root, -1, -0.25], [3 / root, 1, 0.75]]
    torch.testing.assert_close(train, torch.tensor([*expected, [7 / root, 1, -0.25]]))
    torch.testing.assert_close(test, torch.tensor([[0, 0, 0.75], [993 / root, 2, 0.75]]))


def test_site_scales_by_the_training_rows_of_each_site():
    train, test = samples("site")
    assert train.tolist() == [[-1, 0, 0], [1, 0, 0], [-1, 0, 0.5], [1, 0, -0.5]]
    assert test.tolist() == [[2.5, 1, 1], [494, 1, 0.5]]


@pytest.mark.parametrize("scope", ["all", "site"])
def test_test_rows_change_no_training_row(scope):
    other = [[-5, 1e6, 0], [0, 0, 0]]
    assert torch.equal(samples(scope)[0], samples(scope, TRAIN, other)[0])


def test_what_others_share_is_not_written_to():
    shared = data()
    spread(FederationSettings(dataset="some", num_clients=2, seed=0, standardise="all"), shared)
    assert shared.train_samples.tolist() == TRAIN


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        ("all", "constant in all training rows: y [m]; standardised by a deviation of 1"),
        ("site", "constant at some site: x, y [m]; standardised by a deviation of 1"),
    ],
)
def test_constant_columns_are_noted(scope, said):
    constant = data([[3, 7, 0], [3, 7, 0], [10, 7, 1], [14, 7, 0]])
    found = federation(scope, constant).dataset
    train, test = found.train_samples, found.test_samples
    assert found.notes == (said,)
    assert train[:, 1].tolist() == [0, 0, 0, 0]
    assert test[:, 1].tolist() == [1, 3]


def test_a_large_mean_costs_no_digits():
    values = torch.tensor([[2.0**24], [2.0**24 + 2]])
    mean, deviation, _ = moments(values)
    assert Scaling(tuple(mean), tuple(deviation)).transform(values).tolist() == [[-1], [1]]
    constant = torch.full((7, 1), 0.1)
    assert moments(constant)[1].tolist() == [1]


def test_a_series_has_a_mean_for_each_channel():
    series = torch.tensor([[[0.0, 2.0], [5.0, 5.0]], [[4.0, 6.0], [5.0, 9.0]]])
    mean, deviation, _ = moments(series)
    assert (mean.tolist(), deviation.tolist()) == ([3, 6], [5**0.5, 3**0.5])
    divided = Scaling((3.0, 6.0), (3.0, 2.0)).transform(series)
    expected = [[[-1, -1 / 3], [-0.5, -0.5]], [[1 / 3, 1], [-0.5, 1.5]]]
    torch.testing.assert_close(divided, torch.tensor(expected))


@pytest.mark.parametrize(
    ("first", "second", "mean", "deviation", "constant"),
    [
        ([3, 3], [3], 3, 1, True),  # constant everywhere
        ([3, 3], [6], 4, 2**0.5, False),  # at each site, but not together
        ([0, 1], [1, 1], 0.75, 1, False),  # zeros and ones keep their scale
        ([0, 2], [1, 1], 1, 0.5**0.5, False),  # which these are not
    ],
)
def test_moments_of_two_sites_by_hand(first, second, mean, deviation, constant):
    parts = [torch.tensor(rows, dtype=torch.float32)[:, None] for rows in (first, second)]
    found = [part[0] for part in together(parts)]
    assert found == pytest.approx([mean, deviation, constant])


def test_a_sites_deviation_too_small_to_be_squared_does_not_end_the_run():
    one = ColumnStatistics.of(torch.full((3, 1), 5.0))
    liar = one._replace(deviation=np.array([1e-200]))
    assert Scaling.fit(ColumnStatistics.merged([one, liar])).deviation == (1,)


def test_what_cannot_be_standardised_is_one_sentence():
    with pytest.raises(
        ValueError, match=r"^standardise is \"all\", but the samples of some are pix"
    ):
        samples("all", test=[[1, 1, 1]] * 2, dtype=torch.uint8)
    with pytest.raises(
        ValueError, match=r"^standardise is \"site\", but some does not come in one"
    ):
        samples("site", held=False)


def of_one_column(columns, numbers, held=True):
    """Return data with these values at both of two sites, for training and for testing."""
    columns, numbers = (
        torch.tensor([*one, *one], dtype=torch.float64) for one in (columns, numbers)
    )
    return Dataset(
        "some",
        *(columns[:, None], numbers, columns[:, None], numbers, ("seconds",)),
        given_partition=GivenPartition((len(columns) // 2,) * 2, (len(columns) // 2,) * 2),
        column_names=("x",),
    )


STEPS = [0.0, 1, 2, 3, 6]


@pytest.mark.parametrize("scope", ["all", "site"])
def test_an_offset_changes_no_scaled_number(scope):
    """float32 has steps of 128 near 1.7e9, and of a half near 5,820,000.123."""
    near = federation(scope, of_one_column(STEPS, STEPS)).dataset
    far = of_one_column([5_820_000.123 + x for x in STEPS], [1.7e9 + y for y in STEPS])
    far = federation(scope, far).dataset
    # Mean 2.4, variance (0 + 1 + 4 + 9 + 36)/5 - 2.4² = 4.24.
    expected = torch.tensor([(x - 2.4) / 4.24**0.5 for x in STEPS] * 2)
    for found in (near, far):
        torch.testing.assert_close(found.train_labels, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.train_samples[:, 0], expected, rtol=0, atol=1e-6)
    back = far.scalings[0].restore_targets(far.train_labels)
    assert (back - 1.7e9).tolist() == pytest.approx(STEPS * 2, abs=1e-5)


@pytest.mark.parametrize(
    ("scope", "column", "target", "named"),
    [
        ("none", [5_820_000.1 + x / 10 for x in STEPS], STEPS, "column x has 5 .* leaves 2"),
        ("none", STEPS, [1.7e9 + y for y in STEPS], "the target seconds has 5 .* leaves 1"),
        ("all", [*STEPS, 1e12], [*STEPS, 4], "column x has 6 .* leaves 2"),
        ("site", [*STEPS, 1e12], [*STEPS, 4], "column x has 6 .* leaves 2"),
    ],
)
def test_a_column_that_float32_collapses_is_refused(scope, column, target, named):
    with pytest.raises(ValueError, match=f"^{named}.*set standardise to site or all"):
        federation(scope, of_one_column(column, target))


def test_rounding_of_float64_is_no_different_value():
    column = [0.1 * 3, 0.3, 0.1 + 0.2, 1.0, -0.0, 0.0]
    assert len(set(column)) == 4
    found = federation("none", of_one_column(column, [*STEPS, 7])).dataset
    assert found.train_samples.dtype == found.train_labels.dtype == torch.float32


def test_of_columns_of_many_numbers_some_are_compared():
    # Two channels of 400 images of 100 × 100: four million numbers each.
    columns = _columns(torch.zeros(400, 2, 100, 100, dtype=torch.float64))
    assert columns.shape == (2, 10_000)
