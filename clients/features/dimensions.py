"""The dimension of each feature map, and which map `auto` is; without PyTorch."""

import math

from clients.privacy import PROJECTED
from clients.settings import AUTO
from fl_core.data.samples import are_images, described
from fl_core.relevance import USUAL_EIGENVECTORS
from fl_core.user_code import is_import_path

# Of the histograms of oriented gradients (clients.features.hog).
ORIENTATIONS = 9
CELLS_PER_BLOCK = 2  # along each side
SMALLEST_SIDE = 8  # pixels; below it a quarter of the image is less than a 2-pixel cell
CELLS_ACROSS = 4

ENCODER_DIMENSIONS = {"resnet18": 512, "efficientnet-lite0": 1280}
"""Width of each network's global average pool (clients.features.encoders)."""

# Of what is no image (clients.features.formulas).
FOURIER_DIMENSION = 256
POWER_SPECTRUM = "power-spectrum"


def chosen_features(name: str, shape: tuple[int, ...], *, is_float: bool) -> str:
    """Return the features that `auto` takes for this shape (docs/comparing-clients.md).

    Examples
    --------
    >>> chosen_features("auto", (3, 32, 32), is_float=False)
    'hog'
    >>> chosen_features("auto", (6, 100), is_float=True)
    'power-spectrum'
    """
    if name != AUTO:
        return name
    if are_images(shape, is_float=is_float):
        return "hog"
    # One or two channels have a spectrum of fewer numbers than there are eigenvectors to compare.
    enough = max(USUAL_EIGENVECTORS.values())
    if are_series(shape, is_float=is_float) and _spectrum_dimension(*shape) >= enough:
        return POWER_SPECTRUM
    return "fourier"


def are_series(shape: tuple[int, ...], *, is_float: bool) -> bool:
    """Return whether samples of this shape are series: float32, channels × at least two times."""
    return is_float and len(shape) == 2 and shape[1] > 1


def _spectrum_dimension(channels: int, length: int) -> int:
    """Return d of the mean, the deviation and the octaves of each channel."""
    return channels * (2 + len(octaves(length)))


def octaves(length: int) -> list[int]:
    """Return where each octave of frequencies starts in the real FFT of a series of this length.

    Examples
    --------
    >>> octaves(100)  # of the frequencies 0 to 50
    [1, 2, 4, 8, 16, 32]
    """
    return [2**octave for octave in range((length // 2).bit_length())]


def feature_dimension(name: str, shape: tuple[int, ...], *, is_float: bool = False) -> int:
    """Return d of a feature map for samples of this shape, float32 or uint8; images (C, H, W)."""
    if is_import_path(name):
        from clients.features.user_features import user_features_dimension  # noqa: PLC0415 - slow

        return user_features_dimension(name, tuple(shape), is_float)
    if name == "raw":
        return math.prod(shape)
    if name == "fourier":
        return FOURIER_DIMENSION
    if name == POWER_SPECTRUM:
        right, expected = are_series, "series, float32 of shape channels×times"
    else:
        right, expected = are_images, "images, grey or in colour, of bytes"
    if not right(shape, is_float=is_float):
        raise ValueError(
            f'features is "{name}", but it takes {expected}, and these samples are '
            f"{described(shape, is_float=is_float)}: use features={AUTO}, or user-defined features."
        )
    if name == POWER_SPECTRUM:
        return _spectrum_dimension(*shape)
    if name in ENCODER_DIMENSIONS:
        return ENCODER_DIMENSIONS[name]
    _, height, width = shape
    return hog_dimension(height, width)


def compared_dimension(
    name: str, shape: tuple[int, ...], *, is_float: bool = False, is_private: bool = False
) -> int:
    """Return the dimension in which clients are compared: fewer, if features have noise."""
    dimension = feature_dimension(name, shape, is_float=is_float)
    return min(dimension, PROJECTED) if is_private else dimension


def cell_size(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of a cell, in pixels: a quarter of the image's."""
    return height // CELLS_ACROSS, width // CELLS_ACROSS


def hog_dimension(height: int, width: int) -> int:
    """Return d, the number of features that `hog` gives an image of height × width pixels."""
    if min(height, width) < SMALLEST_SIDE:
        raise ValueError(
            f'features="hog" was given images of {height} × {width} pixels, but needs at least '
            f'{SMALLEST_SIDE} × {SMALLEST_SIDE}: use larger images or features="raw".'
        )
    down, across = cell_size(height, width)
    blocks = (height // down - CELLS_PER_BLOCK + 1) * (width // across - CELLS_PER_BLOCK + 1)
    return blocks * CELLS_PER_BLOCK**2 * ORIENTATIONS
