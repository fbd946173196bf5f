"""Names of data sets and models, and their options, without PyTorch: read in no time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from string import ascii_uppercase, digits
from typing import Any, NamedTuple

from fl_core.options import NotAllowedError, Rule, one_of
from fl_core.user_code import is_import_path

PLUS = "+"
NUM_ROTATIONS = 4
"""Of `rotated-mnist`; each is a task."""
SYNTHETIC = "synthetic"
TABLES = "tables"
SITES = "sites"
IN_DATA_DIR = ("folder", SITES, TABLES)
"""Data sets that are the content of the data folder."""
REAL_DEVICES = "devices"
"""The data set of real devices."""

WINDOW, TRAIN_SHARE = 100, 0.2
NOT_STANDARDISED, SITE, ALL_SITES = "none", "site", "all"
"""The rows that samples are standardised by."""

AUTO_TARGET, NUMBER_TARGET = "auto", "number"
"""The target of tables: chosen by its values, or a number to predict."""
TARGET = one_of((AUTO_TARGET, NUMBER_TARGET))

TESTS = {"task": "on its task", "own": "on its own data"}
"""What a client can be tested on, and its name in tables."""

TESTS_EXPLAINED = (
    "On its task asks how good a client's model is at all of its task, much of which that client "
    "may have hardly seen; on its own data, how good it is at the mix of classes that it has "
    "itself."
)
"""What the two columns of a table ask."""

MODELS = ("logistic-regression", "mlp", "mlp-32", "cnn", "cnn-norm", "leaf-cnn")


def name_of_test(client_test: str) -> str:
    """Return the name of a test in files, such as `on-its-own-data`."""
    return TESTS[client_test].replace(" ", "-")


class DatasetInfo(NamedTuple):
    """The samples and classes of a data set, known before its files are read."""

    sample_shape: tuple[int, ...]  # channels, height and width
    num_classes: int
    is_float: bool = False
    is_regression: bool = False


class Source(NamedTuple):
    """What the reader of a data set is given."""

    name: str
    root: Path  # the folder of data sets
    cache: Path  # the folder for what can be made again
    seed: int  # draws the test samples, where the data set has none
    download: bool  # whether missing files may be downloaded
    window: int = WINDOW  # samples in a window of a recording
    train_share: float = TRAIN_SHARE  # of a client's time, where the data are split by time
    label: str = ""  # of tables, the column that holds the label; empty: the usual names
    target: str = AUTO_TARGET  # of tables, "auto", or "number" to predict whole labels, too


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


@dataclass(frozen=True)
class DatasetEntry:
    """A data set by its name in `DATASETS`."""

    reader: str  # the import path of a function from `Source` to `Dataset`
    known: DatasetInfo | None = None  # what is known before the files are read
    model: str = "cnn"  # what `model=paper` is
    joinable: bool = False
    by_seed: bool = False  # whether the seed draws the test samples
    groups_per_class: int = 1  # where tasks are made of groups, such as rotations
    by_writer: bool = False  # whether a client is a writer, so that it needs `partition=writer`
    sites: int = 0  # the number of clients that the data come with, if any

    @property
    def has_group_tasks(self) -> bool:
        """Return whether tasks are made of groups, not of labels."""
        return self.groups_per_class > 1 or self.by_writer


_HERE = "fl_core.data.datasets:"
_MNIST_5K = DatasetInfo((1, 28, 28), 10)
_PUBLISHED = {
    name: DatasetInfo(one.sample_shape, one.num_classes) for name, one in PUBLISHED.items()
}
# RCC-PFL, section V: one model per data set.
_PAPER_MODELS = {"mnist": "logistic-regression", "fashion-mnist": "mlp"}
DATASETS = {
    "mnist-5k": DatasetEntry(
        f"{_HERE}read_mnist_5k", _MNIST_5K, "logistic-regression", joinable=True, by_seed=True
    ),
    **{
        name: DatasetEntry(
            f"{_HERE}read_torchvision", known, _PAPER_MODELS.get(name, "cnn"), joinable=True
        )
        for name, known in _PUBLISHED.items()
    },
    "cifar20": DatasetEntry(f"{_HERE}read_cifar20", DatasetInfo((3, 32, 32), 20)),
    "rotated-mnist": DatasetEntry(
        f"{_HERE}read_rotated_mnist",
        _PUBLISHED["mnist"],
        "mlp",  # IFCA's experiment
        groups_per_class=NUM_ROTATIONS,
    ),
    "femnist": DatasetEntry("fl_core.data.leaf:read_femnist", model="leaf-cnn", by_writer=True),
    "watch": DatasetEntry("fl_core.data.recordings:read_watch", model="mlp", sites=20),
    "flights": DatasetEntry("fl_core.data.flights:read_flights", model="mlp", sites=20),
    "portal": DatasetEntry("fl_core.data.portal:read_portal", model="mlp", sites=24),
    "folder": DatasetEntry(f"{_HERE}read_folder"),
    SITES: DatasetEntry("fl_core.agreement.site_folders:read_sites"),
    TABLES: DatasetEntry("fl_core.data.tables:read_tables", model="mlp"),
}
JOINABLE = tuple(name for name, entry in DATASETS.items() if entry.joinable)
BY_WRITER = tuple(name for name, entry in DATASETS.items() if entry.by_writer)
DATASET_WORDS = (
    f"one of {', '.join(DATASETS)}, or published ones joined by {PLUS}, such as mnist+fashion-mnist"
)


def paper_model(dataset: str) -> str:
    """Return the model that RCC-PFL trains on `dataset`, else a CNN; a perceptron for user data."""
    if dataset in DATASETS:
        return DATASETS[dataset].model
    return "mlp" if is_import_path(dataset) or dataset == SYNTHETIC else "cnn"


def is_dataset(name: str) -> bool:
    """Return whether a name is one of `DATASETS`, or several joined."""
    parts = name.split(PLUS)
    return name in DATASETS or (1 < len(parts) == len(set(parts)) and set(parts) <= set(JOINABLE))


def has_group_tasks(name: str) -> bool:
    """Return whether a data set of this name is known to have tasks that are no label sets."""
    return name == SYNTHETIC or (name in DATASETS and DATASETS[name].has_group_tasks)


def _parse_dataset(value: Any) -> str:
    if not is_dataset(str(value)):
        raise NotAllowedError
    return str(value)


DATASET = Rule(DATASET_WORDS, _parse_dataset, words=tuple(DATASETS))
