"""Which client holds which images: tasks as label sets, Dirichlet shares, a minority of strangers.

Everything here is a pure function of labels and a seed, so the server and every client compute the
same partition without talking to each other (RCC-PFL, section V).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Tasks = tuple[tuple[int, ...], ...]
Kind = Literal["label", "quantity"]
PARTITIONS: tuple[Kind, ...] = ("label", "quantity")

_MAX_DRAWS = 1000

# RCC-PFL, Table I.
_MNIST: dict[int, Tasks] = {
    2: ((0, 2, 4, 6, 8), (1, 3, 5, 7, 9)),
    3: ((0, 2, 4), (6, 8, 1), (3, 5, 7, 9)),
    5: ((0, 2), (4, 6), (8, 1), (3, 5), (7, 9)),
}
_FASHION_MNIST: dict[int, Tasks] = {
    2: ((0, 1, 2, 3, 4, 6), (5, 7, 8, 9)),
    3: ((0, 1, 2), (3, 4, 6), (5, 7, 8, 9)),
    5: ((0, 1), (2, 3), (4, 6), (5, 7), (8, 9)),
}
_CIFAR10: dict[int, Tasks] = {
    2: ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    3: ((0, 1, 8), (9, 2, 3), (4, 5, 6, 7)),
    5: ((0, 1), (8, 9), (2, 3), (4, 5), (6, 7)),
}
PAPER_TASKS: dict[str, dict[int, Tasks]] = {
    "mnist-5k": _MNIST,
    "mnist": _MNIST,
    "fashion-mnist": _FASHION_MNIST,
    "cifar10": _CIFAR10,
}


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what.

    Attributes
    ----------
    tasks : tuple of tuples of int
        The label set of each task.
    client_tasks : NDArray[np.int64], shape (K,)
        The true task of each client.
    train : tuple of K NDArray[np.int64]
        Indices into the training set, own task and minority mixed, by client.
    test : tuple of K NDArray[np.int64]
        Indices into the test set: every test image of the client's own task.
    """

    tasks: Tasks
    client_tasks: NDArray[np.int64]
    train: tuple[NDArray[np.int64], ...]
    test: tuple[NDArray[np.int64], ...]

    @property
    def num_clients(self) -> int:
        """Return the number of clients K."""
        return len(self.train)

    def unintended(self, client: int) -> tuple[int, ...]:
        """Return the labels of all tasks but the client's own."""
        return _labels_of_others(self.tasks, self.client_tasks[client])


def parse_tasks(text: str) -> Tasks:
    """Read tasks such as `"0,2,4|6,8,1|3,5,7,9"`.

    Raises
    ------
    ValueError
        If a task is empty, a label is no number, or a label stands in two tasks.
    """
    example = 'labels by commas, tasks by bars, such as "0,2,4|6,8,1|3,5,7,9"'
    try:
        tasks = tuple(tuple(int(label) for label in part.split(",")) for part in text.split("|"))
    except ValueError:
        raise ValueError(f'tasks is "{text}" and cannot be read: write {example}.') from None
    labels = [label for task in tasks for label in task]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ValueError(
            f'tasks is "{text}", where label {twice[0]} stands twice: tasks must not overlap.'
        )
    return tasks


def default_tasks(dataset: str, num_tasks: int, num_classes: int) -> Tasks:
    """Return the paper's tasks for `dataset`, or an even split of the classes in their order.

    Raises
    ------
    ValueError
        If there are more tasks than classes, or fewer than one.
    """
    if not 1 <= num_tasks <= num_classes:
        raise ValueError(
            f"num-tasks is {num_tasks}, but {dataset} has {num_classes} classes: choose 1 to "
            f"{num_classes}."
        )
    paper = PAPER_TASKS.get(dataset, {})
    if num_tasks in paper:
        return paper[num_tasks]
    return tuple(
        tuple(int(label) for label in part)
        for part in np.array_split(np.arange(num_classes), num_tasks)
    )


