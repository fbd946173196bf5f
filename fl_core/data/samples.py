"""The shape and type of samples, and words for them."""

from __future__ import annotations

from typing import Protocol


class SampleForm(Protocol):
    """The shape and type of samples, independent of labels."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
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
        """Return whether labels are numbers to predict."""


def are_images(shape: tuple[int, ...], *, is_float: bool) -> bool:
    """Return whether samples of this shape are grey or colour images of uint8."""
    return not is_float and len(shape) == 3 and shape[0] in (1, 3)


def grey_or_colour(channels: int) -> str:
    """Return the word for images of one channel, or of three."""
    return "grey" if channels == 1 else "colour"


def sample_word(kind: SampleForm) -> str:
    """Return the word for one of the samples: image, or sample."""
    return "image" if are_images(kind.sample_shape, is_float=kind.is_float) else "sample"


def described(shape: tuple[int, ...], *, is_float: bool) -> str:
    """Describe samples as text: `float32 of shape 30`."""
    return f"{'float32' if is_float else 'uint8'} of shape {'×'.join(map(str, shape))}"


def check_no_pixels(dataset: str, scope: str, is_float: bool) -> None:
    """Refuse to standardise pixels, by a ValueError; of data not read yet, `is_float` is True."""
    if not is_float:
        raise ValueError(
            f'standardise is "{scope}", but the samples of {dataset} are pixels, which are scaled '
            "to [0, 1]: set standardise to none."
        )
