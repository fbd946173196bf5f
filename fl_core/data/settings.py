"""What a run configuration may say of data and models: names and options, apart from their code.

They are read without PyTorch, so a wrong one is refused at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fl_core.data.torchvision_files import PUBLISHED
from fl_core.options import (
    COUNT,
    NATURAL,
    POSITIVE,
    TEXT,
    NotAllowedError,
    Rule,
    number,
    one_of,
    option,
)
from fl_core.own_code import is_own
from fl_core.partitions.noise import NOISES
from fl_core.partitions.partition import PARTITIONS, ROTATIONS, Spread
from fl_core.partitions.tasks import CLIENTS_PER_TASK, TASKS

PLUS = "+"
SYNTHETIC = "synthetic"
TABLES = "tables"
SITES = "sites"
IN_DATA_DIR = ("folder", SITES, TABLES)
"""Data sets that are whatever the data folder holds."""
SYNTHETIC_IMAGES = (4_000, 2_000)  # for training and testing, of all tasks together
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
    num_train, num_test : int
        How many samples there are.
    image_shape : tuple of int
        Channels, height and width.
    num_classes : int
    """

    num_train: int
    num_test: int
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
_MNIST_5K = Known(4_000, 1_000, (1, 28, 28), 10)
_PUBLISHED = {
    name: Known(one.num_train, one.num_test, one.image_shape, one.num_classes)
    for name, one in PUBLISHED.items()
}
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
    "cifar20": Entry(f"{_HERE}cifar20", Known(55_000, 11_000, (3, 32, 32), 20)),
    "rotated-mnist": Entry(
        f"{_HERE}rotated_mnist",
        _PUBLISHED["mnist"]._replace(num_train=240_000, num_test=40_000),
        "mlp",  # IFCA's own experiment
        groups_per_class=len(ROTATIONS),
    ),
    "femnist": Entry("fl_core.data.leaf:read_femnist", model="leaf-cnn", by_writer=True),
    "watch": Entry("fl_core.data.recordings:read_watch", model="mlp", sites=20),
    "flights": Entry("fl_core.data.flights:read_flights", model="mlp", sites=20),
    "folder": Entry(f"{_HERE}folder", by_seed=True),
    SITES: Entry("fl_core.own.site_folders:read_sites"),
    TABLES: Entry("fl_core.data.tables:read_tables", model="mlp"),
}
JOINABLE = tuple(name for name, entry in DATASETS.items() if entry.joinable)
_BY_WRITER = tuple(name for name, entry in DATASETS.items() if entry.by_writer)
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


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who holds which sample under which label.

    Hashable: it is the cache's key. Rounds count from 1; `malicious` is a share of the clients, in
    [0, 1).
    """

    dataset: str
    num_clients: int
    seed: int
    malicious: float = 0.0
    data_dir: str = option(
        "",
        TEXT,
        "where the data set's files are; empty: the variable `FL_DATA_DIR`, or a download",
    )
    label: str = option(
        "",
        TEXT,
        f"`{TABLES}`: the column that holds the label; empty: the one named label, target or "
        "class; `flights`: `delay` predicts minutes, empty: late or not",
        needs=f"dataset={TABLES}|{OWN_IMAGES}|flights",
    )
    target: str = option(
        BY_VALUES,
        TARGET,
        f"`{TABLES}`: what the label is; `auto`: a number to predict if any has a fraction, "
        "otherwise a class; `number`: a number to predict, such as a count or an age",
        needs=f"dataset={TABLES}|{OWN_IMAGES}",
    )
    standardise: str = option(
        "auto",
        one_of(("auto", NOBODY, SITE, ALL_SITES)),
        "subtract each column's mean and divide by its deviation, of training rows: of `all` "
        f"clients together, or of each client's own (`site`); `auto`: `all` for `{TABLES}`, "
        "otherwise `none`: docs/data.md",
        default=NOBODY,
    )
    num_tasks: int = option(
        2,
        COUNT,
        "the paper's tasks for 2, 3 or 5; otherwise classes are split evenly",
        needs="tasks=",
    )
    tasks: str = option(
        "",
        TASKS,
        "your own tasks instead, as label numbers: `0,2,4|6,8,1|3,5,7,9`; tasks may share classes; "
        "`random:5`: disjoint tasks of five labels, drawn by the seed, until none is left",
    )
    shift: str = option(
        "label",
        one_of(("label", "concept")),
        "how tasks differ: `label`: by their labels; `concept`: by what the same labels mean",
    )
    heterogeneity: float = option(
        0.5,
        number(float, 0, 1),
        f"`{SYNTHETIC}`: how far tasks differ: 0: not at all, 1: they share only the labels' names",
        needs="dataset=synthetic",
    )
    clients_per_task: str = option(
        "",
        CLIENTS_PER_TASK,
        "how many clients each task has, such as `5,3,2`; empty: as equal as possible",
    )
    partition: Spread | Literal["writer"] = option(
        "label",
        one_of((*PARTITIONS, "writer")),
        "how a task's samples are spread: `label`: each class by a Dirichlet draw of its own; "
        "`quantity`: one draw, so only sizes differ; `equal`: equal sizes; `power-law`: few large "
        "clients and many small ones; `writer`: each client is a writer of `femnist`",
    )
    dirichlet_alpha: float = option(
        2.0,
        POSITIVE,
        "of the Dirichlet draws: smaller is more uneven",
        needs="partition=label|quantity",
    )
    minority: float = option(
        0.05,
        number(float, 0, 1),
        "samples of other tasks that each client has, as a share of its own",
    )
    min_samples: int = option(
        20, COUNT, "least number of samples of its own task that a client has"
    )
    train_share: float = option(
        TRAIN_SHARE,
        number(float, 0.02, 0.9),
        "the first share of each client's time trains, later ones test, with a gap between: "
        "docs/natural.md",
        needs="dataset=watch|flights",
    )
    noise: str = option("none", one_of(NOISES), "how labels become wrong (RCC-PFL, section III)")
    noise_rate: float = option(
        0.25,
        number(float, 0, 1, high_open=True),
        "share of a client's labels that are wrong",
        needs="noise",
    )
    client_test: str = option(
        "task",
        one_of(tuple(TESTS)),
        "what a client is tested on: `task`: all test samples of its task, as in the papers; "
        "`own`: as many test samples as there are with the mix of classes of its training samples; "
        "tables have both",
    )
    validation_share: float = option(
        0.0,
        number(float, 0, 0.5),
        "share of each client's training samples that it keeps for comparing strategies; with "
        "`local` and another one, each client gets a verdict: docs/verdicts.md",
    )
    newcomers: int = option(0, NATURAL, "clients that join only in `newcomer-round`")
    newcomer_round: int = option(
        5, number(int, 2), "the round in which they join", default=0, needs="newcomers"
    )
    drift_clients: int = option(
        0, NATURAL, "clients whose task changes in `drift-round`: they exchange their data"
    )
    drift_round: int = option(
        5, COUNT, "the first round with their new task", default=0, needs="drift-clients"
    )

    def __post_init__(self) -> None:
        """Refuse what does not go together, by a ValueError."""
        for key, value in (("shift", "concept"), ("dataset", SYNTHETIC)):
            if getattr(self, key) == value and self.tasks:
                raise ValueError(
                    f'tasks is "{self.tasks}", but {key} is "{value}", and then each task has all '
                    "labels: leave tasks empty, and say by num-tasks how many there are."
                )
        if self.shift == "concept" and has_own_tasks(self.dataset):
            raise ValueError(
                f'shift is "concept", but {self.dataset} has tasks of its own: choose another data '
                "set."
            )
        if (self.dataset in _BY_WRITER) != (self.partition == "writer"):
            raise ValueError(
                f'dataset is "{self.dataset}" and partition is "{self.partition}", but '
                f"{', '.join(_BY_WRITER)} and writer need each other: a client is one of its "
                "writers."
            )
        if self.partition == "writer" and (self.tasks or self.clients_per_task):
            raise ValueError(
                'partition is "writer", and then all clients have one task: leave tasks and '
                "clients-per-task empty."
            )
