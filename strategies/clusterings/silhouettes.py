"""How far apart the clusters of a dendrogram's cuts lie: silhouettes of all cuts in one pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_ROUNDING = 9  # decimals: of equals the first is taken, and sums differ in their last bits
_MOST_ALONE = 1 / 8  # of all clients


def best_silhouette(distances: Float64, merges: Float64) -> int:
    """Return the number of clusters, 2 to K − 1, with the highest mean silhouette.

    Of equals, the lowest; 2 for two clients, whose silhouette is not defined.

    Parameters
    ----------
    distances : NDArray[np.float64], shape (K, K)
        With a zero diagonal.
    merges : NDArray[np.float64], shape (K − 1, 4)
        A dendrogram of K >= 2 clients.
    """
    return number_of_highest(silhouettes(distances, merges))


def number_of_highest(scores: Float64) -> int:
    """Return the number with the highest score of those of 2, 3, … clusters; of none, 2."""
    return 2 + int(scores.round(_ROUNDING).argmax()) if len(scores) else 2


def silhouettes(distances: Float64, merges: Float64) -> Float64:
    """Return the mean silhouette of 2, 3, …, K − 1 clusters, as in `best_silhouette`."""
    return np.array(
        [means @ sizes / sizes.sum() for means, sizes, _ in cluster_silhouettes(distances, merges)],
        np.float64,
    )[::-1]


def balanced_silhouettes(distances: Float64, merges: Float64) -> Float64:
    """Return how far apart 2, 3, …, K − 1 clusters lie, the worst of them above all.

    The mean of all clients' mean silhouette and of the lowest mean of one cluster's clients; what
    the first does alone is in docs/measured/features.md. A client that is alone has 0 by
    definition; few that nobody is like say nothing of how far apart the others' clusters lie.
    """
    alone = clients_like_nobody(merges)
    scores = []
    for means, sizes, clusters in cluster_silhouettes(distances, merges):
        others = (sizes > 1) | ~np.isin(clusters, alone)
        worst = means[others].min() if others.sum() > 1 else means.min()
        scores.append((means @ sizes / sizes.sum() + worst) / 2)
    return np.array(scores, np.float64)[::-1]


def clients_like_nobody(merges: Float64) -> list[int]:
    """Return the clients that join all others one by one in the last merges, if they are few.

    Parameters
    ----------
    merges : NDArray[np.float64], shape (K − 1, 4)
        A dendrogram, as scipy writes it.

    Returns
    -------
    list of int
        At most an eighth of the clients; none if there are more.
    """
    count = len(merges) + 1
    joining = merges[::-1, :2].min(axis=1).astype(int)
    number = int(np.append(joining >= count, True).argmax())
    return joining[:number].tolist() if number <= count * _MOST_ALONE else []


def cluster_silhouettes(
    distances: Float64, merges: Float64
) -> Iterator[tuple[Float64, NDArray[np.int64], NDArray[np.int64]]]:
    """Yield each cluster's mean silhouette, size and one member, for K − 1, K − 2, …, 2 clusters.

    A client's silhouette is (b − a)/max(a, b), a its mean distance to the others of its cluster, b
    to the clients of the nearest other cluster; 0 if it is alone or both are 0 (P. J. Rousseeuw,
    "Silhouettes", 1987). Scikit-learn's costs K² for one cut; here it is that for all together,
    since a merge moves few: the mean distance to two clusters that become one lies between those
    to either, so that whoever was nearest to a third still is.

    Parameters
    ----------
    distances : NDArray[np.float64], shape (K, K)
        Symmetric, with a zero diagonal.
    merges : NDArray[np.float64], shape (K − 1, 4)
        A dendrogram, as scipy writes it.
    """
    count = len(distances)
    everybody = np.arange(count)
    sums = distances.copy()  # row c: from each client to all of cluster c
    sizes, cluster = np.ones(count, np.int64), everybody.copy()
    left = everybody.copy()  # rows that are clusters still
    row_of = {client: client for client in range(count)}
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    nearest, near = others.argmin(axis=0), others.min(axis=0)
    for step, (one, other) in enumerate(merges[:-1, :2].astype(int).tolist()):
        kept, gone = row_of.pop(one), row_of.pop(other)
        row_of[count + step] = kept
        sums[kept] += sums[gone]
        sizes[kept] += sizes[gone]
        cluster[cluster == gone] = kept
        left = left[left != gone]
        moved = np.flatnonzero((nearest == kept) | (nearest == gone))
        means = sums[np.ix_(left, moved)] / sizes[left, None]
        means[left[:, None] == cluster[moved]] = np.inf
        nearest[moved], near[moved] = left[means.argmin(axis=0)], means.min(axis=0)
        within = sums[cluster, everybody] / np.maximum(sizes[cluster] - 1, 1)
        scale = np.maximum(within, near)
        alone = sizes[cluster] == 1
        found = np.where(alone, 0, (near - within) / np.where(scale > 0, scale, 1))
        yield np.bincount(cluster, found, count)[left] / sizes[left], sizes[left], left
