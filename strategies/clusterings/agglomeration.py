"""From similarities to clusters: pure functions over arrays; labels are never used."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import DisjointSet, linkage
from scipy.spatial.distance import squareform
from threadpoolctl import threadpool_limits

from fl_core.options import one_of
from strategies.clusterings.number import best_silhouette

LINKAGES = ("average", "complete", "single", "ward", "weighted", "centroid", "median")
COUNT_RULES = ("elbow", "silhouette")
NumClusters = int | Literal["elbow", "silhouette"]
"""A number of clusters, or the rule by which it is chosen."""

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """Clusters, and how they were found."""

    labels: NDArray[np.int64]  # shape (K,), canonical: cluster 0 has the first client, and so on
    merges: Float64  # the dendrogram, as scipy writes it, shape (K − 1, 4)


def canonical_labels(labels: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Rename clusters by first appearance: the first client's is 0, the next new one 1, ….

    Examples
    --------
    >>> canonical_labels([7, 2, 7, 5]).tolist()
    [0, 1, 0, 2]
    """
    names: dict[int, int] = {}
    return np.array([names.setdefault(int(c), len(names)) for c in labels], dtype=np.int64)


def average_relevance(relevances: NDArray[np.floating]) -> Float64:
    """Return R = (r + rᵀ)/2, shape (K, K) (RCC-PFL, equation 5)."""
    return np.asarray((relevances + relevances.T) / 2, np.float64)


def closest_clusters(scores: NDArray[np.floating], clusters: ArrayLike) -> NDArray[np.int64]:
    """Return the cluster with the highest mean score for each of n newcomers, the first of equals.

    `scores`, shape (n, K), are those of K clients; `clusters`, shape (K,), are these clients'.
    """
    numbers, means = mean_scores(scores, clusters)
    return np.asarray(numbers[means.argmax(axis=1)], np.int64)


def mean_scores(
    scores: NDArray[np.floating], clusters: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return the clusters, ascending, and their mean scores (`closest_clusters`), shape (n, M)."""
    numbers, members = np.unique(clusters, return_inverse=True)
    shares = np.eye(len(numbers))[members] / np.bincount(members)
    return numbers, scores @ shares


def half_way(similarity: Float64, clusters: NDArray[np.int64]) -> Float64:
    """Return how similar to its clients a member of each cluster must be, shape (C,).

    That is half-way between how similar they are to each other and to those of the next cluster;
    for a client alone, clients of other clusters are as similar to each other on average.
    """
    sizes = np.bincount(clusters)
    shares = np.eye(len(sizes))[clusters] / sizes
    between = shares.T @ similarity @ shares
    pairs = sizes * (sizes - 1)
    # Without what clients are to themselves.
    to_others = between.diagonal() * sizes**2 - np.bincount(clusters, similarity.diagonal())
    np.fill_diagonal(between, 0)
    next_best = between.max(axis=1)
    several = pairs > 0
    within = np.divide(to_others, pairs, out=next_best.copy(), where=several)
    if several.any():
        within[~several] = within[several].mean()
    return np.asarray((within + next_best) / 2, np.float64)


def agglomerate(
    similarity: Float64, num_clusters: NumClusters, method: str = "average"
) -> Grouping:
    """Group clients by R, at most 1: on the distance 1 − R (RCC-PFL, Procedure 1)."""
    return agglomerate_distances(np.clip(1 - similarity, 0, None), num_clusters, method)


def agglomerate_distances(
    distances: Float64, num_clusters: NumClusters, method: str = "average"
) -> Grouping:
    """Group clients by agglomerative clustering, by one of `LINKAGES`.

    `distances`, shape (K, K), are symmetric and not negative, but for the diagonal. `num_clusters`
    is M, exactly this many clusters, ties or not; or one of `COUNT_RULES`. A ValueError says that
    there are fewer clients.
    """
    count = len(distances)
    if not isinstance(num_clusters, str) and not 1 <= num_clusters <= count:
        raise ValueError(
            f"num-clusters is {num_clusters}, but {count} clients can be grouped: choose 1 to "
            f'{count}, or "auto".'
        )
    if count == 1:
        return Grouping(np.zeros(1, np.int64), np.empty((0, 4)))
    distances = distances.copy()
    np.fill_diagonal(distances, 0)
    merges = linkage(squareform(distances, checks=False), method)
    if isinstance(num_clusters, str):
        num_clusters = number_by_rule(num_clusters, distances, merges)
    return Grouping(cut_dendrogram(merges, num_clusters), merges)


def cut_dendrogram(merges: Float64, num_clusters: int) -> NDArray[np.int64]:
    """Stop merging when `num_clusters`, 1 to K, are left; return canonical labels, shape (K,).

    Scipy's `cut_tree` and `fcluster` go by height, in which ties and inversions are ambiguous.
    """
    count = len(merges) + 1
    first_member = list(range(count))
    clusters = DisjointSet(range(count))
    for left, right in merges[: count - num_clusters, :2].astype(int):
        clusters.merge(first_member[left], first_member[right])
        first_member.append(first_member[left])
    return canonical_labels([clusters[client] for client in range(count)])


def choose_num_clusters(merges: Float64) -> int:
    """Return the number of clusters, 2 to K − 1, at the widest gap between merge heights.

    So it depends least on where one cuts. Of two clients it is 2: the height of the first merge
    says how much clients of one kind differ, not how many kinds there are.
    """
    if len(merges) == 1:
        return 2
    # The gap above merge m (from 0) leaves K − 1 − m clusters.
    return len(merges) - int(np.diff(merge_heights(merges)).argmax())


def merge_heights(merges: Float64) -> Float64:
    """Return the heights of a dendrogram's merges, shape (K − 1,), as a running maximum."""
    heights: Float64 = np.maximum.accumulate(merges[:, 2])  # centroid linkage may turn back
    return heights


def number_within(merges: Float64, height: float) -> int:
    """Return how many clusters are left when none above `height` are merged."""
    return 1 + int((merge_heights(merges) > height).sum())


def gaps(merges: Float64) -> Float64:
    """Return the gaps between merges that leave 2, …, K − 1 clusters; of two, their one height."""
    heights = merge_heights(merges)
    return heights if len(heights) < 2 else np.diff(heights)[::-1]


def k_means(
    points: Float64, num_clusters: int, seed: int, starts: int = 10, centres: Float64 | None = None
) -> NDArray[np.int64]:
    """Return the canonical labels of k-means, the best of `starts` by k-means++, shape (K,).

    With `centres` it starts from these, and labels are their indices. There are no more clusters
    than different points.
    """
    # On a device, each message starts a process, which imports this file but never needs sklearn.
    from sklearn.cluster import KMeans  # noqa: PLC0415 - it takes a second

    number = min(num_clusters, len(np.unique(points, axis=0)))
    with threadpool_limits(1):  # so few points are done before threads have synchronised
        if centres is not None:
            found: NDArray[np.int64] = KMeans(number, init=centres, n_init=1).fit_predict(points)
            return found
        found = KMeans(number, n_init=starts, random_state=seed).fit_predict(points)
        return canonical_labels(found)


def number_by_rule(rule: str, distances: Float64, merges: Float64) -> int:
    """Return the number of clusters by one of `COUNT_RULES`."""
    one_of(COUNT_RULES).read("num-clusters", rule)
    if rule == "silhouette":
        return best_silhouette(distances, merges)
    return choose_num_clusters(merges)
