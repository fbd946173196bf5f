"""The samples of a data set or a site, their kind, and words for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

if TYPE_CHECKING:
    from torch import Tensor

_MAX_NAME = 200  # characters


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


class Split(NamedTuple):
    """Training and test samples with their labels; a site may have no test samples."""

    train_samples: Tensor  # uint8, float32 or, before they are scaled, float64, (n, …)
    train_labels: Tensor  # (n,): int64, indices into `class_names`; or floats, to be predicted
    test_samples: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]  # of a number to predict, its name
    is_in_time: bool = False  # training samples are ordered by time, as rows of a table
    notes: tuple[str, ...] = ()  # about samples

    def mapped(
        self, samples: Callable[[Tensor], Tensor], labels: Callable[[Tensor], Tensor]
    ) -> Self:
        """Return a split with what two functions return for samples and labels."""
        return self._replace(
            train_samples=samples(self.train_samples),
            train_labels=labels(self.train_labels),
            test_samples=samples(self.test_samples),
            test_labels=labels(self.test_labels),
        )


@dataclass(frozen=True, eq=False)
class GivenPartition:
    """How many samples each of K clients has; the first samples are those of client 0."""

    train: tuple[int, ...]
    test: tuple[int, ...]
    tasks: tuple[int, ...] | None = None  # the true task of each client, if known
    names: tuple[str, ...] | None = None  # of the clients: people, places
    in_time: frozenset[int] = frozenset()  # clients with training samples ordered by time

    def __post_init__(self) -> None:
        names, count = self.names, len(self.train)
        if names is not None and len(names) != count:
            raise ValueError(f"{len(names)} names for {count} clients: give one for each")
        for client, name in enumerate(names or ()):
            is_line = isinstance(name, str) and name == name.strip() and name.isprintable()
            if not is_line or not 0 < len(name) <= _MAX_NAME:
                raise ValueError(
                    f"{name!r} as the name of client {client}, but a name must be one line of 1 to "
                    f"{_MAX_NAME} characters, without spaces around it"
                )
            if name in (names or ())[:client]:
                raise ValueError(f"two clients named {name}: rename one")


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
            f'standardise is "{scope}", but the samples of {dataset} are pixels: set it to none.'
        )
