"""PCA + k-means + HC: centroids in each client's principal coordinates, and no encoder."""

import numpy as np

from strategies import make_strategy
from tests.local_grid import LocalGrid
from tests.toy_app import run, toy_app, weights, with_arrays


def sends(*rows):
    """A client sends these centroids."""
    return with_arrays(lambda a: a.update(centroids=np.array(rows, np.float32)))


def app_with(signatures, **others):
    corrupt = {("query.signature", client): sends(*rows) for client, rows in signatures.items()}
    return toy_app(corrupt=corrupt, **others)


def test_by_hand_the_distance_is_that_of_the_closest_centroids():
    # Client 0: (0,0), (9,9); client 1: (20,0); client 2: (9,8), 1 from client 0; and
    # |(20,0) − (9,8)| = √185, |(20,0) − (9,9)| = √202.
    app = app_with({0: [(0, 0), (9, 9)], 1: [(20, 0)], 2: [(9, 8)]})
    strategy = make_strategy("pca-km-hc", 2)
    result = run(strategy, LocalGrid(app, 3))
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
    distances = np.array(
        [[0, np.sqrt(202), 1], [np.sqrt(202), 0, np.sqrt(185)], [1, np.sqrt(185), 0]]
    )
    assert np.allclose(strategy.clusters.comparison.similarity, 1 / (1 + distances))
    # Average linkage: 1, and then (√202 + √185)/2.
    assert np.allclose(
        strategy.clusters.comparison.merges[:, 2], [1, (np.sqrt(202) + np.sqrt(185)) / 2]
    )
    assert weights(result) == [2.5, 2]  # (1·10 + 3·30)/40
