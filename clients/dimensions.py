"""How many numbers a feature map makes of an image; without PyTorch, so that one can ask early."""

from __future__ import annotations

import math

from clients.settings import FEATURES

# Of the histograms of oriented gradients (clients.hog).
ORIENTATIONS = 9
CELLS_PER_BLOCK = 2  # along each side
SMALLEST_SIDE = 8  # pixels; below it a quarter of the image is less than a 2-pixel cell
CELLS_ACROSS = 4

ENCODER_DIMENSIONS = {"resnet18": 512, "efficientnet-lite0": 1280}
"""Width of each network's global average pool (clients.encoders)."""


def feature_dimension(name: str, image_shape: tuple[int, int, int]) -> int:
    """Return d of a feature map for images of shape (C, H, W), without computing any.

    Raises
    ------
    ValueError
        If the name is unknown, or the images are too small for `hog`.
    """
    check_feature_name(name)
    if name in ENCODER_DIMENSIONS:
        return ENCODER_DIMENSIONS[name]
    _, height, width = image_shape
    return hog_dimension(height, width) if name == "hog" else math.prod(image_shape)


def check_feature_name(name: str) -> None:
    """Raise ValueError unless there is a feature map of this name."""
    if name not in FEATURES:
        raise ValueError(f'features is "{name}", but must be one of {", ".join(FEATURES)}.')


def cell_size(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of a cell, in pixels: a quarter of the image's."""
    return height // CELLS_ACROSS, width // CELLS_ACROSS


def hog_dimension(height: int, width: int) -> int:
    """Return d, the number of features that `hog` gives an image of height × width pixels.

    Raises
    ------
    ValueError
        If the image is smaller than 8 × 8 pixels.
    """
    if min(height, width) < SMALLEST_SIDE:
        raise ValueError(
            f'features="hog" was given images of {height} × {width} pixels, but needs at least '
            f'{SMALLEST_SIDE} × {SMALLEST_SIDE}: use larger images or features="raw".'
        )
    down, across = cell_size(height, width)
    blocks = (height // down - CELLS_PER_BLOCK + 1) * (width // across - CELLS_PER_BLOCK + 1)
    return blocks * CELLS_PER_BLOCK**2 * ORIENTATIONS
