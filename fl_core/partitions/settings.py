"""The options of a simulated federation: which client has which samples and labels."""

from dataclasses import dataclass
from typing import Literal, get_args

from fl_core.data.settings import (
    ALL_SITES,
    AUTO_TARGET,
    BY_WRITER,
    NOT_STANDARDISED,
    REAL_DEVICES,
    SITE,
    SYNTHETIC,
    TABLES,
    TARGET,
    TESTS,
    TRAIN_SHARE,
)
from fl_core.options import COUNT, NATURAL, POSITIVE, TEXT, number, one_of, option
from fl_core.partitions.tasks import CLIENTS_PER_TASK, TASKS

Spread = Literal["label", "quantity", "equal", "power-law"]
PER_TASK = "-per-task"
NOISES = (
    *("none", "class-independent", "class-dependent"),
    *(f"class-independent{PER_TASK}", f"class-dependent{PER_TASK}"),
)


@dataclass(frozen=True, kw_only=True)
class FederationSettings:
    """The options of a simulated federation; rounds count from 1."""

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
        needs=f"dataset={TABLES}|{REAL_DEVICES}|flights",
    )
    target: str = option(
        AUTO_TARGET,
        TARGET,
        f"`{TABLES}`: what the label is; `auto`: a number to predict if any has a fraction, "
        "otherwise a class; `number`: a number to predict, such as a count or an age",
        needs=f"dataset={TABLES}|{REAL_DEVICES}",
    )
    standardise: str = option(
        "auto",
        one_of(("auto", NOT_STANDARDISED, SITE, ALL_SITES)),
        "subtract each column's mean and divide by its deviation, of training rows: of `all` "
        f"clients together, or of each client alone (`site`); `auto`: `all` for `{TABLES}`, "
        "otherwise `none`: docs/data.md",
        default=NOT_STANDARDISED,
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
        "other tasks, as label numbers: `0,2,4|6,8,1|3,5,7,9`; tasks may share classes; "
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
        one_of((*get_args(Spread), "writer")),
        "how a task's samples are spread: `label`: each class by another Dirichlet draw; "
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
        "samples of other tasks that each client has, as a share of those of its task",
    )
    min_samples: int = option(20, COUNT, "least number of samples of its task that a client has")
    train_share: float = option(
        TRAIN_SHARE,
        number(float, 0.02, 0.9),
        "the first share of each client's time trains, later ones test, with a gap between: "
        "docs/data.md",
        needs="dataset=watch|flights",
    )
    noise: str = option(
        "none",
        one_of(NOISES),
        "how labels become wrong: each client's become one label of another task (RCC-PFL, section "
        "III); `…-per-task`: one label for all clients of its task (section II)",
    )
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
        "share of each client's training samples that only compare strategies; with "
        "`local` and another one, each client gets a verdict: docs/verdicts.md",
    )
    validation_fold: int = 0  # which of the `validation-folds` validates
    newcomers: int = option(0, NATURAL, "clients that join only in `newcomer-round`")
    newcomer_round: int = option(
        5, number(int, 2), "the round in which they join", needs="newcomers"
    )
    drift_clients: int = option(
        0, NATURAL, "clients that change their task in `drift-round`: they exchange their data"
    )
    drift_round: int = option(
        5, COUNT, "the first round with their new task", needs="drift-clients"
    )

    def __post_init__(self) -> None:
        """Raise a ValueError for options that exclude each other."""
        for key, value in (("shift", "concept"), ("dataset", SYNTHETIC)):
            if getattr(self, key) == value and self.tasks:
                raise ValueError(
                    f'tasks is "{self.tasks}", but {key} is "{value}", where each task has all '
                    "labels: leave tasks empty, and set num-tasks."
                )
        by_writer = self.partition == "writer"
        if (self.dataset in BY_WRITER) != by_writer:
            raise ValueError(
                f'dataset is "{self.dataset}" and partition is "{self.partition}", but '
                f"partition=writer and the data sets {', '.join(BY_WRITER)} need each other."
            )
        if by_writer and (self.tasks or self.clients_per_task):
            raise ValueError('partition is "writer": leave tasks and clients-per-task empty.')
