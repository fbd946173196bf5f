"""A simulated federation: a data set, its partition and noise, newcomers, drift and attackers."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.data.scaling import Scaling
from fl_core.data.settings import SYNTHETIC
from fl_core.data.synthetic import make_synthetic
from fl_core.partitions import federation_checks as checks
from fl_core.partitions.concept import concept_tasks, shift_concept
from fl_core.partitions.noise import label_noise
from fl_core.partitions.partition import (
    Partition,
    draw_local_test,
    given_partition,
    make_partition,
    writer_partition,
)
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.standardise import standardise_dataset
from fl_core.partitions.tasks import Tasks, are_random, random_tasks
from fl_core.partitions.validation import STREAM, split_clients

# Each purpose draws from its random stream, so that no draw depends on another.
_NEWCOMER_STREAM = 0x4E3C0
_DRIFT_STREAM = 0xD21F7
_MALICE_STREAM = 0x3A11C

Labels = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, eq=False)
class Federation:
    """All simulated clients' data: one copy of the samples, and indices into it.

    Methods take a round: from `drift_round` on some clients have exchanged their data.
    """

    dataset: Dataset  # with true labels
    partition: Partition
    train_labels: Labels  # by client, after noise, in the order of `partition.train`
    validation: Labels = ()  # by client, indices of samples that only compare models, ascending
    validation_labels: Labels = ()  # after noise
    newcomers: tuple[int, ...] = ()  # clients that join in `newcomer_round`, ascending
    malicious: tuple[int, ...] = ()  # ascending; `clients.attacks` has what they do
    drift_round: int = 0  # the first one after the drift
    after_drift: tuple[int, ...] = ()  # by client, the client with its data from then on
    other_test: str = ""  # the second of the two tests of `client_test`, if there are two
    other_indices: Callable[[int], NDArray[np.int64]] | None = None  # of it, ascending, by client

    @property
    def drifters(self) -> tuple[int, ...]:
        """Return the clients with another task from `drift_round` on, ascending."""
        return tuple(client for client, source in enumerate(self.after_drift) if client != source)

    @property
    def knows_tasks(self) -> bool:
        """Return whether the clients' true tasks are known: not for all data in partitions."""
        given = self.dataset.given_partition
        return given is None or given.tasks is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the clients' names; nothing if they have none."""
        given = self.dataset.given_partition
        return (given.names if given else None) or ()

    def training_data(self, client: int, server_round: int = 0) -> tuple[Tensor, Tensor]:
        """Return a client's training samples, (n, …), and its noisy labels."""
        source = self._source(client, server_round)
        return self._samples(self.partition.train[source], self.train_labels[source])

    def validation_data(self, client: int, server_round: int = 0) -> tuple[Tensor, Tensor] | None:
        """Return the samples on which a client compares models, with noisy labels, if any."""
        if not self.validation:
            return None
        source = self._source(client, server_round)
        return self._samples(self.validation[source], self.validation_labels[source])

    def _samples(
        self, indices: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        samples = self.dataset.train_samples
        return samples[torch.from_numpy(indices)], torch.from_numpy(labels).to(samples.device)

    def scaling(self, client: int, server_round: int = 0) -> Scaling | None:
        """Return the scaler of a client's samples, if they were standardised."""
        return self.dataset.preparation_of(self._source(client, server_round)).scaling

    def test_data(self, client: int, server_round: int = 0) -> tuple[Tensor, Tensor]:
        """Return a client's test samples, (m, …), with clean labels."""
        indices = torch.from_numpy(self.partition.test[self._source(client, server_round)])
        return self.dataset.test_samples[indices], self.dataset.test_labels[indices]

    def other_test_data(
        self, client: int, server_round: int = 0
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the samples of a client's second test, if there is one.

        These are the indices, int64 (s,), of those in `test_data`; the others; and their labels.
        """
        if self.other_indices is None:
            return None
        source = self._source(client, server_round)
        first, other = self.partition.test[source], self.other_indices(source)
        if not len(other):  # a class of the client has no test sample
            return None
        alone = torch.from_numpy(np.setdiff1d(other, first))
        shared = torch.from_numpy(np.flatnonzero(np.isin(first, other)))
        return shared, self.dataset.test_samples[alone], self.dataset.test_labels[alone]

    def tasks_at(self, server_round: int) -> NDArray[np.int64]:
        """Return each client's true task, shape (K,)."""
        clients = range(self.partition.num_clients)
        return self.partition.client_tasks[[self._source(c, server_round) for c in clients]]

    def _source(self, client: int, server_round: int) -> int:
        """Return the client that has a client's data in the partition."""
        if self.after_drift and server_round >= self.drift_round:
            return self.after_drift[client]
        return client

    def label_counts(self, *, noisy: bool) -> NDArray[np.int64]:
        """Return how many samples of each label each client has at first, shape (K, classes)."""
        truth, size = self.dataset.train_labels.numpy(), self.dataset.num_classes
        true_labels = (truth[indices] for indices in self.partition.train)
        labels = self.train_labels if noisy else true_labels
        return np.stack([np.bincount(one, minlength=size) for one in labels])


@lru_cache(maxsize=2)
def simulate_federation(settings: FederationSettings) -> Federation:
    """Load the data set, spread it over the clients and add the label noise; two are cached."""
    checks.check_counts(settings)
    if settings.dataset == SYNTHETIC:
        made = make_synthetic(settings.num_tasks, settings.heterogeneity, settings.seed)
        return spread(settings, made)
    dataset = load_dataset(
        settings.dataset,
        settings.data_dir,
        seed=settings.seed,
        train_share=settings.train_share,
        label=settings.label,
        target=settings.target,
    )
    return spread(settings, dataset)


def spread(settings: FederationSettings, dataset: Dataset) -> Federation:
    """Spread a data set over the clients, and add the label noise."""
    given, seed = dataset.given_partition, settings.seed
    if dataset.is_regression:
        checks.check_number_to_predict(settings, has_tasks=bool(dataset.groups or given))
    if settings.shift == "concept":
        checks.check_shift(settings, has_tasks=bool(dataset.groups or given))
        dataset = shift_concept(dataset, settings.num_tasks, seed)
    if dataset.groups:
        checks.check_noise(settings)
    groups = dataset.train_groups.numpy(), dataset.test_groups.numpy()
    if given is not None:
        checks.check_given(settings, given)
        partition = given_partition(groups[0], given)
    elif settings.partition == "writer":
        partition = writer_partition(*groups, settings)
    else:
        partition = make_partition(*groups, _tasks(settings, dataset), settings)
    if given is None and not dataset.is_regression:
        checks.check_noise(settings, partition.tasks)
    own_test = partial(draw_local_test, *groups, partition.train, seed)
    other: tuple[str, Callable[[int], NDArray[np.int64]] | None] = ("own", own_test)
    if settings.client_test == "own" and given is None:
        other = ("task", partition.test.__getitem__)
        partition = replace(partition, test=tuple(map(own_test, range(partition.num_clients))))
    if given or settings.partition == "writer" or dataset.is_regression:
        other = ("", None)  # the partition says who tests on what, or there is no mix of classes
    truth = dataset.train_labels.numpy()
    labels = tuple(
        label_noise(truth[indices], partition, client, settings)
        for client, indices in enumerate(partition.train)
    )
    partition, labels, validation, validation_labels = _hold_out(
        settings, dataset, partition, labels
    )
    dataset = standardise_dataset(dataset, partition, settings.standardise, validation)
    if dataset.is_regression:  # labels are on the clients' scale from here on
        numbers = dataset.train_labels.numpy()
        labels = tuple(numbers[indices] for indices in partition.train)
        validation_labels = tuple(numbers[indices] for indices in validation)
    tasks = partition.client_tasks
    late = _draw_clients(tasks, settings.newcomers, seed, _NEWCOMER_STREAM)
    return Federation(
        dataset,
        partition,
        labels,
        validation,
        validation_labels,
        newcomers=late,
        malicious=_draw_clients(tasks, checks.num_malicious(settings), seed, _MALICE_STREAM),
        drift_round=settings.drift_round,
        after_drift=_exchange(tasks, settings.drift_clients, seed, without=late),
        other_test=other[0],
        other_indices=other[1],
    )


def _hold_out(
    settings: FederationSettings, dataset: Dataset, partition: Partition, labels: Labels
) -> tuple[Partition, Labels, Labels, Labels]:
    """Move each client's validation samples and labels out of its training samples."""
    if not settings.validation_share:
        return partition, labels, (), ()
    in_time = dataset.given_partition.in_time if dataset.given_partition else ()
    draws = [
        None if client in in_time else np.random.default_rng([settings.seed, client, STREAM])
        for client in range(partition.num_clients)
    ]
    share, fold = settings.validation_share, settings.validation_fold
    parts = split_clients(partition.train, labels, share, draws, fold)
    train, train_labels, validation, validation_labels = (
        tuple(values[mask] for values, mask in zip(clients, masks, strict=True))
        for masks in zip(*parts, strict=True)
        for clients in (partition.train, labels)
    )
    return replace(partition, train=train), train_labels, validation, validation_labels


def _tasks(settings: FederationSettings, dataset: Dataset) -> Tasks:
    if settings.shift == "concept" or settings.dataset == SYNTHETIC:
        return concept_tasks(dataset.num_classes, settings.num_tasks)
    if are_random(settings.tasks):
        return random_tasks(settings.tasks, len(dataset.group_names), settings.seed)
    return checks.tasks_of(settings, len(dataset.group_names))


def _in_turn(
    client_tasks: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    without: Collection[int] = (),
    spare_last: bool = False,
) -> list[int]:
    """Return the clients in a random order in which tasks take turns.

    With `spare_last`, the last client of each task comes after all others.
    """
    shuffled = [c for c in rng.permutation(len(client_tasks)).tolist() if c not in without]
    turn: dict[int, int] = {}
    for task in np.unique(client_tasks):
        members = [client for client in shuffled if client_tasks[client] == task]
        turn |= {client: number for number, client in enumerate(members)}
        if spare_last and members:
            turn[members[-1]] += len(client_tasks)
    return sorted(shuffled, key=turn.__getitem__)


def _draw_clients(
    client_tasks: NDArray[np.int64], count: int, seed: int, stream: int
) -> tuple[int, ...]:
    """Draw `count` clients from a random stream, spread over the tasks; ascending."""
    rng = np.random.default_rng([seed, stream])
    return tuple(sorted(_in_turn(client_tasks, rng, spare_last=True)[:count]))


def _exchange(
    client_tasks: NDArray[np.int64], count: int, seed: int, without: Collection[int]
) -> tuple[int, ...]:
    """Draw `count` clients that exchange data; return, by client, the client with its new data."""
    if not count:
        return ()
    rng = np.random.default_rng([seed, _DRIFT_STREAM])
    drawn = _in_turn(client_tasks, rng, without=without)[:count]
    drawn.sort(key=lambda client: int(client_tasks[client]))
    task, most = Counter(client_tasks[drawn].tolist()).most_common(1)[0]
    if 2 * most > count:
        raise ValueError(
            f"drift-clients is {count}, but {most} of them have task {task} and only "
            f"{count - most} another one, so that some cannot get data of another task: choose an "
            "even number, fewer newcomers, or more tasks."
        )
    # Blocks of one task each, shifted by the longest: no client stays in its block.
    sources = np.arange(len(client_tasks))
    sources[drawn] = np.roll(drawn, -most)
    return tuple(sources.tolist())
