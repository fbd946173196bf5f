"""Typical images of each cluster of a simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from clients.features.hog import hog
from fl_app.report.pictures import style
from fl_app.report.pictures.figure import Spec, channel, data_url, layer, picture, shorten
from fl_core.partitions.federation import Federation

MOST_CLUSTERS, MOST_CLASSES = 6, 6  # that fit on a page, and beside each other
_FEWEST = 0.25  # of the largest class: fewer came with clients' few images of other tasks
_MOST_COMPARED = 100  # images of a class; HoG of photos takes a millisecond each
_LEFT, _PITCH, _LARGEST = 14, 66, 53  # points: where images begin, from one to the next, its side
_HEAD, _ROW = 15, 92  # points above the images of a cluster, and of a cluster in all
_LETTERS, _CAPTION = 82, 14  # of the line about a cluster, and below an image


class Typical(NamedTuple):
    """A cluster with a typical image of each of its n largest classes."""

    cluster: int
    tasks: dict[int, int]  # number of its clients by true task, the most frequent first
    images: NDArray[np.uint8]  # (n, C, H, W)
    captions: tuple[str, ...]  # n true classes
    num_classes: int  # of the cluster, shown or not


def typical_of_clusters(
    federation: Federation,
    of_client: Mapping[int, int],
    tasks: Sequence[int],
    server_round: int,
) -> list[Typical]:
    """Return typical training images of the largest clusters after a round, by cluster.

    `of_client` maps clients to clusters in any order; `tasks` are the true ones by client.
    """
    sizes, data, found = Counter(of_client.values()), federation.dataset, []
    for cluster in sorted(sorted(sizes, key=lambda one: (-sizes[one], one))[:MOST_CLUSTERS]):
        members = [client for client, label in of_client.items() if label == cluster]
        images = [federation.training_indices(client, server_round) for client in members]
        held = np.unique(np.concatenate(images))  # one that two clients hold counts once
        groups = data.train_groups.numpy()[held]
        counts = np.bincount(groups)
        order = np.argsort(-counts, kind="stable").tolist()
        classes = [group for group in order if counts[group] >= max(1, _FEWEST * counts.max())]
        shown = sorted(classes[:MOST_CLASSES])
        typical = [nearest_to_mean(data.train_samples, held[groups == group]) for group in shown]
        found.append(
            Typical(
                cluster,
                dict(sorted(Counter(tasks[c] for c in members).items(), key=lambda t: (-t[1], t))),
                data.train_samples.numpy()[typical],
                tuple(data.group_names[group] for group in shown),
                len(classes),
            )
        )
    return found


def nearest_to_mean(images: Tensor, members: NDArray[np.int64]) -> int:
    """Return the member with the HoG nearest to the members' mean HoG; of equals, the first.

    `members` are ascending indices into uint8 images, (N, C, H, W). Of a large class, a hundred
    members are compared, evenly spaced.
    """
    if len(members) > _MOST_COMPARED:
        members = members[np.linspace(0, len(members) - 1, _MOST_COMPARED).astype(int)]
    features = hog(images[members]).numpy().astype(np.float64)
    distances = ((features - features.mean(axis=0)) ** 2).sum(axis=1)
    return int(members[distances.argmin()])


def clusters_figure(
    clusters: Sequence[Typical], num_clusters: int, found_by: str, task_names: Sequence[str]
) -> Spec:
    """Draw typical images of the largest clusters of a strategy, of `num_clusters` in all."""
    heads: list[Spec] = []
    images: list[Spec] = []
    for row, one in enumerate(clusters):
        y = row * _ROW
        colour = style.cluster_colour(one.cluster)
        about = shorten(_describe(one, task_names), _LETTERS)
        heads.append({"x": 0, "y": y, "y2": y + _ROW - 12, "colour": colour, "text": about})
        for column, (pixels, name) in enumerate(zip(one.images, one.captions, strict=True)):
            url = data_url(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
            place = {"x": _LEFT + _PITCH * column, "y": y + _HEAD}
            images.append({**place, "url": url, "text": shorten(name, _CAPTION)})
    size = {"width": _LARGEST, "height": _LARGEST, "baseline": "top", "align": "left"}
    in_points = {side: channel(f"{side}:Q", axis=None, scale=None) for side in "xy"}
    ends = {"x2": {"value": 5}, "y2": channel("y2"), "fill": channel("colour:N", scale=None)}
    left = {"align": "left", "baseline": "top"}
    words = {**in_points, "text": channel("text:N")}
    hidden = num_clusters > len(clusters)
    more = f"; the {len(clusters)} largest of {num_clusters} clusters" if hidden else ""
    return picture(
        f"Typical images in the clusters of {found_by}",
        f"the training image with the HoG nearest to its class's mean in the cluster{more}",
        layer=[
            layer("rect", heads, {}, **in_points, **ends),
            layer("text", heads, {**left, "dx": _LEFT}, **words),
            layer("image", images, size, **in_points, url=channel("url:N")),
            layer("text", images, {**left, "dy": _LARGEST + 3}, **words),
        ],
        height=_ROW * len(clusters),
    )


def _describe(one: Typical, task_names: Sequence[str]) -> str:
    clients, left_out = sum(one.tasks.values()), one.num_classes - len(one.images)
    counts = [f" ({count})" if len(one.tasks) > 1 else "" for count in one.tasks.values()]
    tasks = [task_names[task] + count for task, count in zip(one.tasks, counts, strict=True)]
    more = f", {left_out} more class{'es' * (left_out > 1)}" if left_out else ""
    return (
        f"Cluster {one.cluster}: {clients} client{'s' * (clients > 1)}{more}, "
        f"true task{'s' * (len(tasks) > 1)} {'; '.join(tasks)}"
    )
