"""What a run configuration may say of data and models: names and options, apart from their code.

They are read without PyTorch, so a wrong one is refused at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from fl_core.data.torchvision_files import PUBLISHED
from fl_core.options import COUNT, NATURAL, POSITIVE, TEXT, number, one_of, option
from fl_core.own_code import is_own
from fl_core.partitions.noise import NOISES
from fl_core.partitions.partition import PARTITIONS, ROTATIONS, Spread
from fl_core.partitions.tasks import CLIENTS_PER_TASK, TASKS

PLUS = "+"
JOINABLE = ("mnist-5k", *PUBLISHED)
ROTATED = {"rotated-mnist": "mnist"}
CIFAR20 = "cifar20"
DATASETS = (*JOINABLE, CIFAR20, *ROTATED, "femnist", "folder")
DATASET_WORDS = (
    f"one of {', '.join(DATASETS)}, or published ones joined by {PLUS}, such as mnist+fashion-mnist"
)
SYNTHETIC = "synthetic"
OWN_IMAGES = "own"
"""The data set of real devices: each has images of its own."""

SYNTHETIC_IMAGES = (4_000, 2_000)  # for training and testing, of all tasks together
MODELS = ("logistic-regression", "mlp", "mlp-32", "cnn", "cnn-norm", "leaf-cnn")
# RCC-PFL, section V: one model per data set.
PAPER_MODELS = {
    "mnist-5k": "logistic-regression",
    "mnist": "logistic-regression",
    "rotated-mnist": "mlp",  # IFCA's own experiment
    "fashion-mnist": "mlp",
    "femnist": "leaf-cnn",
    "synthetic": "mlp",
}


def paper_model(dataset: str) -> str:
    """Return the name of the model that RCC-PFL trains on `dataset`; a CNN where it says none.

    Of one's own data, which may be no images, a perceptron takes all.
    """
    return PAPER_MODELS.get(dataset, "mlp" if is_own(dataset) else "cnn")


def is_dataset(name: str) -> bool:
    """Return whether there is a data set of this name: one of `DATASETS`, or several joined."""
    parts = name.split(PLUS)
    return name in DATASETS or (1 < len(parts) == len(set(parts)) and set(parts) <= set(JOINABLE))


class Known(NamedTuple):
    """What is known of a data set before its files are read.

    Attributes
    ----------
    num_train, num_test : int
        How many images there are.
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


class SampleKind(Protocol):
    """What the samples of a data set have in common."""

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample: of an image, channels, height and width."""

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""

    @property
    def is_float(self) -> bool:
        """Return whether samples are float32; otherwise they are pixels, uint8."""


def are_images(shape: tuple[int, ...], *, is_float: bool) -> bool:
    """Return whether samples of this shape are grey or colour images of bytes."""
    return not is_float and len(shape) == 3 and shape[0] in (1, 3)


def described(shape: tuple[int, ...], *, is_float: bool) -> str:
    """Describe samples in words: `float32 of shape 30`."""
    return f"{'float32' if is_float else 'uint8'} of shape {'×'.join(map(str, shape))}"


def known_of(dataset: str) -> Known | None:
    """Return a data set's facts before its files are read, or None if there are none.

    Raises
    ------
    ValueError
        If it joins images of different shapes.
    """
    if dataset in ROTATED:
        base = _published(ROTATED[dataset])
        return base._replace(num_train=4 * base.num_train, num_test=4 * base.num_test)
    others = {
        "mnist-5k": Known(4_000, 1_000, (1, 28, 28), 10),
        CIFAR20: Known(55_000, 11_000, (3, 32, 32), 20),
        SYNTHETIC: Known(*SYNTHETIC_IMAGES, (1, 28, 28), 10),
    }
    if dataset in others:
        return others[dataset]
    parts = dataset.split(PLUS)
    if not set(parts) <= {*PUBLISHED, *others}:
        return None
    found = [others.get(part) or _published(part) for part in parts]
    check_one_shape(dataset, [one.image_shape for one in found])
    counts = (sum(numbers) for numbers in zip(*((a, b, d) for a, b, _, d in found), strict=True))
    train, test, classes = counts
    return Known(train, test, found[0].image_shape, classes)


def _published(dataset: str) -> Known:
    one = PUBLISHED[dataset]
    return Known(one.num_train, one.num_test, one.image_shape, one.num_classes)


def check_one_shape(dataset: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse to join images of different shapes, by a ValueError."""
    if len(set(shapes)) > 1:
        described = " and ".join("×".join(map(str, shape)) for shape in shapes)
        raise ValueError(
            f'dataset is "{dataset}", but images must have one shape, and these are {described} '
            "(channels, height, width)."
        )


def num_labels(dataset: str) -> int | None:
    """Return how many labels tasks can be made of, where it is known before the files are read."""
    known = None if dataset == SYNTHETIC else known_of(dataset)
    if known is None:
        return None
    return known.num_classes * (len(ROTATIONS) if dataset in ROTATED else 1)


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """Who holds which image under which label.

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
        "how a task's images are spread: `label`: each class by a Dirichlet draw of its own; "
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
        "images of other tasks that each client has, as a share of its own",
    )
    min_samples: int = option(20, COUNT, "least number of images of its own task that a client has")
    noise: str = option("none", one_of(NOISES), "how labels become wrong (RCC-PFL, section III)")
    noise_rate: float = option(
        0.25,
        number(float, 0, 1, high_open=True),
        "share of a client's labels that are wrong",
        needs="noise",
    )
    client_test: str = option(
        "task",
        one_of(("task", "own")),
        "what a client is tested on: `task`: all test images of its task, as in the papers; `own`: "
        "as many test images as there are with the mix of classes of its training images",
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
        if self.shift == "concept" and self.dataset in ("rotated-mnist", "femnist", SYNTHETIC):
            raise ValueError(
                f'shift is "concept", but {self.dataset} has tasks of its own: choose another data '
                "set."
            )
        if (self.dataset == "femnist") != (self.partition == "writer"):
            raise ValueError(
                f'dataset is "{self.dataset}" and partition is "{self.partition}", but femnist and '
                "writer need each other: a client is one of its writers."
            )
        if self.partition == "writer" and (self.tasks or self.clients_per_task):
            raise ValueError(
                'partition is "writer", and then all clients have one task: leave tasks and '
                "clients-per-task empty."
            )
