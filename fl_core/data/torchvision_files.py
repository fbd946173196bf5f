"""Where torchvision's files of published data sets are, and how it calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any


@dataclass(frozen=True)
class Published:
    """A data set of torchvision, and what is known of it before anything is read.

    Attributes
    ----------
    kind : str
        torchvision's class.
    idx : tuple of str
        Its IDX files: training images and labels, test images and labels; empty: it has others.
    class_names : tuple of str
        Empty: those that torchvision gives.
    num_classes : int
    image_shape : tuple of int
        Channels, height and width.
    options : mapping
        Of torchvision's class.
    transposed : bool
        Whether images lie in its files with rows and columns swapped.
    """

    kind: str
    idx: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    num_classes: int = 10
    options: Mapping[str, str] = field(default_factory=dict)
    transposed: bool = False
    image_shape: tuple[int, int, int] = (1, 28, 28)

    def open(self, root: Path, *, train: bool, download: bool) -> Any:
        """Return torchvision's data set."""
        # Imported here since it takes seconds, which other data sets need not wait for.
        kind = getattr(import_module("torchvision.datasets"), self.kind)
        return kind(root, train=train, download=download, **self.options)


_PARTS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def _idx_files(folder: str, train: str, test: str) -> tuple[str, ...]:
    return tuple(f"{folder}/raw/{which}-{part}" for which in (train, test) for part in _PARTS)


PUBLISHED = {
    "mnist": Published("MNIST", _idx_files("MNIST", "train", "t10k"), tuple(digits)),
    "fashion-mnist": Published(
        "FashionMNIST",
        _idx_files("FashionMNIST", "train", "t10k"),
        (
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
    ),
    "cifar10": Published("CIFAR10", image_shape=(3, 32, 32)),
    "cifar100": Published("CIFAR100", num_classes=100, image_shape=(3, 32, 32)),
    "emnist-balanced": Published(
        "EMNIST",
        _idx_files("EMNIST", "emnist-balanced-train", "emnist-balanced-test"),
        # Letters whose small form looks like the large one have a class for both.
        tuple(digits + ascii_uppercase + "abdefghnqrt"),
        47,
        {"split": "balanced"},
        transposed=True,
    ),
}
