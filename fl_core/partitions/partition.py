"""Which client holds which samples: tasks as label sets, shares of each, a minority of the others'.

Everything here is a pure function of labels and a seed, so the server and every client compute the
same partition without talking to each other (RCC-PFL, section V).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fl_core.data.settings import NUM_ROTATIONS

Tasks = tuple[tuple[int, ...], ...]
Spread = Literal["label", "quantity", "equal", "power-law"]
PARTITIONS: tuple[Spread, ...] = ("label", "quantity", "equal", "power-law")

_MAX_DRAWS = 1000
_SHARED_STREAM = 0x5A4ED
_WRITERS_STREAM = 0x3217E
_TEST_STREAM = 0x7E57

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
# IFCA's rotated MNIST (Ghosh et al. 2020): a task is a rotation, whose ten digits are the groups
# rotation·10 + digit (`fl_core.data.datasets.rotated`).
ROTATIONS: Tasks = tuple(tuple(range(10 * turn, 10 * turn + 10)) for turn in range(NUM_ROTATIONS))


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what.

    Attributes
    ----------
    tasks : tuple of tuples of int
        The label set of each task; of a data set with groups, its set of groups.
    client_tasks : NDArray[np.int64], shape (K,)
        The true task of each client.
    train : tuple of K NDArray[np.int64]
        Indices into the training set, own task and minority mixed, by client.
    test : tuple of K NDArray[np.int64]
        Indices into the test set: every test image of the client's own task, its own writer's, or
        its share of all (`own_test`).
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
    """Read tasks such as `"0,2,4|6,8,1|3,5,7,9"`; two may share labels: `"0,1,2|2,3,7"`.

    Raises
    ------
    ValueError
        If a task is empty, a label is not a number or stands twice in a task, or two tasks have the
        same labels.
    """
    example = 'labels by commas, tasks by bars, such as "0,2,4|6,8,1|3,5,7,9"'
    try:
        tasks = tuple(tuple(int(label) for label in part.split(",")) for part in text.split("|"))
    except ValueError:
        raise ValueError(f'tasks is "{text}" and cannot be read: write {example}.') from None
    twice = sorted({label for task in tasks for label in task if task.count(label) > 1})
    if twice:
        raise ValueError(
            f'tasks is "{text}", where label {twice[0]} stands twice in a task: name it once.'
        )
    if len({frozenset(task) for task in tasks}) < len(tasks):
        raise ValueError(
            f'tasks is "{text}", where two tasks have the same labels: they are one task; leave '
            "one of them out."
        )
    return tasks


def default_tasks(dataset: str, num_tasks: int, num_classes: int) -> Tasks:
    """Return the paper's tasks for `dataset`, or an even split of the classes in their order.

    Those of `rotated-mnist` are its first rotations by 0, 90, 180 and 270 degrees.

    Raises
    ------
    ValueError
        If there are more tasks than classes, or rotations, or fewer than one.
    """
    if dataset == "rotated-mnist":
        if not 1 <= num_tasks <= len(ROTATIONS):
            raise ValueError(
                f"num-tasks is {num_tasks}, but {dataset} has {len(ROTATIONS)} rotations, each of "
                f"them a task: choose 1 to {len(ROTATIONS)}."
            )
        return ROTATIONS[:num_tasks]
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
    kind: Spread = "label",
    dirichlet_alpha: float = 2.0,
    minority: float = 0.05,
    min_samples: int = 20,
    clients_per_task: Sequence[int] = (),
    seed: int = 0,
    sample: str = "image",
) -> Partition:
    """Spread the training samples over the clients (RCC-PFL, section V).

    Clients are split as equally as possible over the tasks, or as told, in a random order. Each
    task's samples go to its clients, every sample to exactly one of them; the samples of a label
    that several tasks share are first split evenly between these (FLT, scenario 2). Then each
    client also gets `minority` times its size from the other tasks' labels; only these may be held
    twice.

    Parameters
    ----------
    train_labels, test_labels : NDArray[np.int64], shapes (n,) and (m,)
        True labels, or the groups of a data set that has such; `label` and `class` stand for
        these all through.
    tasks : tuple of tuples of int
        Label sets; samples of labels in none of them are not used.
    kind : {"label", "quantity", "equal", "power-law"}
        `quantity`: one Dirichlet draw per task, so that sizes differ and the class mix does not;
        `label`: one draw per class, so that both differ; `equal`: no Dirichlet draw, a task's
        samples are shuffled and dealt out, so that sizes differ by one sample at most (FLT,
        scenario 1; IFCA's rotated MNIST); `power-law`: each client of the task gets `min_samples`
        of these, and the r-th in a random order, from 1, a part of the rest proportional to 1/r
        (FLT, scenario 4, which gives no exponent).
    dirichlet_alpha : float
        Dirichlet concentration, > 0; not used by `equal` and `power-law`.
    minority : float
        Share of extra samples from other tasks, >= 0.
    min_samples : int
        Dirichlet shares are drawn again until every client has this many samples of its own task;
        1 at least.
    clients_per_task : sequence of int, optional
        How many clients each task has (MT-HFL: 5, 3 and 2).

    Raises
    ------
    ValueError
        If a label is absent from the data, there are fewer clients than tasks, `clients_per_task`
        are not those of so many tasks and clients, or no draw, or no equal share, reaches
        `min_samples`.
    """
    check_labels(tasks, np.unique(train_labels).tolist(), "training")
    check_labels(tasks, np.unique(test_labels).tolist(), "test")
    sizes = clients_of_tasks(len(tasks), num_clients, clients_per_task)
    rng = np.random.default_rng([seed, 0x5EED])
    in_turn = [t for turn in range(max(sizes)) for t, size in enumerate(sizes) if turn < size]
    client_tasks = rng.permutation(np.array(in_turn))
    train: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * num_clients
    for t, (task, groups) in enumerate(
        zip(tasks, _by_label(train_labels, tasks, seed), strict=True)
    ):
        members = np.flatnonzero(client_tasks == t)
        if kind in ("equal", "power-law"):
            shares = _deal(groups, task, len(members), kind, min_samples, rng, sample)
        else:
            shares = _draw_shares(
                groups, task, len(members), kind, dirichlet_alpha, min_samples, rng, sample
            )
        for member, share in zip(members, shares, strict=True):
            train[member] = share
    others_of = [
        np.flatnonzero(np.isin(train_labels, _labels_of_others(tasks, t)))
        for t in range(len(tasks))
    ]
    for client in range(num_clients):
        others = others_of[client_tasks[client]]
        count = min(round(minority * len(train[client])), len(others))
        drawn = rng.choice(others, size=count, replace=False)
        train[client] = rng.permutation(np.concatenate([train[client], drawn]))
    test_of = [np.flatnonzero(np.isin(test_labels, task)) for task in tasks]
    test = tuple(test_of[t] for t in client_tasks)
    return Partition(tasks, client_tasks.astype(np.int64), tuple(train), test)


def clients_of_tasks(num_tasks: int, num_clients: int, given: Sequence[int] = ()) -> Sequence[int]:
    """Return how many clients each task has: those given, else as equal as possible, first ones up.

    Raises
    ------
    ValueError
        If there are fewer clients than tasks, or those given are not so many.
    """
    if num_clients < num_tasks:
        raise ValueError(
            f"num-clients is {num_clients}, fewer than the {num_tasks} tasks: every task needs a "
            f"client; use at least {num_tasks} clients or set num-tasks to {num_clients}"
            f"{' or less' if num_clients > 1 else ''}."
        )
    if not given:
        return [len(part) for part in np.array_split(np.arange(num_clients), num_tasks)]
    if (len(given), sum(given)) != (num_tasks, num_clients):
        raise ValueError(
            f"clients-per-task is {','.join(map(str, given))}, which is {sum(given)} clients of "
            f"{len(given)} tasks, but num-clients is {num_clients} and there are {num_tasks} "
            "tasks: both must agree."
        )
    return given


def writer_partition(
    train_writers: NDArray[np.int64],
    test_writers: NDArray[np.int64],
    num_clients: int,
    *,
    min_samples: int = 20,
    seed: int = 0,
) -> Partition:
    """Give each client the images of one writer, drawn by the seed; all have one task.

    Parameters
    ----------
    train_writers, test_writers : NDArray[np.int64], shapes (n,) and (m,)
        Who wrote each sample.
    min_samples : int
        Only writers of so many training images are drawn.

    Raises
    ------
    ValueError
        If there are fewer such writers than clients.
    """
    writers = np.flatnonzero(np.bincount(train_writers) >= max(min_samples, 1))
    if len(writers) < num_clients:
        raise ValueError(
            f"num-clients is {num_clients}, but only {len(writers)} writers have {min_samples} "
            "training images (min-samples): use fewer clients, or lower min-samples."
        )
    rng = np.random.default_rng([seed, _WRITERS_STREAM])
    drawn = np.sort(rng.choice(writers, size=num_clients, replace=False)).tolist()
    return Partition(
        (tuple(drawn),),
        np.zeros(num_clients, np.int64),
        tuple(np.flatnonzero(train_writers == writer) for writer in drawn),
        tuple(np.flatnonzero(test_writers == writer) for writer in drawn),
    )


def _labels_of_others(tasks: Tasks, own: int) -> tuple[int, ...]:
    others = (label for task in tasks for label in task if label not in tasks[own])
    return tuple(dict.fromkeys(others))  # each once, in the tasks' order


def check_labels(tasks: Tasks, labels: Collection[int], which: str) -> None:
    """Refuse tasks with a label that is not among the `labels` of the samples, ascending.

    Raises
    ------
    ValueError
        With the first such label; `which` samples, in its words.
    """
    absent = sorted({label for task in tasks for label in task} - set(labels))
    if absent:
        raise ValueError(
            f"a task holds label {absent[0]}, but no {which} sample has it: set tasks to some of "
            f"the labels {list(labels)}."
        )


def _by_label(labels: NDArray[np.int64], tasks: Tasks, seed: int) -> list[list[NDArray[np.int64]]]:
    """Return each task's samples, by label; tasks that share one get an even part of it each."""
    parts: dict[int, list[NDArray[np.int64]]] = {}
    for label in {label for task in tasks for label in task}:
        images, sharing = np.flatnonzero(labels == label), sum(label in task for task in tasks)
        if sharing > 1:
            images = np.random.default_rng([seed, label, _SHARED_STREAM]).permutation(images)
        parts[label] = [np.sort(part) for part in np.array_split(images, sharing)]
    return [[parts[label].pop(0) for label in task] for task in tasks]


def _deal(
    groups: Sequence[NDArray[np.int64]],
    task: Sequence[int],
    num_clients: int,
    kind: Spread,
    min_samples: int,
    rng: np.random.Generator,
    sample: str,
) -> list[NDArray[np.int64]]:
    """Shuffle one task's samples and deal them out, evenly or by a power law."""
    images = rng.permutation(np.concatenate(groups))
    fewest, floor = len(images) // num_clients, max(min_samples, 1)
    if fewest < floor:
        raise ValueError(
            f"min-samples is {min_samples}, but the {len(images)} {sample}s of task {list(task)}, "
            f"dealt out evenly to {num_clients} clients, are {fewest} for some of them: use fewer "
            "clients, or lower min-samples."
        )
    if kind == "equal":
        return np.array_split(images, num_clients)
    ranks = np.arange(1, num_clients + 1)
    shares = np.cumsum(1 / ranks) / np.sum(1 / ranks)
    cuts = floor * ranks + np.round(shares * (len(images) - floor * num_clients)).astype(np.int64)
    pieces = np.split(images, cuts[:-1])
    return [pieces[rank] for rank in rng.permutation(num_clients)]


def _draw_shares(
    by_label: Sequence[NDArray[np.int64]],
    task: Sequence[int],
    num_clients: int,
    kind: Spread,
    alpha: float,
    min_samples: int,
    rng: np.random.Generator,
    sample: str,
) -> list[NDArray[np.int64]]:
    """Split one task's samples over its clients, again until each has `min_samples`."""
    groups = [np.sort(np.concatenate(by_label))] if kind == "quantity" else list(by_label)
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
        f"{list(task)} always had fewer of its {sum(map(len, groups))} {sample}s: lower "
        f"min-samples or the number of clients, or raise dirichlet-alpha (now {alpha:g})."
    )


def own_test(
    train_groups: NDArray[np.int64],
    test_groups: NDArray[np.int64],
    train: Sequence[NDArray[np.int64]],
    seed: int,
    client: int,
) -> NDArray[np.int64]:
    """Draw for a client test samples with the mix of classes of its training samples.

    As many as there can be: with n_c training samples and m_c test samples of class c, the client
    gets n_c · min over c of m_c / n_c of class c, rounded, and so all m_c of the scarcest. Classes
    are true ones, those of the minority included; of a data set with groups, its groups.
    """
    rng = np.random.default_rng([seed, client, _TEST_STREAM])
    classes, counts = np.unique(train_groups[train[client]], return_counts=True)
    of_class = [np.flatnonzero(test_groups == c) for c in classes]
    share = min(len(own) / n for own, n in zip(of_class, counts, strict=True))
    mixed = [
        rng.choice(own, size=round(share * n), replace=False)
        for own, n in zip(of_class, counts.tolist(), strict=True)
    ]
    return np.sort(np.concatenate(mixed))
