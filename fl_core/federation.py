"""A simulated federation: one data set, its partition and its noise, from settings and a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.datasets import Dataset, load_dataset
from fl_core.noise import add_label_noise
from fl_core.partition import Kind, Partition, default_tasks, make_partition, parse_tasks

# Every purpose draws from a stream of its own: what is drawn for one does not depend on another.
_NOISE_STREAM = 0x4015E


@dataclass(frozen=True)
class FederationSettings:
    """What decides who holds which image under which label. Hashable: it is the cache's key."""

    dataset: str
    data_dir: str
    num_clients: int
    num_tasks: int
    tasks: str
    partition: Kind
    dirichlet_alpha: float
    minority: float
    min_samples: int
    noise: str
    noise_rate: float
    seed: int


@dataclass(frozen=True, eq=False)
class Federation:
    """All simulated clients' data, kept as one copy of the images and indices into it.

    Attributes
    ----------
    dataset : Dataset
        Images and true labels.
    partition : Partition
        Tasks, and who holds which image.
    train_labels : tuple of K NDArray[np.int64]
        Each client's training labels after noise, in the order of `partition.train`.
    """

    dataset: Dataset
    partition: Partition
    train_labels: tuple[NDArray[np.int64], ...]

    def training_data(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the client's images, uint8 (n, C, H, W), and its labels, noise included."""
        own = torch.from_numpy(self.partition.train[client])
        return self.dataset.train_images[own], torch.from_numpy(self.train_labels[client])

    def test_data(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the test images of the client's task, uint8 (m, C, H, W), and clean labels."""
        own = torch.from_numpy(self.partition.test[client])
        return self.dataset.test_images[own], self.dataset.test_labels[own]

    def label_counts(self, *, noisy: bool) -> NDArray[np.int64]:
        """Return how many images of each label each client holds, shape (K, classes)."""
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

    The last two federations stay in the process: its clients share one copy of the images.

    Raises
    ------
    ValueError, OSError
        As `load_dataset`, `parse_tasks` and `make_partition` say.
    """
    dataset = load_dataset(settings.dataset, settings.data_dir, seed=settings.seed)
    labels = dataset.train_labels.numpy()
    tasks = (
        parse_tasks(settings.tasks)
        if settings.tasks
        else default_tasks(settings.dataset, settings.num_tasks, dataset.num_classes)
    )
    partition = make_partition(
        labels,
        dataset.test_labels.numpy(),
        tasks,
        settings.num_clients,
        kind=settings.partition,
        dirichlet_alpha=settings.dirichlet_alpha,
        minority=settings.minority,
        min_samples=settings.min_samples,
        seed=settings.seed,
    )
    noisy = tuple(
        add_label_noise(
            labels[indices],
            tasks[partition.client_tasks[client]],
            partition.unintended(client),
            settings.noise,
            settings.noise_rate,
            np.random.default_rng([settings.seed, client, _NOISE_STREAM]),
        )
        for client, indices in enumerate(partition.train)
    )
    return Federation(dataset, partition, noisy)
