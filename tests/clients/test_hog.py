import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.feature import hog as skimage_hog

from clients.features.dimensions import cell_size, hog_dimension
from clients.features.hog import hog
from tests.real_images import mnist_images


def by_skimage(images):
    rows = [
        skimage_hog(
            image.permute(1, 2, 0).numpy(),
            orientations=9,
            pixels_per_cell=cell_size(*images.shape[2:]),
            cells_per_block=(2, 2),
            block_norm="L2-Hys",
            channel_axis=-1,
        )
        for image in images
    ]
    return torch.from_numpy(np.stack(rows)).float()


def same(left, right, tolerance=1e-5):
    return left.shape == right.shape and torch.allclose(left, right, rtol=0, atol=tolerance)


def test_mnist_as_skimage():
    images = mnist_images()[::50]
    features = hog(images)
    assert features.shape == (100, 324)
    assert features.dtype == torch.float32
    assert same(features, by_skimage(images))


@settings(max_examples=150)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(8, 37),
    width=st.integers(8, 37),
    largest=st.sampled_from([1, 2, 5, 255]),
    seed=st.integers(0, 2**32 - 1),
)
def test_random_images_of_any_size_as_skimage(channels, height, width, largest, seed):
    # Few grey levels make many gradients of exactly 0°, 45°, 90° and 135°, the edges of bins,
    # and many channels that are equally strong.
    values = np.random.default_rng(seed).integers(0, largest + 1, (2, channels, height, width))
    images = torch.from_numpy(values.astype(np.uint8))
    features = hog(images)
    assert same(features, by_skimage(images))
    assert features.shape[1] == hog_dimension(height, width)


def test_by_hand_one_step_votes_at_zero_degrees():
    # A step from 0 to 10 between two columns: both sides have the gradient (0, 10), bin 0.
    images = torch.zeros((1, 1, 8, 8), dtype=torch.uint8)
    images[..., 4:] = 10
    blocks = hog(images).view(3, 3, 4, 9)  # of 2 × 2 cells of 2 × 2 pixels
    # In the middle, four equal entries of 1/2, cut off at 0.2, scaled again to 1/2; beside it, the
    # two cells on the step's side have 1/√2.
    assert torch.allclose(blocks[:, 1, :, 0], torch.full((3, 4), 0.5), atol=1e-4)
    assert torch.allclose(blocks[:, 0, 1::2, 0], torch.full((3, 2), 0.5**0.5), atol=1e-4)
    assert not blocks[..., 1:].any()


def test_of_equal_channels_the_first_counts():
    gray = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 1, 16, 16), np.uint8))
    negative = 255 - gray  # the same gradients turned by 180°, so the same directions
    assert same(hog(gray.expand(-1, 3, -1, -1)), hog(gray), 1e-7)
    assert same(hog(torch.cat([gray, negative, gray], dim=1)), hog(gray), 1e-6)


@pytest.mark.parametrize(("height", "width"), [(7, 8), (8, 7), (1, 1)])
def test_small_images_are_refused(height, width):
    with pytest.raises(ValueError, match=f"{height} × {width} pixels, but needs at least 8 × 8"):
        hog(torch.zeros((1, 1, height, width), dtype=torch.uint8))
