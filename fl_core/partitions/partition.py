"""Partitions: which client has which samples, as pure functions of labels and a seed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_core.data.samples import GivenPartition
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import Tasks, parse_counts

Indices = NDArray[np.int64]

_MAX_DRAWS = 1000
_SHARED_STREAM = 0x5A4ED
_WRITERS_STREAM = 0x3217E
_TEST_STREAM = 0x7E57


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of K clients, as indices, and their tasks."""

    tasks: Tasks  # the labels of each task; of a data set with groups, its groups
    client_tasks: NDArray[np.int64]  # (K,): the true task of each client
    train: tuple[Indices, ...]  # by client, its task and the minority of other tasks mixed
    test: tuple[Indices, ...]

    @property
    def num_clients(self) -> int:
        """Return the number of clients K."""
        return len(self.train)

    def unintended(self, client: int) -> tuple[int, ...]:
        """Return the labels of all tasks but the client's."""
        return _labels_of_others(self.tasks, self.client_tasks[client])


def make_partition(
    train_labels: NDArray[np.int64],
    test_labels: NDArray[np.int64],
    tasks: Tasks,
    settings: FederationSettings,
) -> Partition:
    """Spread the training samples over the clients (RCC-PFL, section V).

    Clients are split as equally as possible over the tasks, or by `clients_per_task`, in a random
    order. Each task's samples go to its clients, every sample to exactly one of them; the samples
    of a label that several tasks share are first split evenly between these (FLT, scenario 2). Then
    each client also gets samples of the other tasks' labels, of which others may have copies.

    `train_labels`, (n,), and `test_labels`, (m,), are true labels, or the groups of a data set with
    groups. Samples of labels that no task has are not used.
    """
    check_labels(tasks, np.unique(train_labels).tolist(), "training")
    check_labels(tasks, np.unique(test_labels).tolist(), "test")
    num_clients, seed = settings.num_clients, settings.seed
    sizes = clients_of_tasks(len(tasks), settings)
    rng = np.random.default_rng([seed, 0x5EED])
    in_turn = [t for turn in range(max(sizes)) for t, size in enumerate(sizes) if turn < size]
    client_tasks = rng.permutation(np.array(in_turn))
    train: list[Indices] = [np.empty(0, np.int64)] * num_clients
    for t, by_label in enumerate(_by_label(train_labels, tasks, seed)):
        members = np.flatnonzero(client_tasks == t)
        alpha, least = settings.dirichlet_alpha, settings.min_samples
        task = _Task(by_label, len(members), alpha, max(least, 1))
        shares = _shares(task, settings.partition, rng)
        if shares is None:
            raise ValueError(
                f"min-samples is {least}, but the {sum(map(len, by_label))} samples of task "
                f"{list(tasks[t])} cannot be spread over {len(members)} clients by partition="
                f"{settings.partition} so that each has so many: use fewer clients, lower "
                f"min-samples, or, with label and quantity, raise dirichlet-alpha (now {alpha:g})."
            )
        for member, share in zip(members, shares, strict=True):
            train[member] = share
    others_of = [
        np.flatnonzero(np.isin(train_labels, _labels_of_others(tasks, t)))
        for t in range(len(tasks))
    ]
    for client in range(num_clients):
        others = others_of[client_tasks[client]]
        count = min(round(settings.minority * len(train[client])), len(others))
        drawn = rng.choice(others, size=count, replace=False)
        train[client] = rng.permutation(np.concatenate([train[client], drawn]))
    test_of = [np.flatnonzero(np.isin(test_labels, task)) for task in tasks]
    test = tuple(test_of[t] for t in client_tasks)
    return Partition(tasks, client_tasks.astype(np.int64), tuple(train), test)


def clients_of_tasks(num_tasks: int, settings: FederationSettings) -> Sequence[int]:
    """Return how many clients each task has: as given, or else as equal as possible."""
    num_clients, given = settings.num_clients, parse_counts(settings.clients_per_task)
    if num_clients < num_tasks:
        raise ValueError(
            f"num-clients is {num_clients}, fewer than the {num_tasks} tasks, and every task needs "
            f"a client: use at least {num_tasks} clients, or fewer tasks."
        )
    if not given:
        return [len(part) for part in np.array_split(np.arange(num_clients), num_tasks)]
    if (len(given), sum(given)) != (num_tasks, num_clients):
        raise ValueError(
            f"clients-per-task is {settings.clients_per_task}, which is {sum(given)} clients of "
            f"{len(given)} tasks, but num-clients is {num_clients} and there are {num_tasks} "
            "tasks: both must agree."
        )
    return given


def writer_partition(
    train_writers: NDArray[np.int64],
    test_writers: NDArray[np.int64],
    settings: FederationSettings,
) -> Partition:
    """Give each client the images of one writer, drawn by the seed; all have one task.

    `train_writers` and `test_writers`, shapes (n,) and (m,), are the writer of each sample.
    """
    num_clients, min_samples = settings.num_clients, settings.min_samples
    writers = np.flatnonzero(np.bincount(train_writers) >= max(min_samples, 1))
    if len(writers) < num_clients:
        raise ValueError(
            f"num-clients is {num_clients}, but only {len(writers)} writers have {min_samples} "
            "training images (min-samples): use fewer clients, or lower min-samples."
        )
    rng = np.random.default_rng([settings.seed, _WRITERS_STREAM])
    drawn = np.sort(rng.choice(writers, size=num_clients, replace=False)).tolist()
    return Partition(
        (tuple(drawn),),
        np.zeros(num_clients, np.int64),
        tuple(np.flatnonzero(train_writers == writer) for writer in drawn),
        tuple(np.flatnonzero(test_writers == writer) for writer in drawn),
    )


