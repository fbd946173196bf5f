"""Published data sets: torchvision's files, read or downloaded."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from string import digits
from tempfile import TemporaryDirectory
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor

from fl_core.image_folder import LabelledImages, read_image_folder
from fl_core.text import one_line

logger = logging.getLogger(__name__)

CIFAR10_TAR = "cifar10-images.tar"
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True)
class _Published:
    """How torchvision reads a data set, and the downloads that a user may have put in its folder.

    `class_names` None: those that torchvision gives.
    """

    kind: str
    archives: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    class_names: tuple[str, ...] | None = None
    transposed: bool = False

    def open(self, root: Path, *, train: bool, download: bool) -> Any:
        """Return torchvision's data set."""
        # Imported here since it takes a second or two, which the other data sets need not wait for.
        kind = getattr(import_module("torchvision.datasets"), self.kind)
        return kind(root, train=train, download=download, **self.options)


_IDX_ARCHIVES = tuple(
    f"{part}-ubyte.gz"
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
)
PUBLISHED = {
    "mnist": _Published(
        "MNIST", tuple(f"MNIST/raw/{name}" for name in _IDX_ARCHIVES), class_names=tuple(digits)
    ),
    "fashion-mnist": _Published(
        "FashionMNIST", tuple(f"FashionMNIST/raw/{name}" for name in _IDX_ARCHIVES)
    ),
    "cifar10": _Published("CIFAR10", ("cifar-10-python.tar.gz",)),
    "cifar100": _Published("CIFAR100", ("cifar-100-python.tar.gz",)),
    # EMNIST's files hold every image with rows and columns swapped.
    "emnist-balanced": _Published(
        "EMNIST", ("EMNIST/raw/gzip.zip",), {"split": "balanced"}, transposed=True
    ),
}


def read_published(name: str, root: Path, cache: Path, download: bool) -> LabelledImages:
    """Read the files of one of `PUBLISHED` in `root`, or download them there.

    Raises
    ------
    OSError
        If the files are not there and cannot be downloaded.
    """
    tar = root / CIFAR10_TAR
    if name == "cifar10" and tar.is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _cifar10_from_images(tar, cache)
    tried = f"dataset {name} cannot be read from {root}"
    try:
        return _read(name, root)
    except Exception as error:  # torchvision asserts and reshapes: damage shows as any exception
        tried += f" ({_in_words(error)})"
    if download:
        try:
            return _download(name, root, cache)
        except (OSError, RuntimeError, HTTPException) as error:
            tried += f" and could not be downloaded there ({_in_words(error)})"
    raise FileNotFoundError(
        f"{tried}: put torchvision's files there, set data-dir or FL_DATA_DIR to a folder that "
        'has them, or use dataset="mnist-5k", which needs no files.'
    )


def _in_words(error: Exception) -> str:
    text = one_line(str(error)).removesuffix("You can use download=True to download it")
    return text.rstrip(". ") or type(error).__name__


def _read(name: str, root: Path) -> LabelledImages:
    """Read torchvision's files without a download."""
    published = PUBLISHED[name]
    train, test = (published.open(root, train=t, download=False) for t in (True, False))
    return LabelledImages(
        _pixels(train.data, published.transposed),
        torch.as_tensor(train.targets),
        _pixels(test.data, published.transposed),
        torch.as_tensor(test.targets),
        published.class_names or tuple(train.classes),
    )


def _pixels(data: Any, transposed: bool) -> Tensor:
    """Return torchvision's (n, H, W) or (n, H, W, 3) as (n, C, H, W)."""
    images = torch.as_tensor(data)
    images = images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2)
    return (images.transpose(2, 3) if transposed else images).contiguous()


def _cifar10_from_images(tar: Path, cache: Path) -> LabelledImages:
    logger.info("CIFAR-10 is read from %s: its pixels went through JPEG once.", tar)
    read = read_image_folder(tar, cache)
    if read.classes != _CIFAR10 or not len(read.test_images):
        raise ValueError(
            f"{tar} is not CIFAR-10: it must hold train and test with the classes "
            f"{', '.join(_CIFAR10)}."
        )
    return read


def _download(name: str, root: Path, cache: Path) -> LabelledImages:
    """Fetch the files, whole ones only, while other processes wait for it."""
    published = PUBLISHED[name]
    root.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        with suppress(Exception):
            return _read(name, root)  # another process fetched it just now
        # torchvision takes any MNIST file that exists for a whole one, so it works elsewhere.
        with TemporaryDirectory(dir=root, prefix=".download-") as folder:
            stage = Path(folder)
            for archive in published.archives:
                if (root / archive).is_file():
                    (stage / archive).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(root / archive, stage / archive)
            published.open(stage, train=True, download=True)
            for file in sorted(path for path in stage.rglob("*") if path.is_file()):
                target = root / file.relative_to(stage)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
        return _read(name, root)
