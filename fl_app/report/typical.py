"""Which images stand for the clusters of a simulation, in the picture of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clients.features.hog import hog
from fl_core.federation.federation import Federation

MOST_CLASSES = 4  # of a cluster: more images would be too small to see their HoG
_FEWEST = 0.25  # of the largest class: fewer came with the `minority`
_MOST_COMPARED = 100  # images of a class; HoG of photos takes a millisecond each


@dataclass(frozen=True, eq=False)
class TypicalImages:
    """What is shown of one cluster.

    Attributes
    ----------
    cluster : int
        Its number.
    tasks : dict of int
        How many of its clients have each true task, the most frequent first.
    images : NDArray[np.uint8], shape (n, C, H, W)
        The typical image of each class that is shown.
    captions : tuple of n str
        Their true classes.
    num_classes : int
        How many classes the cluster has a typical image of, shown or not.
    """

    cluster: int
    tasks: dict[int, int]
    images: NDArray[np.uint8]
    captions: tuple[str, ...]
    num_classes: int

    @property
    def num_clients(self) -> int:
        """Return how many clients are in the cluster."""
        return sum(self.tasks.values())


def typical_of_clusters(
    federation: Federation,
    of_client: Mapping[int, int],
    tasks: Sequence[int],
    server_round: int,
    most: int,
) -> list[TypicalImages]:
    """Return typical images of the largest clusters, by cluster number.

    Parameters
    ----------
    federation : Federation
        Whose training images are looked at; test images never are.
    of_client : mapping of int
        From client to cluster. Their order does not matter.
    tasks : sequence of K int
        The true task of each client.
    server_round : int
        After which clients hold the images that are looked at.
    most : int
        Clusters to return; of equally large ones, those with the lower numbers.
    """
    members: dict[int, list[int]] = {}
    for client, cluster in of_client.items():
        members.setdefault(cluster, []).append(client)
    largest = sorted(members, key=lambda cluster: (-len(members[cluster]), cluster))[:most]
    data = federation.dataset
    found = []
    for cluster in sorted(largest):
        # An image that two clients hold counts once, and the order is the data set's.
        held = np.unique(
            np.concatenate([federation.training_indices(c, server_round) for c in members[cluster]])
        )
        groups = data.train_groups.numpy()[held]
        classes = typical_classes(groups)
        shown = sorted(classes[:MOST_CLASSES])
        chosen = [nearest_to_mean(data.train_images, held[groups == group]) for group in shown]
        counts = Counter(tasks[client] for client in members[cluster])
        found.append(
            TypicalImages(
                cluster,
                dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
                data.train_images.numpy()[chosen],
                tuple(data.group_names[group] for group in shown),
                len(classes),
            )
        )
    return found


def typical_classes(groups: NDArray[np.int64]) -> list[int]:
    """Return the classes that make up a cluster, the largest first; equal ones by number.

    Those with at least a quarter of the largest class's images: the others came with clients'
    few images of other tasks.

    Parameters
    ----------
    groups : NDArray[np.int64], shape (n,)
        The true class of each image, n > 0.
    """
    counts = np.bincount(groups)
    order = np.argsort(-counts, kind="stable")
    return [int(group) for group in order if counts[group] >= max(1, _FEWEST * counts.max())]


def nearest_to_mean(images: Tensor, members: NDArray[np.int64]) -> int:
    """Return the member whose HoG is nearest to the members' mean HoG; of equals, the first.

    Of a large class, a hundred members are compared, evenly spaced.

    Parameters
    ----------
    images : Tensor, uint8, shape (N, C, H, W)
    members : NDArray[np.int64], shape (n,)
        Indices into `images`, ascending, n > 0.
    """
    if len(members) > _MOST_COMPARED:
        members = members[np.linspace(0, len(members) - 1, _MOST_COMPARED).astype(int)]
    features = hog(images[members]).numpy().astype(np.float64)
    distances = ((features - features.mean(axis=0)) ** 2).sum(axis=1)
    return int(members[distances.argmin()])
