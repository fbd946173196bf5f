"""Scenario 2 as the authors of FLT deal out images: neighbouring clusters have the same ones.

A client has as many images of each of its three classes. The k-th client of a cluster has the k-th
of 20 slices of each, in the order of the data set; so, of a class that two clusters have, their
k-th clients have the very same images, and the last third of all is nobody's.
"""

from __future__ import annotations

import torch

from fl_core.data.datasets import load_dataset
from fl_core.data.own_data import Part, Partitions

CLUSTERS = ((5, 3, 7), (7, 9, 6), (6, 2, 0), (0, 1, 8), (8, 4, 5))
CLIENTS_PER_CLUSTER = 20


def mnist() -> Partitions:
    """Return 100 clients with 600 images of MNIST each, which their clusters' classes test."""
    return of_scenario_2("mnist")


def cifar10() -> Partitions:
    """Return 100 clients with 498 images of CIFAR-10 each, which their clusters' classes test."""
    return of_scenario_2("cifar10")


def of_scenario_2(name: str) -> Partitions:
    """Return the clients of a data set, which are 20 in each of `CLUSTERS`; a task is a cluster."""
    data = load_dataset(name)
    num_clients = len(CLUSTERS) * CLIENTS_PER_CLUSTER
    clients: list[Part] = []
    for classes in CLUSTERS:
        size = len(data.train_labels) // num_clients // len(classes)
        of_class = [torch.nonzero(data.train_labels == label)[:, 0] for label in classes]
        tested = torch.isin(data.test_labels, torch.tensor(classes))
        test = data.test_images[tested], data.test_labels[tested]
        for client in range(CLIENTS_PER_CLUSTER):
            mine = torch.cat([images[client * size :][:size] for images in of_class])
            clients.append((data.train_images[mine], data.train_labels[mine], *test))
    tasks = [client // CLIENTS_PER_CLUSTER for client in range(num_clients)]
    return Partitions(clients, tasks, data.class_names)
