"""Features of tables and series by hand, and which ones `auto` is."""

import numpy as np
import pytest
import torch

from clients.features.compute import feature_map
from clients.features.dimensions import chosen_features, feature_dimension

SERIES = ["power-spectrum", "fourier", "raw"]


def drawn(*shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return torch.from_numpy(values.astype(np.float32))


# ------------------------------------------------------------------------------------ fourier


def test_inner_products_of_fourier_features_approximate_the_gaussian_kernel():
    rows = drawn(60, 9)
    phi = feature_map("fourier")(rows)
    kernel = torch.exp(-(torch.cdist(rows, rows) ** 2) / (2 * 9))
    difference = phi @ phi.T - kernel
    # Each is a mean of 128 cosines, with a deviation below 1/√128.
    assert difference.diagonal().abs().max() < 1e-6
    assert difference.abs().max() < 4.5 / np.sqrt(128)
    assert difference.square().mean().sqrt() < 1 / np.sqrt(128)


# ------------------------------------------------------------------------------------- series


@pytest.mark.parametrize(("frequency", "octave"), [(1, 0), (3, 1), (5, 2), (31, 4)])
def test_a_sine_lands_in_its_octave(frequency, octave):
    times = torch.arange(64) / 64
    wave = 3 + 2 * torch.sin(2 * torch.pi * frequency * times)
    (row,) = feature_map("power-spectrum")(wave[None, None])
    # Mean 3, deviation √2, and all of the variance, 2, in one of the six octaves.
    expected = [3, np.sqrt(2)] + [0.0] * 6
    expected[2 + octave] = np.sqrt(2)
    np.testing.assert_allclose(row, np.array(expected) / np.sqrt(13), atol=1e-6)


# --------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("shape", [(6, 100), (1, 2), (3, 7)])
def test_each_row_is_that_of_its_sample_alone(name, shape):
    phi, series = feature_map(name), drawn(9, *shape)
    rows = phi(series)
    assert rows.shape == (9, feature_dimension(name, shape, is_float=True))
    assert rows.dtype == torch.float32
    some = torch.tensor([5, 2])
    np.testing.assert_allclose(phi(series[some]), rows[some], atol=1e-7)
    assert phi(series[:0]).shape == (0, rows.shape[1])


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 6), torch.float32), ((2, 1, 28, 28), torch.uint8), ((2, 3, 1), torch.float32)],
)
def test_what_is_no_series_has_no_spectrum(shape, dtype):
    samples = torch.zeros(shape, dtype=dtype)
    with pytest.raises(ValueError, match=r"power-spectrum needs series, .* use fourier\.$"):
        feature_map("power-spectrum")(samples)
    said = 'features is "power-spectrum", but it takes series, .* use features=auto'
    with pytest.raises(ValueError, match=said):
        feature_dimension("power-spectrum", shape[1:], is_float=dtype == torch.float32)


@pytest.mark.parametrize(
    ("shape", "is_float", "name"),
    [
        ((1, 28, 28), False, "hog"),
        ((3, 32, 32), False, "hog"),
        ((3, 32, 32), True, "fourier"),
        ((12,), True, "fourier"),
        ((12,), False, "fourier"),
        ((6, 100), True, "power-spectrum"),
        ((3, 50), True, "power-spectrum"),  # 21 numbers, more than 20 eigenvectors
        ((2, 200), True, "fourier"),  # 18
        ((6, 100), False, "fourier"),
    ],
)
def test_auto_goes_by_the_kind_of_samples(shape, is_float, name):
    assert chosen_features("auto", shape, is_float=is_float) == name
    assert chosen_features("raw", shape, is_float=is_float) == "raw"
    assert feature_dimension(name, shape, is_float=is_float) >= 20