def make_partition(
    train_labels: NDArray[np.int64],
    test_labels: NDArray[np.int64],
    tasks: Tasks,
    num_clients: int,
    *,
    kind: Kind = "label",
    dirichlet_alpha: float = 2.0,
    minority: float = 0.05,
    min_samples: int = 20,
    seed: int = 0,
) -> Partition:
    """Spread the training images over the clients (RCC-PFL, section V; spec section 6).

    Clients are split as equally as possible over the tasks, in a random order. Each task's images
    go to its clients by Dirichlet shares, every image to exactly one client. Then each client also
    gets `minority` times its size from the other tasks' labels; only these may be held twice.

    Parameters
    ----------
    train_labels, test_labels : NDArray[np.int64], shapes (n,) and (m,)
        True labels.
    tasks : tuple of tuples of int
        Disjoint label sets; images of other labels are not used.
    num_clients : int
        K, at least the number of tasks.
    kind : {"label", "quantity"}
        `quantity`: one Dirichlet draw per task, so that sizes differ and the class mix does not;
        `label`: one draw per class, so that both differ.
    dirichlet_alpha : float
        Dirichlet concentration, > 0.
    minority : float
        Share of extra images from other tasks, >= 0.
    min_samples : int
        Shares are drawn again until every client has this many images of its own task.
    seed : int
        The partition's seed.

    Raises
    ------
    ValueError
        If a label is absent from the data, there are fewer clients than tasks, or no draw reaches
        `min_samples`.
    """
    _check_labels(tasks, train_labels, "training")
    _check_labels(tasks, test_labels, "test")
    if num_clients < len(tasks):
        raise ValueError(
            f"num-clients is {num_clients}, fewer than the {len(tasks)} tasks: every task needs a "
            f"client; use at least {len(tasks)} clients or set num-tasks to {num_clients} or less."
        )
    rng = np.random.default_rng([seed, 0x5EED])
    client_tasks = rng.permutation(np.arange(num_clients) % len(tasks))
    train: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * num_clients
    for t, task in enumerate(tasks):
        members = np.flatnonzero(client_tasks == t)
        shares = _draw_shares(
            train_labels, task, len(members), kind, dirichlet_alpha, min_samples, rng
        )
        for member, share in zip(members, shares, strict=True):
            train[member] = share
    strangers_of = [
        np.flatnonzero(np.isin(train_labels, _labels_of_others(tasks, t)))
        for t in range(len(tasks))
    ]
    for client in range(num_clients):
        strangers = strangers_of[client_tasks[client]]
        count = min(round(minority * len(train[client])), len(strangers))
        drawn = rng.choice(strangers, size=count, replace=False)
        train[client] = rng.permutation(np.concatenate([train[client], drawn]))
    test_of = [np.flatnonzero(np.isin(test_labels, task)) for task in tasks]
    test = tuple(test_of[t] for t in client_tasks)
    return Partition(tasks, client_tasks.astype(np.int64), tuple(train), test)


def _labels_of_others(tasks: Tasks, own: int) -> tuple[int, ...]:
    return tuple(label for t, task in enumerate(tasks) if t != own for label in task)


def _check_labels(tasks: Tasks, labels: NDArray[np.int64], which: str) -> None:
    absent = sorted({label for task in tasks for label in task} - set(np.unique(labels).tolist()))
    if absent:
        raise ValueError(
            f"tasks name label {absent[0]}, but no {which} image has it: the data set's labels are "
            f"{np.unique(labels).tolist()}."
        )


def _draw_shares(
    labels: NDArray[np.int64],
    task: Sequence[int],
    num_clients: int,
    kind: Kind,
    alpha: float,
    min_samples: int,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Split one task's images over its clients, again until each has `min_samples`."""
    if kind == "quantity":
        groups = [np.flatnonzero(np.isin(labels, task))]
    else:
        groups = [np.flatnonzero(labels == label) for label in task]
    available = sum(len(group) for group in groups)
    for _ in range(_MAX_DRAWS):
        parts: list[list[NDArray[np.int64]]] = [[] for _ in range(num_clients)]
        for group in groups:
            shares = rng.dirichlet(np.full(num_clients, alpha))
            cuts = np.round(np.cumsum(shares)[:-1] * len(group)).astype(np.int64)
            for part, piece in zip(parts, np.split(rng.permutation(group), cuts), strict=True):
                part.append(piece)
        merged = [np.concatenate(part) for part in parts]
        if min(len(part) for part in merged) >= max(min_samples, 1):
            return merged
    raise ValueError(
        f"min-samples is {min_samples}, but in {_MAX_DRAWS} draws some client of task "
        f"{list(task)} always had fewer of its {available} images: lower min-samples or the number "
        f"of clients, or raise dirichlet-alpha (now {alpha:g})."
    )
