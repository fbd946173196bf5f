"""A simulated federation: one data set, its partition and its noise, from settings and a seed.

And who comes late, whose task changes on the way, and who is malicious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset
from fl_core.data.datasets import load_dataset
from fl_core.data.samples import sample_word
from fl_core.data.scaling import Scaling
from fl_core.data.settings import SYNTHETIC
from fl_core.data.synthetic import synthetic
from fl_core.partitions.concept import concept_shifted, concept_tasks
from fl_core.partitions.federation_checks import (
    check_counts,
    check_held,
    check_noise,
    check_number_to_predict,
    check_wrong_labels,
    num_malicious,
)
from fl_core.partitions.given_partitions import given_partition
from fl_core.partitions.noise import add_label_noise
from fl_core.partitions.partition import (
    Partition,
    Tasks,
    default_tasks,
    make_partition,
    own_test,
    parse_tasks,
    writer_partition,
)
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.standardise import standardised
from fl_core.partitions.tasks import are_random, parse_counts, random_tasks
from fl_core.partitions.validation import STREAM, split_all

# Every purpose draws from a stream of its own: what is drawn for one does not depend on another.
_NOISE_STREAM = 0x4015E
_NEWCOMER_STREAM = 0x4E3C0
_DRIFT_STREAM = 0xD21F7
_MALICE_STREAM = 0x3A11C


@dataclass(frozen=True, eq=False)
class Federation:
    """All simulated clients' data, kept as one copy of the samples and indices into it.

    Attributes
    ----------
    dataset : Dataset
        Samples and true labels.
    partition : Partition
        Tasks, and who holds which sample.
    train_labels : tuple of K NDArray[np.int64]
        Each client's training labels after noise, in the order of `partition.train`.
    validation, validation_labels : tuple of K NDArray[np.int64], or empty
        Which training samples each client keeps for comparing models, ascending, and their labels
        after noise: nobody trains on them, and they are not in `partition.train`.
    newcomers : tuple of int
        The clients that are not there before `newcomer_round`, ascending.
    malicious : tuple of int
        The malicious clients, ascending. What they do is `clients.attacks`' matter.
    drift_round : int
        The first round after the drift.
    after_drift : tuple of K int, or empty
        Whose data, `partition`'s and `train_labels`', each client holds from `drift_round` on;
        empty without drift.
    other_test : str
        What `client_test` calls the other way to test clients; empty if there is one way only.
    other_indices : callable, optional
        From a client to the indices of its other test samples, ascending. Called when they are
        needed: those of ten thousand clients would be large.
    """

    dataset: Dataset
    partition: Partition
    train_labels: tuple[NDArray[np.int64], ...]
    validation: tuple[NDArray[np.int64], ...] = ()
    validation_labels: tuple[NDArray[np.int64], ...] = ()
    newcomers: tuple[int, ...] = ()
    malicious: tuple[int, ...] = ()
    drift_round: int = 0
    after_drift: tuple[int, ...] = ()
    other_test: str = ""
    other_indices: Callable[[int], NDArray[np.int64]] | None = None

    @property
    def drifters(self) -> tuple[int, ...]:
        """Return the clients whose task changes at `drift_round`, ascending."""
        return tuple(client for client, whose in enumerate(self.after_drift) if client != whose)

    @property
    def knows_tasks(self) -> bool:
        """Return whether the clients' true tasks are known: not if data came in partitions only."""
        held = self.dataset.given_partition
        return held is None or held.tasks is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return what the clients are called; empty where they have no names."""
        return (self.dataset.given_partition.names if self.dataset.given_partition else None) or ()

    def training_data(
        self, client: int, server_round: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the samples a client holds in a round, (n, …), and its noisy labels.

        Round 0 is before the first.
        """
        whose = self._holdings(server_round)[client]
        own = torch.from_numpy(self.partition.train[whose])
        images = self.dataset.train_samples
        return images[own], torch.from_numpy(self.train_labels[whose]).to(images.device)

    def validation_data(
        self, client: int, server_round: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return what a client compares models on in a round, with noisy labels, if it does."""
        if not self.validation:
            return None
        whose = self._holdings(server_round)[client]
        images = self.dataset.train_samples
        labels = torch.from_numpy(self.validation_labels[whose])
        return images[torch.from_numpy(self.validation[whose])], labels.to(images.device)

    def scaling(self, client: int, server_round: int = 0) -> Scaling | None:
        """Return by what the samples of a client in a round were standardised, if they were."""
        scalings = self.dataset.scalings
        if len(scalings) < 2:
            return scalings[0] if scalings else None
        return scalings[self._holdings(server_round)[client]]

    def training_indices(self, client: int, server_round: int = 0) -> NDArray[np.int64]:
        """Return which training samples a client holds in a round, (n,); round 0: at first."""
        return self.partition.train[self._holdings(server_round)[client]]

    def test_data(self, client: int, server_round: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a client's test samples in a round, uint8 (m, C, H, W), with clean labels.

        Round 0 is before the first.
        """
        own = torch.from_numpy(self.partition.test[self._holdings(server_round)[client]])
        return self.dataset.test_samples[own], self.dataset.test_labels[own]

    def other_test_data(
        self, client: int, server_round: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
        """Return what a client is tested on in the other way: beside `test_data`, what is new.

        Returns
        -------
        tuple of three Tensors, or None
            Which of `test_data` belong to the other test as well, int64, (s,); all others of that
            test, and their clean labels. None if there is no other way.
        """
        if self.other_indices is None:
            return None
        whose = self._holdings(server_round)[client]
        first, other = self.partition.test[whose], self.other_indices(whose)
        if not len(other):  # a class of the client has no test sample
            return None
        alone = torch.from_numpy(np.setdiff1d(other, first))
        shared = torch.from_numpy(np.flatnonzero(np.isin(first, other)))
        return shared, self.dataset.test_samples[alone], self.dataset.test_labels[alone]

    def tasks_at(self, server_round: int) -> NDArray[np.int64]:
        """Return each client's true task in a round, shape (K,); round 0 is before the first."""
        return self.partition.client_tasks[list(self._holdings(server_round))]

    def _holdings(self, server_round: int) -> Sequence[int]:
        """Return whose data each client holds in a round."""
        if self.after_drift and server_round >= self.drift_round:
            return self.after_drift
        return range(self.partition.num_clients)

    def label_counts(self, *, noisy: bool) -> NDArray[np.int64]:
        """Return how many samples of each label each client has at first, shape (K, classes)."""
        truth = self.dataset.train_labels.numpy()
        return np.stack(
            [
                np.bincount(
                    self.train_labels[c] if noisy else truth[indices],
                    minlength=self.dataset.num_classes,
                )
                for c, indices in enumerate(self.partition.train)
            ]
        )


@lru_cache(maxsize=2)
def simulate_federation(settings: FederationSettings) -> Federation:
    """Load the data set, spread it over the clients and add the label noise.

    The last two federations stay in the process: its clients share one copy of the samples.

    Raises
    ------
    ValueError, OSError
        As `load_dataset`, `parse_tasks` and `make_partition` say; if the tasks' labels are the
        same and there is noise; or if newcomers, drifting or malicious clients cannot be so many.
    """
    check_counts(settings)
    if settings.dataset == SYNTHETIC:
        dataset = synthetic(settings.num_tasks, settings.heterogeneity, settings.seed)
    else:
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
    """Spread a data set over the clients, and add the label noise.

    Raises
    ------
    ValueError
        As `simulate_federation` does, but for what is wrong with the data set.
    """
    if dataset.is_regression:
        known = dataset.groups is not None or dataset.given_partition is not None
        check_number_to_predict(settings, has_tasks=known)
    if settings.shift == "concept":
        if dataset.groups or dataset.given_partition:
            raise ValueError(
                f'shift is "concept", but {settings.dataset} has tasks of its own: choose another '
                "data set."
            )
        dataset = concept_shifted(dataset, settings.num_tasks, settings.seed)
    check_noise(settings, dataset.groups is not None)
    partition = _partition(settings, dataset)
    if dataset.given_partition is None and not dataset.is_regression:
        check_wrong_labels(settings, partition.tasks)
    labels = dataset.train_labels.numpy()
    groups = (dataset.train_groups.numpy(), dataset.test_groups.numpy())
    own = partial(own_test, *groups, partition.train, settings.seed)
    other: tuple[str, Callable[[int], NDArray[np.int64]] | None] = ("own", own)
    if (
        settings.client_test == "own" and dataset.given_partition is None
    ):  # which says who tests on what
        other = ("task", partition.test.__getitem__)
        partition = replace(partition, test=tuple(map(own, range(partition.num_clients))))
    has_one = (
        dataset.given_partition is not None or settings.partition == "writer"
    )  # whose tests are its own
    if has_one or dataset.is_regression:  # whose numbers have no mix of classes
        other = ("", None)
    noisy = tuple(
        add_label_noise(
            labels[indices],
            partition.tasks[partition.client_tasks[client]],
            partition.unintended(client),
            settings.noise,
            settings.noise_rate,
            np.random.default_rng([settings.seed, client, _NOISE_STREAM]),
        )
        for client, indices in enumerate(partition.train)
    )
    partition, noisy, kept = _validating(settings, dataset, partition, noisy)
    dataset = standardised(dataset, partition, settings.standardise, kept[0])
    if dataset.is_regression:  # whose numbers are on the clients' scale now
        numbers = dataset.train_labels.numpy()
        noisy = tuple(numbers[own] for own in partition.train)
        kept = kept[0], tuple(numbers[own] for own in kept[0])
    client_tasks = partition.client_tasks
    late = _spread(client_tasks, settings.newcomers, settings.seed, _NEWCOMER_STREAM)
    return Federation(
        dataset,
        partition,
        noisy,
        *kept,
        newcomers=late,
        malicious=_spread(client_tasks, num_malicious(settings), settings.seed, _MALICE_STREAM),
        drift_round=settings.drift_round,
        after_drift=_exchange(client_tasks, settings.drift_clients, settings.seed, without=late),
        other_test=other[0],
        other_indices=other[1],
    )


Labels = tuple[NDArray[np.int64], ...]


def _validating(
    settings: FederationSettings, dataset: Dataset, partition: Partition, labels: Labels
) -> tuple[Partition, Labels, tuple[Labels, Labels]]:
    """Take each client's validation part out of what it trains on, and out of its labels."""
    if not settings.validation_share:
        return partition, labels, ((), ())
    in_time = dataset.given_partition.in_time if dataset.given_partition else ()
    draws = [
        None if client in in_time else np.random.default_rng([settings.seed, client, STREAM])
        for client in range(partition.num_clients)
    ]
    parts = split_all(partition.train, labels, settings.validation_share, draws)
    train, trained, kept, known = (
        tuple(own[mask] for own, mask in zip(values, masks, strict=True))
        for masks in zip(*parts, strict=True)
        for values in (partition.train, labels)
    )
    return replace(partition, train=train), trained, (kept, known)


def _partition(settings: FederationSettings, dataset: Dataset) -> Partition:
    if dataset.given_partition is not None:
        check_held(
            settings, len(dataset.given_partition.train), dataset.given_partition.tasks is not None
        )
        return given_partition(dataset.train_groups.numpy(), dataset.given_partition)
    groups = (dataset.train_groups.numpy(), dataset.test_groups.numpy())
    if settings.partition == "writer":
        return writer_partition(
            *groups, settings.num_clients, min_samples=settings.min_samples, seed=settings.seed
        )
    return make_partition(
        *groups,
        _tasks(settings, dataset),
        settings.num_clients,
        kind=settings.partition,
        dirichlet_alpha=settings.dirichlet_alpha,
        minority=settings.minority,
        min_samples=settings.min_samples,
        clients_per_task=parse_counts(settings.clients_per_task),
        seed=settings.seed,
        sample=sample_word(dataset),
    )


def _tasks(settings: FederationSettings, dataset: Dataset) -> Tasks:
    if settings.shift == "concept" or settings.dataset == SYNTHETIC:
        return concept_tasks(dataset.num_classes, settings.num_tasks)
    if are_random(settings.tasks):
        return random_tasks(settings.tasks, len(dataset.group_names), settings.seed)
    if settings.tasks:
        return parse_tasks(settings.tasks)
    return default_tasks(settings.dataset, settings.num_tasks, len(dataset.group_names))


def _in_turn(
    client_tasks: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    without: Collection[int] = (),
    spare_last: bool = False,
) -> list[int]:
    """Return the clients in a random order in which tasks take turns.

    One client of each task comes first, then a second of each, and so on. With `spare_last`, the
    last client of each task comes after all others: whoever takes clients from the front leaves
    every task one as long as there is a choice.
    """
    shuffled = [c for c in rng.permutation(len(client_tasks)).tolist() if c not in without]
    turn, taken = {}, Counter[int]()
    for client in shuffled:
        turn[client] = taken[client_tasks[client]]
        taken[client_tasks[client]] += 1
    if spare_last:
        for client in shuffled:
            if turn[client] == taken[client_tasks[client]] - 1:
                turn[client] += len(client_tasks)
    return sorted(shuffled, key=turn.__getitem__)


def _spread(client_tasks: NDArray[np.int64], count: int, seed: int, stream: int) -> tuple[int, ...]:
    """Draw `count` clients, spread over the tasks, by a stream of their own; ascending."""
    rng = np.random.default_rng([seed, stream])
    return tuple(sorted(_in_turn(client_tasks, rng, spare_last=True)[:count]))


def _exchange(
    client_tasks: NDArray[np.int64], count: int, seed: int, without: Collection[int]
) -> tuple[int, ...]:
    """Draw `count` clients that exchange their data, and return whose data each client gets."""
    if not count:
        return ()
    rng = np.random.default_rng([seed, _DRIFT_STREAM])
    drawn = _in_turn(client_tasks, rng, without=frozenset(without))[:count]
    drawn.sort(key=lambda client: int(client_tasks[client]))
    task, most = Counter(client_tasks[drawn].tolist()).most_common(1)[0]
    if 2 * most > count:
        raise ValueError(
            f"drift-clients is {count}, but {most} of them have task {task} and only "
            f"{count - most} another one, so that not everyone can get data of another task: "
            "choose an even number, fewer newcomers, or more tasks."
        )
    # Blocks of one task each, shifted by the longest: nobody stays in the own block.
    whose = np.arange(len(client_tasks))
    whose[drawn] = np.roll(drawn, -most)
    return tuple(whose.tolist())
