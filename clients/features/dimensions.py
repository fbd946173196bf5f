"""How many numbers a feature map makes of an image; without PyTorch, so that one can ask early."""

from __future__ import annotations

import math

from clients.privacy.mechanisms import PROJECTED
from clients.settings import FEATURES
from fl_core.data.settings import are_images, described
from fl_core.own_code import is_own

# Of the histograms of oriented gradients (clients.features.hog).
ORIENTATIONS = 9
CELLS_PER_BLOCK = 2  # along each side
SMALLEST_SIDE = 8  # pixels; below it a quarter of the image is less than a 2-pixel cell
CELLS_ACROSS = 4

ENCODER_DIMENSIONS = {"resnet18": 512, "efficientnet-lite0": 1280}
"""Width of each network's global average pool (clients.features.encoders)."""


def feature_dimension(name: str, shape: tuple[int, ...], *, is_float: bool = False) -> int:
    """Return d of a feature map for samples of this shape, float32 or else uint8.

    None are computed, but by a map of one's own. Images have shape (C, H, W).

    Raises
    ------
    ValueError
        If the name is unknown, it takes images only and these are none, or too small for `hog`.
    """
    check_feature_name(name)
    if is_own(name):
        from clients.features.own_features import own_dimension  # noqa: PLC0415 - PyTorch takes seconds

        return own_dimension(name, tuple(shape), is_float)
    if name == "raw":
        return math.prod(shape)
    if not are_images(shape, is_float=is_float):
        raise ValueError(
            f'features is "{name}", but it takes images, grey or in colour, of bytes, and these '
            f"samples are {described(shape, is_float=is_float)}: use features=raw, or features of "
            "your own."
        )
    if name in ENCODER_DIMENSIONS:
        return ENCODER_DIMENSIONS[name]
    _, height, width = shape
    return hog_dimension(height, width)


def compared_dimension(
    name: str, shape: tuple[int, ...], *, is_float: bool = False, is_private: bool = False
) -> int:
    """Return in how many dimensions clients are compared: fewer, if noise makes features private.

    Raises
    ------
    ValueError
        As `feature_dimension`.
    """
    dimension = feature_dimension(name, shape, is_float=is_float)
    return min(dimension, PROJECTED) if is_private else dimension


def check_feature_name(name: str) -> None:
    """Raise ValueError unless there is a feature map of this name, or it is one's own."""
    if name not in FEATURES and not is_own(name):
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
