"""The digits of experiments/fedbn.toml: the same labels in five styles, no image twice."""

import numpy as np
import pytest

from experiments.shifted_digits import CLIENTS_PER_STYLE, STYLES, TRAIN_IMAGES, load, styled
from fl_core.data.datasets import load_dataset


def test_each_style_does_what_it_is_called():
    image = np.zeros((1, 1, 9, 9), np.uint8)
    image[..., 4, 4] = 250

    def seen(style):
        return styled(image, style, np.random.default_rng(0))[0, 0]

    assert (seen("plain") == image[0, 0]).all()
    assert (seen("inverted")[4, 4], seen("inverted")[0, 0]) == (5, 255)
    assert (seen("low contrast")[4, 4], seen("low contrast")[0, 0]) == (150, 100)
    assert seen("blurred")[4, 4] == seen("blurred").max() < 30
    assert seen("blurred")[4, 5] > seen("blurred")[4, 6] > 0
    clouds = seen("background")
    assert clouds.max() >= 200
    assert len(np.unique(clouds)) > 40


@pytest.mark.slow  # reads 5,000 images
def test_two_clients_have_each_style_and_none_has_another_s_images():
    federation = load()
    assert federation.tasks == [c // CLIENTS_PER_STYLE for c in range(2 * len(STYLES))]
    plain, inverted = federation.clients[0], federation.clients[2]
    digits = load_dataset("mnist-5k")
    known = {image.tobytes() for image in digits.train_samples.numpy()}
    assert len(plain[0]) == TRAIN_IMAGES
    assert {one.tobytes() for one in plain[0]} <= known
    assert {(255 - one).tobytes() for one in inverted[0]} <= known
    mine, others = ({one.tobytes() for one in client[0]} for client in federation.clients[:2])
    assert not mine & others
    assert {len(np.unique(client[1])) for client in federation.clients} == {10}
    again = load()
    assert (again.clients[9][0] == federation.clients[9][0]).all()
