"""Digits in five styles: the same labels everywhere, but pixels of another kind (feature shift).

FedBN's experiment (X. Li et al., ICLR 2021, section 5) has five data sets of digits, of which
MNIST is one. Here its images are changed into four other styles instead, so that nothing needs to
be downloaded: light on dark, dark on light, of low contrast, blurred, and before a background, as
MNIST-M has one.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from fl_core.data.datasets import load_dataset
from fl_core.data.user_data import ClientArrays, Partitions

STYLES = ("plain", "inverted", "low contrast", "blurred", "background")
CLIENTS_PER_STYLE = 2
# Of each client, as in FedBN's code: a tenth of the smallest of its data sets, 743 images.
TRAIN_IMAGES = 743 // 2
TEST_IMAGES = 100

UInt8 = NDArray[np.uint8]


def load() -> Partitions:
    """Return ten clients, two of each style, with images that no other has; a task is a style."""
    digits = load_dataset("mnist-5k")
    rng = np.random.default_rng(0)
    clients: list[ClientArrays] = []
    train, test = (
        rng.permutation(len(labels)) for labels in (digits.train_labels, digits.test_labels)
    )
    for client in range(len(STYLES) * CLIENTS_PER_STYLE):
        style = STYLES[client // CLIENTS_PER_STYLE]
        mine = train[client * TRAIN_IMAGES :][:TRAIN_IMAGES]
        tested = test[client * TEST_IMAGES :][:TEST_IMAGES]
        clients.append(
            (
                styled(digits.train_samples[mine].numpy(), style, rng),
                digits.train_labels[mine],
                styled(digits.test_samples[tested].numpy(), style, rng),
                digits.test_labels[tested],
            )
        )
    tasks = [client // CLIENTS_PER_STYLE for client in range(len(clients))]
    return Partitions(clients, tasks, digits.class_names)


def styled(images: UInt8, style: str, rng: np.random.Generator) -> UInt8:
    """Return grey images, uint8 (n, 1, H, W), in one of `STYLES`."""
    pixels = images.astype(np.float64)
    if style == "inverted":
        pixels = 255 - pixels
    elif style == "low contrast":
        pixels = 100 + 0.2 * pixels
    elif style == "blurred":
        pixels = gaussian_filter(pixels, sigma=(0, 0, 1.5, 1.5))
    elif style == "background":
        clouds = gaussian_filter(rng.normal(size=pixels.shape), sigma=(0, 0, 2, 2))
        span = np.ptp(clouds, axis=(2, 3), keepdims=True)
        background = 255 * (clouds - clouds.min(axis=(2, 3), keepdims=True)) / span
        pixels = np.abs(background - pixels)  # as MNIST-M is made of MNIST and photographs
    return pixels.round().astype(np.uint8)
