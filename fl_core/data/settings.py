"""What a run configuration may say of data and models: names and options, apart from their code.

They are read without PyTorch, so a wrong one is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fl_core.data.torchvision_files import PUBLISHED
from fl_core.options import (
    NotAllowedError,
    Rule,
    one_of,
)
from fl_core.user_code import is_own

PLUS = "+"
NUM_ROTATIONS = 4
"""Of `rotated-mnist`: each is a task."""
SYNTHETIC = "synthetic"
TABLES = "tables"
SITES = "sites"
IN_DATA_DIR = ("folder", SITES, TABLES)
"""Data sets that are whatever the data folder holds."""
OWN_IMAGES = "own"
"""The data set of real devices: each has images of its own."""

WINDOW, TRAIN_SHARE = 100, 0.2
NOBODY, SITE, ALL_SITES = "none", "site", "all"
"""Whose mean and deviation standardise samples."""

BY_VALUES, A_NUMBER = "auto", "number"
"""What the target of tables is: as its values look, or a number to predict."""
TARGET = one_of((BY_VALUES, A_NUMBER))

TESTS = {"task": "on its task", "own": "on its own data"}
"""What a client can be tested on, and what tables call it."""

ASKED = (
    "On its task asks how good a client's model is at all of its task, much of which that client "
    "may have hardly seen; on its own data, how good it is at the mix of classes that it has "
    "itself."
)
"""What the two columns of a table ask."""

MODELS = ("logistic-regression", "mlp", "mlp-32", "cnn", "cnn-norm", "leaf-cnn")


def name_of_test(client_test: str) -> str:
    """Return what files call a way to test clients, such as `on-its-own-data`."""
    return TESTS[client_test].replace(" ", "-")


class Known(NamedTuple):
    """What is known of a data set before its files are read.

    Attributes
    ----------
    image_shape : tuple of int
        Channels, height and width.
    num_classes : int
    """

    image_shape: tuple[int, ...]
    num_classes: int

    @property
    def is_float(self) -> bool:
        """Return False: they are images of bytes."""
        return False

    @property
    def is_regression(self) -> bool:
        """Return False: they have classes."""
        return False


class Source(NamedTuple):
    """What a data set's reader is given.

    Attributes
    ----------
    name : str
        The data set's.
    root, cache : Path
        Where data sets are, and what can be made again.
    seed : int
        Says which samples are for testing, where the data set itself does not.
    download : bool
        Whether what is not there may be fetched.
    window : int
        How many samples a window of a recording has.
    train_share : float
        The share of a client's time that is for training, where the data are split by time.
    label : str
        Of tables, the column that holds the label; empty: the one with a usual name.
    target : {"auto", "number"}
        Of tables, whether labels are numbers to predict even if all are whole.
    """

    name: str
    root: Path
    cache: Path
    seed: int
    download: bool
    window: int = WINDOW
    train_share: float = TRAIN_SHARE
    label: str = ""
    target: str = BY_VALUES


@dataclass(frozen=True)
class Entry:
    """A data set by its name in `DATASETS`.

    Attributes
    ----------
    reader : str
        The import path of a function from `Source` to `Dataset`.
    known : Known, optional
        Where anything is known before the files are read.
    model : str
        What `model=paper` is.
    joinable : bool
        Whether it can be joined to others.
    by_seed : bool
        Whether the seed says which images are for testing.
    groups_per_class : int
        Of how many groups a class consists, where tasks are made of groups: rotations, say.
    by_writer : bool
        Whether its clients are those who wrote it, so that it needs `partition=writer`.
    sites : int
        With how many clients it comes, if they are its own.
    """

    reader: str
    known: Known | None = None
    model: str = "cnn"
    joinable: bool = False
    by_seed: bool = False
    groups_per_class: int = 1
    by_writer: bool = False
    sites: int = 0

    @property
    def has_own_tasks(self) -> bool:
        """Return whether its tasks are not made of labels."""
        return self.groups_per_class > 1 or self.by_writer


_HERE = "fl_core.data.datasets:"
_MNIST_5K = Known((1, 28, 28), 10)
_PUBLISHED = {name: Known(one.image_shape, one.num_classes) for name, one in PUBLISHED.items()}
# RCC-PFL, section V: one model per data set.
_PAPER_MODELS = {"mnist": "logistic-regression", "fashion-mnist": "mlp"}
DATASETS = {
    "mnist-5k": Entry(
        f"{_HERE}mnist_5k", _MNIST_5K, "logistic-regression", joinable=True, by_seed=True
    ),
    **{
        name: Entry(f"{_HERE}published", known, _PAPER_MODELS.get(name, "cnn"), joinable=True)
        for name, known in _PUBLISHED.items()
    },
    "cifar20": Entry(f"{_HERE}cifar20", Known((3, 32, 32), 20)),
    "rotated-mnist": Entry(
        f"{_HERE}rotated_mnist",
        _PUBLISHED["mnist"],
        "mlp",  # IFCA's own experiment
        groups_per_class=NUM_ROTATIONS,
    ),
    "femnist": Entry("fl_core.data.leaf:read_femnist", model="leaf-cnn", by_writer=True),
    "watch": Entry("fl_core.data.recordings:read_watch", model="mlp", sites=20),
    "flights": Entry("fl_core.data.flights:read_flights", model="mlp", sites=20),
    "folder": Entry(f"{_HERE}folder"),
    SITES: Entry("fl_core.agreement.site_folders:read_sites"),
    TABLES: Entry("fl_core.data.tables:read_tables", model="mlp"),
}
JOINABLE = tuple(name for name, entry in DATASETS.items() if entry.joinable)
BY_WRITER = tuple(name for name, entry in DATASETS.items() if entry.by_writer)
DATASET_WORDS = (
    f"one of {', '.join(DATASETS)}, or published ones joined by {PLUS}, such as mnist+fashion-mnist"
)


def paper_model(dataset: str) -> str:
    """Return the name of the model that RCC-PFL trains on `dataset`; a CNN where it says none.

    Of one's own data, which may be no images, a perceptron takes all.
    """
    if dataset in DATASETS:
        return DATASETS[dataset].model
    return "mlp" if is_own(dataset) or dataset == SYNTHETIC else "cnn"


def is_dataset(name: str) -> bool:
    """Return whether there is a data set of this name: one of `DATASETS`, or several joined."""
    parts = name.split(PLUS)
    return name in DATASETS or (1 < len(parts) == len(set(parts)) and set(parts) <= set(JOINABLE))


def has_own_tasks(name: str) -> bool:
    """Return whether the tasks of a data set are not made of labels, as far as its name says."""
    return name == SYNTHETIC or (name in DATASETS and DATASETS[name].has_own_tasks)


def _parse_dataset(value: Any) -> str:
    if not is_dataset(str(value)):
        raise NotAllowedError
    return str(value)


DATASET = Rule(DATASET_WORDS, _parse_dataset, words=tuple(DATASETS))
