"""The server's half of FLT's one-shot clustering: from centroids to a graph and to clusters.

FLT Algorithm 2 (FCR), lines 12 to 19: pure functions over arrays; labels are never used.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from fl_core.extras import load_extra
from strategies.clusterings.agglomeration import (
    Grouping,
    NumClusters,
    agglomerate_distances,
    cut_dendrogram,
)

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

NUM_NEIGHBORS = 15  # UMAP's default; FLT names no other
# FLT's γ is 1, which fits its hundred clients; UMAP packs fewer centroids more densely, and then
# clients of different tasks that hold similar digits (4 and 9) fall within 1 of each other.
THRESHOLD = 0.3
_FEWEST_FOR_UMAP = 4  # with fewer points its spectral start fails


def embed_signatures(signatures: Sequence[Float32], seed: int) -> list[Float64]:
    """Place all clients' centroids in the plane by UMAP, fitted on all of them (lines 12 to 14).

    From shapes (k_i, e) to (k_i, 2), in any order of clients; equal points have one place. Fewer
    than four different ones, too few for UMAP, are placed by their first two principal components.
    """
    points = np.concatenate(signatures).astype(np.float32)
    # UMAP's random numbers go by row: sorted rows make a client's place independent of the order
    # in which clients are numbered. It separates points of which there are more than it has
    # neighbours: each is placed once.
    different, which = np.unique(points, axis=0, return_inverse=True)
    plane = _plane(different, seed)[which.ravel()]
    return np.split(plane, np.cumsum([len(each) for each in signatures])[:-1])


def _plane(points: Float32, seed: int) -> Float64:
    """Return the points in two dimensions, shape (n, 2)."""
    count = len(points)
    if count < _FEWEST_FOR_UMAP:
        return _principal_plane(points.astype(np.float64))
    with warnings.catch_warnings():
        # It says that TensorFlow is missing, which only another kind of UMAP needs.
        warnings.filterwarnings("ignore", "Tensorflow not installed", ImportWarning)
        umap = load_extra("umap", "placing signatures in the plane")  # it takes seconds
        # Groups of centroids with no neighbour outside are what clear clusters look like; UMAP
        # then starts each of them by itself, or all at random where that fails.
        warnings.filterwarnings("ignore", "Graph is not fully connected", UserWarning)
        warnings.filterwarnings("ignore", "Spectral initialisation failed", UserWarning)
        reducer = umap.UMAP(
            n_neighbors=min(NUM_NEIGHBORS, count - 1),
            random_state=seed,
            n_jobs=1,  # what a fixed seed means to UMAP, which warns unless it is given
        )
        plane: Float64 = np.asarray(reducer.fit_transform(points), np.float64)
    return plane


def _principal_plane(points: Float64) -> Float64:
    from sklearn.decomposition import PCA  # noqa: PLC0415 - it takes a second

    plane = np.zeros((len(points), 2))
    if len(np.unique(points, axis=0)) > 1:
        found = PCA(min(2, *points.shape), svd_solver="full").fit_transform(points)
        plane[:, : found.shape[1]] = found
    return plane


def closest_distances(embedded: Sequence[Float64]) -> Float64:
    """Return A, the distances between any two clients' closest points (Algorithm 2, line 16).

    A_ij = min over r, s of ‖u_ir − u_js‖₂, shape (K, K): symmetric, zero on the diagonal.
    `embedded` are each client's points, shapes (k_i, 2), one at least.

    Examples
    --------
    >>> closest_distances([np.array([[0.0, 0], [9, 0]]), np.array([[3.0, 4], [9, 1]])]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    everything = np.concatenate(embedded)
    starts = np.cumsum([0, *(len(points) for points in embedded[:-1])])
    # One client's rows at a time: all pairs of thousands of clients' points would fill memory.
    rows = [np.minimum.reduceat(cdist(each, everything).min(axis=0), starts) for each in embedded]
    return np.stack(rows)


def matching_distances(embedded: Sequence[Float64]) -> Float64:
    """Return A from all points, each matched with one of the other client's, as the authors' code.

    A_ij = min over π of √(Σ_r ‖u_ir − u_jπ(r)‖²) / k_i, where π gives each of the k_i points of the
    client that has fewer another point of j.

    Examples
    --------
    >>> shared = np.array([0.0, 0])
    >>> matching_distances([np.array([shared, [8, 0]]), np.array([[0, 6], shared])]).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    found = np.zeros((len(embedded), len(embedded)))
    for i, j in combinations(range(len(embedded)), 2):
        fewer, more = sorted((embedded[i], embedded[j]), key=len)
        squares = cdist(fewer, more, "sqeuclidean")
        matched = np.sort(squares[linear_sum_assignment(squares)])  # one sum in either order
        found[i, j] = found[j, i] = np.sqrt(matched.sum()) / len(fewer)
    return found


CentroidDistance = Literal["closest", "matching"]
CENTROID_DISTANCES: Mapping[CentroidDistance, Callable[[Sequence[Float64]], Float64]] = {
    "closest": closest_distances,
    "matching": matching_distances,
}


def relatedness_graph(distances: Float64, threshold: float = THRESHOLD) -> Bool:
    """Return Ã, shape (K, K): i and j are linked iff A_ij ≤ γ or i = j (Algorithm 2, line 17)."""
    linked: Bool = distances <= threshold
    return linked | np.eye(len(distances), dtype=np.bool_)


def neighbours_in(graph: Bool, clients: Sequence[int]) -> dict[int, frozenset[int]]:
    """Return each client's neighbours in a graph, itself included; clients are its rows."""
    names = np.array(clients)
    return {
        client: frozenset(names[row].tolist()) for client, row in zip(clients, graph, strict=True)
    }


def group_graph(graph: Bool, num_clusters: NumClusters) -> Grouping:
    """Group clients by Ward's method on their rows of the graph Ã, shape (K, K) (line 19).

    `num_clusters` is C, exactly this many, or a rule. With a rule, a graph of cliques has these as
    clusters; otherwise there are no fewer clusters than connected components.
    """
    rows = graph.astype(np.float64)
    common, sizes = rows @ rows.T, rows.sum(axis=1)
    distances = np.sqrt(sizes[:, None] + sizes - 2 * common)  # of 0 and 1, exactly
    if not isinstance(num_clusters, str):
        return agglomerate_distances(distances, num_clusters, "ward")
    components = int(connected_components(graph, directed=False)[0])
    if len(np.unique(graph, axis=0)) == components:  # rows are equal in cliques, and only there
        return agglomerate_distances(distances, components, "ward")
    found = agglomerate_distances(distances, num_clusters, "ward")
    if found.labels.max() + 1 >= components:
        return found
    return Grouping(cut_dendrogram(found.merges, components), found.merges)


def cluster_means(signatures: Sequence[Float32], labels: NDArray[np.int64]) -> Float64:
    """Return each cluster's mean embedding, (C, e): of its clients' means (section III-B4).

    Of the encoder's embeddings, not of UMAP's plane, where newcomers have no place.
    """
    means = np.stack([each.mean(axis=0, dtype=np.float64) for each in signatures])
    return np.stack([means[labels == cluster].mean(axis=0) for cluster in range(labels.max() + 1)])


def nearest_cluster(signature: Float32, means: Float64) -> int:
    """Return the cluster with the mean embedding nearest to a newcomer's centroids, (k, e)."""
    mean = signature.mean(axis=0, dtype=np.float64)
    return int(np.linalg.norm(means - mean, axis=1).argmin())
