"""The client's half of FLT's one-shot clustering: a few centroids stand for all of its samples.

FLT Algorithm 2 (FCR), lines 8 and 9, and the linear method that FLT compares with. Labels never
enter.
"""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_LARGEST_COVARIANCE = 4096  # d, of 134 MB in float64
_KMEANS_STARTS = 4  # the best of so many; k-means may end in a poor local minimum


def signature(embeddings: Float32, num_centroids: int, seed: int) -> Float32:
    """Return the k-means centroids of a client's embeddings (FLT, Algorithm 2, line 9).

    From float32 (n, e) to (k', e), k' = k or the number of distinct rows, if less, in lexicographic
    order, so that neither the seed nor the order of the samples shows.

    Examples
    --------
    >>> signature(np.array([[9, 0], [1, 0], [3, 0]], np.float32), 2, seed=0).tolist()
    [[2.0, 0.0], [9.0, 0.0]]
    """
    _check(embeddings)
    return _centroids(embeddings, num_centroids, seed)


def linear_signature(
    features: Float32, num_centroids: int, num_components: int, seed: int, *, mapped: bool = False
) -> Float32:
    """Return k-means centroids of a client's principal components, float32 (k', num_components).

    FLT's competitor "PCA + kM + HC", of features (n, d), a row per sample. In the client's
    coordinates, as its authors ran it, centroids of two clients compare only in so far as their
    axes agree. Axes that a client does not have are zeros; the largest entry of each is positive.
    If `mapped`, centroids are mapped back to features, (k', d), so that those of any two clients
    compare.
    """
    from sklearn.decomposition import PCA  # noqa: PLC0415 - it takes a second

    _check(features)
    width = min(num_components, *features.shape)
    coordinates = np.zeros((len(features), num_components), np.float32)
    mean, axes = features[0], np.zeros((width, features.shape[1]))
    if len(np.unique(features, axis=0)) > 1:  # PCA divides by the variance, which else is zero
        # Both solvers are exact and have no random start. The first makes a d × d matrix, and is
        # much faster unless there are few samples. In float64, since it squares.
        count, dimension = features.shape
        small = dimension <= min(_LARGEST_COVARIANCE, 2 * count)
        solver = "covariance_eigh" if small else "full"
        pca = PCA(width, svd_solver=solver).fit(features.astype(np.float64))
        mean, axes = pca.mean_, pca.components_
        axes *= np.sign(axes[np.arange(width), np.abs(axes).argmax(axis=1)])[:, None]
        coordinates[:, :width] = (features - mean) @ axes.T
    centroids = _centroids(coordinates, num_centroids, seed)
    return (centroids[:, :width] @ axes + mean).astype(np.float32) if mapped else centroids


def _check(rows: Float32) -> None:
    if not len(rows):
        raise ValueError("the client has no samples, so it has no signature: give it at least one.")
    if not np.isfinite(rows).all():
        raise ValueError("the client's embeddings are not all finite: check its samples.")


def _centroids(rows: Float32, num_centroids: int, seed: int) -> Float32:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - it takes a second

    distinct = np.unique(rows, axis=0)  # sorted, which makes the result independent of row order
    if len(distinct) <= num_centroids:
        return distinct
    ordered = rows[np.lexsort(rows.T[::-1])]
    values = ordered.astype(np.float64)
    labels = KMeans(num_centroids, n_init=_KMEANS_STARTS, random_state=seed).fit_predict(values)
    # KMeans' centroids depend, in the last digit, on how many threads shared out the sums.
    means = [values[labels == one].mean(axis=0) for one in np.unique(labels)]
    return np.unique(np.stack(means).astype(np.float32), axis=0)
