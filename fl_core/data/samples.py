"""What a sample is: an image, a row of a table, a series; and what it is called."""

from __future__ import annotations

from typing import Protocol


class SampleForm(Protocol):
    """What one sample is, whatever it is labelled with."""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample: of an image, channels, height and width."""

    @property
    def is_float(self) -> bool:
        """Return whether samples are float32; otherwise they are pixels, uint8."""


class SampleKind(SampleForm, Protocol):
    """What the samples of a data set have in common."""

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""

    @property
    def is_regression(self) -> bool:
        """Return whether what is to be predicted is a number, not a class."""


def are_images(shape: tuple[int, ...], *, is_float: bool) -> bool:
    """Return whether samples of this shape are grey or colour images of bytes."""
    return not is_float and len(shape) == 3 and shape[0] in (1, 3)


def grey_or_colour(channels: int) -> str:
    """Return what images of one channel, or of three, are called."""
    return "grey" if channels == 1 else "colour"


def sample_word(kind: SampleForm) -> str:
    """Return what one of the samples is called: image, or sample."""
    return "image" if are_images(kind.image_shape, is_float=kind.is_float) else "sample"


def described(shape: tuple[int, ...], *, is_float: bool) -> str:
    """Describe samples in words: `float32 of shape 30`."""
    return f"{'float32' if is_float else 'uint8'} of shape {'×'.join(map(str, shape))}"
