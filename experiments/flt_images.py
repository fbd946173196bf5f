"""Scenario 2 as the authors of FLT deal out images, in two versions of their code.

Until 27 January 2021, a client drew as many images of each of its three classes as scenario 1's
clients have of each of two, at random; so clients share some images, and have half as many again.
Since then, it has as many images as those in all. The k-th client of a cluster has the k-th of 20
slices of each class, in the order of the data set; so, of a class that two clusters have, their
k-th clients have the very same images, and the last third of all is not used.
"""

from collections.abc import Callable

import numpy as np
import torch

from fl_core.data.datasets import load_dataset
from fl_core.data.user_data import ClientArrays, Partitions

CLUSTERS = ((5, 3, 7), (7, 9, 6), (6, 2, 0), (0, 1, 8), (8, 4, 5))
CLIENTS_PER_CLUSTER = 20
SEED = 321
"""NumPy's, in their code."""

Deal = Callable[[torch.Tensor, int, int], torch.Tensor]
"""From a class's images, a client's number of them and its index in its cluster, to its images."""


def mnist() -> Partitions:
    """Return 100 clients with 600 images of MNIST each, which their clusters' classes test."""
    return in_slices("mnist")


def cifar10() -> Partitions:
    """Return 100 clients with 498 images of CIFAR-10 each, which their clusters' classes test."""
    return in_slices("cifar10")


def mnist_drawn() -> Partitions:
    """Return 100 clients with 900 images of MNIST each, drawn as until 27 January 2021."""
    return drawn("mnist")


def cifar10_drawn() -> Partitions:
    """Return 100 clients with 750 images of CIFAR-10 each, drawn as until 27 January 2021."""
    return drawn("cifar10")


def in_slices(name: str) -> Partitions:
    """Return the clients of a data set, each with a third of its share of images of each class."""
    return _dealt(name, 3, lambda images, size, client: images[client * size :][:size])


def drawn(name: str) -> Partitions:
    """Return the clients of a data set, each with half of its share of images of each class."""
    random = np.random.RandomState(SEED)
    random.choice(10, 10, replace=False)  # the classes, in the order of `CLUSTERS`

    def deal(images: torch.Tensor, size: int, client: int) -> torch.Tensor:
        # Less one, as there: no client has a class's last image.
        return images[random.choice(len(images) - 1, size, replace=False)]

    return _dealt(name, 2, deal)


def _dealt(name: str, shares: int, deal: Deal) -> Partitions:
    """Return the clients of a data set, which are 20 in each of `CLUSTERS`; a task is a cluster."""
    data = load_dataset(name)
    num_clients = len(CLUSTERS) * CLIENTS_PER_CLUSTER
    size = len(data.train_labels) // num_clients // shares
    clients: list[ClientArrays] = []
    for classes in CLUSTERS:
        of_class = [torch.nonzero(data.train_labels == label)[:, 0] for label in classes]
        tested = torch.isin(data.test_labels, torch.tensor(classes))
        test = data.test_samples[tested], data.test_labels[tested]
        for client in range(CLIENTS_PER_CLUSTER):
            mine = torch.cat([deal(images, size, client) for images in of_class])
            clients.append((data.train_samples[mine], data.train_labels[mine], *test))
    tasks = [client // CLIENTS_PER_CLUSTER for client in range(num_clients)]
    return Partitions(clients, tasks, data.class_names)
