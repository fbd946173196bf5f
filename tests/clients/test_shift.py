"""How far images have moved, by hand and on real digits."""

import numpy as np
import pytest
import torch

from clients.signatures.shift import data_shift, image_sketch
from fl_core.messages import protocol
from tests.real_images import mnist_images

THRESHOLD = 0.12  # SignatureClustering's


def constant(*pixels):
    """Images of 2 × 2 pixels that are all the same."""
    grey = torch.tensor(pixels, dtype=torch.uint8)
    return grey.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)


def digits(*labels, start, count):
    """Return `count` images of each digit, which lie in the order of their labels, from `start`."""
    places = [slice(500 * label + start, 500 * label + start + count) for label in labels]
    return torch.cat([mnist_images()[place] for place in places])


def moved(before, after):
    return data_shift(image_sketch(before), image_sketch(after))


def test_by_hand_a_sketch_has_number_variance_and_projected_mean():
    # Four pixels of 0 or 1: each has variance 1/4. The mean, 1/2, is half of that of white images.
    sketch = image_sketch(constant(0, 255))
    assert sketch[:2].tolist() == [2, 1]
    assert len(sketch) == protocol.SKETCH_SIZE
    assert np.allclose(2 * sketch[2:], image_sketch(constant(255))[2:])
    assert not image_sketch(constant(0))[2:].any()


def test_by_hand_a_shift():
    # ‖μ − μ₀‖² = 3² + 4² = 25, by chance ½(8/4 + 16/2) = 5: δ² = (25 − 5)/16.
    known, present = np.array([4, 8, 3, 0]), np.array([2, 16, 0, 4])
    assert data_shift(known, present) == pytest.approx(np.sqrt(20 / 16))
    near = np.array([2, 16, 2, 1])  # 1² + 1² = 2, less than 5
    assert data_shift(known, near) == 0


@pytest.mark.parametrize("count", [6, 20, 80])
def test_more_and_other_images_of_a_task_are_no_change(count):
    """Of each of five digits, so of 30, 100 and 400 images."""
    task = (0, 2, 4, 6, 8)
    before = digits(*task, start=0, count=count)
    for share in (1 / count, 0.1, 0.3):
        new = digits(*task, start=count, count=max(1, round(share * count)))
        one = mnist_images()[450:451]
        same = before[len(new) :] if share == 0.1 else before
        after = torch.cat([same, one if share == 1 / count else new])
        assert moved(before, after) < THRESHOLD


@pytest.mark.parametrize("count", [6, 20, 80])
def test_images_of_another_task_are_a_change_even_for_half_of_them(count):
    before = digits(0, 2, 4, 6, 8, start=0, count=count)
    after = digits(1, 3, 5, 7, 9, start=0, count=count)
    half = torch.cat([before[::2], after[::2]])
    assert moved(before, half) > THRESHOLD
    assert moved(before, after) > 1.5 * moved(before, half)