def given_partition(train_labels: NDArray[np.int64], given: GivenPartition) -> Partition:
    """Return the partition that data come in; a task has its clients' training labels, (n,)."""
    tasks = [0] * len(given.train) if given.tasks is None else given.tasks
    names, client_tasks = np.unique(tasks, return_inverse=True)
    train, test = (
        tuple(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
        for sizes in (given.train, given.test)
    )
    members = [np.flatnonzero(client_tasks == task) for task in range(len(names))]
    labels = [np.unique(train_labels[np.concatenate([train[c] for c in task])]) for task in members]
    return Partition(
        tuple(tuple(task.tolist()) for task in labels), client_tasks.astype(np.int64), train, test
    )


def _labels_of_others(tasks: Tasks, task: int) -> tuple[int, ...]:
    others = (label for labels in tasks for label in labels if label not in tasks[task])
    return tuple(dict.fromkeys(others))  # each once, in the tasks' order


def check_labels(tasks: Tasks, labels: Collection[int], which: str) -> None:
    """Raise a ValueError for a task with a label that none of the (`which`) samples has."""
    absent = sorted({label for task in tasks for label in task} - set(labels))
    if absent:
        raise ValueError(
            f"a task has label {absent[0]}, but no {which} sample has it: set tasks to some of "
            f"the labels {list(labels)}."
        )


def _by_label(labels: NDArray[np.int64], tasks: Tasks, seed: int) -> list[list[Indices]]:
    """Return each task's samples, by label; tasks that share one get an even part of it each."""
    parts: dict[int, list[Indices]] = {}
    for label in {label for task in tasks for label in task}:
        samples, sharing = np.flatnonzero(labels == label), sum(label in task for task in tasks)
        if sharing > 1:
            samples = np.random.default_rng([seed, label, _SHARED_STREAM]).permutation(samples)
        parts[label] = [np.sort(part) for part in np.array_split(samples, sharing)]
    return [[parts[label].pop(0) for label in task] for task in tasks]


class _Task(NamedTuple):
    """The samples of a task, by label, and how they are spread."""

    by_label: Sequence[Indices]
    num_clients: int
    alpha: float  # of Dirichlet draws
    floor: int  # the least number of samples of a client


def _shares(task: _Task, kind: str, rng: np.random.Generator) -> list[Indices] | None:
    """Spread a task's samples over its clients, at least `floor` each; None if that fails."""
    for _ in range(_MAX_DRAWS):
        shares = SPREADS[kind](task, rng)
        if min(map(len, shares)) >= task.floor:
            return shares
        if kind in ("equal", "power-law"):  # another draw would have the same sizes
            break
    return None


def _label(task: _Task, rng: np.random.Generator) -> list[Indices]:
    """Draw a Dirichlet share of each class, so that sizes and class mixes differ."""
    parts: list[list[Indices]] = [[] for _ in range(task.num_clients)]
    for samples in task.by_label:
        shares = rng.dirichlet(np.full(task.num_clients, task.alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(samples)).astype(np.int64)
        for part, piece in zip(parts, np.split(rng.permutation(samples), cuts), strict=True):
            part.append(piece)
    return [np.concatenate(part) for part in parts]


def _quantity(task: _Task, rng: np.random.Generator) -> list[Indices]:
    """Draw one Dirichlet share of all samples, so that sizes differ and class mixes do not."""
    return _label(task._replace(by_label=[np.sort(np.concatenate(task.by_label))]), rng)


def _equal(task: _Task, rng: np.random.Generator) -> list[Indices]:
    """Deal samples out evenly (FLT, scenario 1; IFCA's rotated MNIST)."""
    return np.array_split(rng.permutation(np.concatenate(task.by_label)), task.num_clients)


def _power_law(task: _Task, rng: np.random.Generator) -> list[Indices]:
    """Deal `floor` samples to each client, and of the rest a part proportional to 1/r to the r-th.

    The order of clients is random (FLT, scenario 4, which gives no exponent).
    """
    samples = rng.permutation(np.concatenate(task.by_label))
    ranks = np.arange(1, task.num_clients + 1)
    shares = np.cumsum(1 / ranks) / np.sum(1 / ranks)
    rest = max(len(samples) - task.floor * task.num_clients, 0)
    cuts = task.floor * ranks + np.round(shares * rest).astype(np.int64)
    pieces = np.split(samples, cuts[:-1])
    return [pieces[rank] for rank in rng.permutation(task.num_clients)]


SPREADS: Mapping[str, Callable[[_Task, np.random.Generator], list[Indices]]] = {
    "label": _label,
    "quantity": _quantity,
    "equal": _equal,
    "power-law": _power_law,
}


def draw_local_test(
    train_groups: NDArray[np.int64],
    test_groups: NDArray[np.int64],
    train: Sequence[Indices],
    seed: int,
    client: int,
) -> Indices:
    """Draw test samples for a client with the mix of classes of its training samples.

    As many as possible: with n_c training samples and m_c test samples of class (or group) c,
    the client gets n_c · min over c of m_c / n_c of class c, rounded: all m_c of the scarcest.
    """
    rng = np.random.default_rng([seed, client, _TEST_STREAM])
    classes, counts = np.unique(train_groups[train[client]], return_counts=True)
    of_class = [np.flatnonzero(test_groups == c) for c in classes]
    share = min(len(samples) / n for samples, n in zip(of_class, counts, strict=True))
    mixed = [
        rng.choice(samples, size=round(share * n), replace=False)
        for samples, n in zip(of_class, counts.tolist(), strict=True)
    ]
    return np.sort(np.concatenate(mixed))
