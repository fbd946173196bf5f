"""From similarities to clusters: pure functions over arrays, labels never enter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import DisjointSet, linkage
from scipy.spatial.distance import squareform

LINKAGES = ("average", "complete", "single", "ward", "weighted", "centroid", "median")

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Clusters, and how they were found.

    Attributes
    ----------
    labels : NDArray[np.int64], shape (K,)
        Canonical: cluster 0 holds the first client, and so on.
    merges : NDArray[np.float64], shape (K − 1, 4)
        The dendrogram, as scipy writes it.
    """

    labels: NDArray[np.int64]
    merges: Float64


def canonical_labels(labels: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Rename clusters by first appearance: the first client's is 0, the next new one 1, ….

    Examples
    --------
    >>> canonical_labels([7, 2, 7, 5]).tolist()
    [0, 1, 0, 2]
    """
    names: dict[int, int] = {}
    return np.array([names.setdefault(int(c), len(names)) for c in labels], dtype=np.int64)


def average_relevance(relevances: Float64) -> Float64:
    """Return R = (r + rᵀ)/2, shape (K, K) (RCC-PFL, equation 5)."""
    return (relevances + relevances.T) / 2


def agglomerate(similarity: Float64, num_clusters: int | None, method: str = "average") -> Grouping:
    """Group clients by agglomerative clustering on the distance 1 − R (RCC-PFL, Procedure 1).

    Parameters
    ----------
    similarity : NDArray[np.float64], shape (K, K)
        R, symmetric, at most 1. The diagonal is not used.
    num_clusters : int or None
        M, exactly this many clusters, ties or not; None: see `choose_num_clusters`.
    method : str
        One of `LINKAGES`.

    Raises
    ------
    ValueError
        If there are more clusters than clients, or fewer than one.
    """
    count = len(similarity)
    if num_clusters is not None and not 1 <= num_clusters <= count:
        raise ValueError(
            f"num-clusters is {num_clusters}, but {count} clients can be grouped: choose 1 to "
            f'{count}, or "auto".'
        )
    if count == 1:
        return Grouping(np.zeros(1, np.int64), np.empty((0, 4)))
    distance = np.clip(1 - similarity, 0, None)
    np.fill_diagonal(distance, 0)
    merges = linkage(squareform(distance, checks=False), method)
    wanted = choose_num_clusters(merges) if num_clusters is None else num_clusters
    return Grouping(cut_dendrogram(merges, wanted), merges)


def cut_dendrogram(merges: Float64, num_clusters: int) -> NDArray[np.int64]:
    """Stop merging when `num_clusters` are left, and return their canonical labels, shape (K,).

    Scipy's own `cut_tree` and `fcluster` go by height, which ties and the inversions of centroid
    and median linkage make ambiguous; the order of the merges never is.

    Parameters
    ----------
    merges : NDArray[np.float64], shape (K − 1, 4)
        A dendrogram, as scipy writes it.
    num_clusters : int
        From 1 to K.
    """
    count = len(merges) + 1
    first_member = list(range(count))
    clusters = DisjointSet(range(count))
    for left, right in merges[: count - num_clusters, :2].astype(int):
        clusters.merge(first_member[left], first_member[right])
        first_member.append(first_member[left])
    return canonical_labels([clusters[client] for client in range(count)])


def choose_num_clusters(merges: Float64) -> int:
    """Return the number of clusters at the widest gap between successive merge heights.

    Cutting the dendrogram anywhere in that gap gives the same clusters, so it is the choice that
    least depends on where one cuts. It lies between 2 and K − 1, and is 2 for two clients: what
    is below the first merge says how much clients of one kind differ, not how many kinds there are.

    Parameters
    ----------
    merges : NDArray[np.float64], shape (K − 1, 4)
        A dendrogram of K >= 2 clients.
    """
    if len(merges) == 1:
        return 2
    heights = np.maximum.accumulate(merges[:, 2])  # centroid linkage may turn back
    # The gap above merge m (from 0) leaves K − 1 − m clusters.
    return len(merges) - int(np.diff(heights).argmax())
