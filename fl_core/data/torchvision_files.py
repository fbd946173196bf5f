"""The published data sets of torchvision, by name: files, classes and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any


@dataclass(frozen=True)
class Published:
    """A data set of torchvision, described before anything is read."""

    kind: str  # torchvision's class
    idx: tuple[str, ...] = ()  # IDX files: training images and labels, test images and labels
    class_names: tuple[str, ...] = ()  # empty: torchvision gives them
    num_classes: int = 10
    options: Mapping[str, str] = field(default_factory=dict)  # of torchvision's class
    transposed: bool = False  # its files have rows and columns swapped
    sample_shape: tuple[int, int, int] = (1, 28, 28)

    def open(self, root: Path, *, train: bool, download: bool) -> Any:
        """Return torchvision's data set; its import takes seconds."""
        kind = getattr(import_module("torchvision.datasets"), self.kind)
        return kind(root, train=train, download=download, **self.options)


_FILE_NAME_ENDS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def _idx_files(folder: str, train: str, test: str) -> tuple[str, ...]:
    return tuple(
        f"{folder}/raw/{which}-{part}" for which in (train, test) for part in _FILE_NAME_ENDS
    )


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
    "cifar10": Published("CIFAR10", sample_shape=(3, 32, 32)),
    "cifar100": Published("CIFAR100", num_classes=100, sample_shape=(3, 32, 32)),
    "emnist-balanced": Published(
        "EMNIST",
        _idx_files("EMNIST", "emnist-balanced-train", "emnist-balanced-test"),
        # A letter of one shape in both cases has one class for both.
        tuple(digits + ascii_uppercase + "abdefghnqrt"),
        47,
        {"split": "balanced"},
        transposed=True,
    ),
}
