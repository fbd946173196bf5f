import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.clusterings.agglomeration import canonical_labels
from strategies.clusterings.signatures import (
    closest_distances,
    cluster_means,
    group_graph,
    matching_distances,
    nearest_cluster,
    relatedness_graph,
)


def clients(tasks, per_task=5, k=3, spread=0.2, seed=0):
    """Signatures of clients in turn, one task after the other and again, in 16 dimensions."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(tasks, k, 16)) * 10
    return [
        (centres[i % tasks] + rng.normal(size=(k, 16)) * spread).astype(np.float32)
        for i in range(tasks * per_task)
    ]


def cliques(labels):
    labels = np.asarray(labels)
    return labels[:, None] == labels


def test_by_hand_closest_distances():
    # Client 0: (0,0) and (10,0); client 1: (3,4), at 5 from the first; client 2: (10,1), (0,12).
    embedded = [np.array([[0.0, 0], [10, 0]]), np.array([[3.0, 4]]), np.array([[10.0, 1], [0, 12]])]
    found = closest_distances(embedded)
    assert np.allclose(found, [[0, 5, 1], [5, 0, np.sqrt(49 + 9)], [1, np.sqrt(58), 0]])


def test_by_hand_matching_distances():
    # Client 0: (0,0), (8,0); client 1 shares (0,0), and has (0,6); client 2: (8,3) alone.
    embedded = [np.array([[0.0, 0], [8, 0]]), np.array([[0.0, 6], [0, 0]]), np.array([[8.0, 3]])]
    # 0 and 1: (0,0) with itself and 10 from (8,0) to (0,6), over two centroids: 5. 2 is matched
    # with whichever is nearer: 3 from (8,0) and √73 from (0,6).
    assert np.allclose(matching_distances(embedded), [[0, 5, 3], [5, 0, 8.5440037], [3, 8.544, 0]])
    # The closest of two with a class in common are one point, however distant the others are.
    assert closest_distances(embedded[:2])[0, 1] == 0


def test_the_threshold_belongs_to_the_graph():
    distances = np.array(
        [[0, 1.0, 1.5], [1.0, 0, np.nextafter(1, 2)], [1.5, np.nextafter(1, 2), 0]]
    )
    graph = relatedness_graph(distances, 1.0)
    assert graph.tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    assert graph.dtype == np.bool_
    assert relatedness_graph(distances, 0.0).tolist() == np.eye(3, dtype=bool).tolist()
    assert relatedness_graph(distances, np.inf).all()


@pytest.mark.parametrize("num_clusters", [2, "elbow", "silhouette"])
def test_by_hand_a_path_is_cut_in_the_middle(num_clusters):
    # 0–1–2 3–4–5 with 2–3 linked: the rows of 0 and 1, and of 4 and 5, differ least.
    graph = np.eye(6, dtype=bool)
    for i, j in [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5), (2, 3)]:
        graph[i, j] = graph[j, i] = True
    assert group_graph(graph, num_clusters).labels.tolist() == [0, 0, 0, 1, 1, 1]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_cliques_are_the_clusters_when_their_number_is_chosen(labels):
    found = group_graph(cliques(labels), "elbow")
    assert np.array_equal(found.labels, canonical_labels(labels))
    assert np.array_equal(group_graph(cliques(labels), "silhouette").labels, found.labels)
    given_number = group_graph(cliques(labels), len(set(labels)))
    assert np.array_equal(given_number.labels, canonical_labels(labels))


def test_by_hand_a_newcomer_joins_the_nearest_mean():
    # Means of the clients: (1, 0), (3, 0), (10, 2); of clusters {0, 1} and {2}: (2, 0), (10, 2).
    signatures = [
        np.array([[0, 0], [2, 0]], np.float32),
        np.array([[3, 0]], np.float32),
        np.array([[9, 2], [11, 2]], np.float32),
    ]
    means = cluster_means(signatures, np.array([0, 0, 1]))
    assert means.tolist() == [[2, 0], [10, 2]]
    assert nearest_cluster(np.array([[4, 0], [6, 0]], np.float32), means) == 0
    assert nearest_cluster(np.array([[9, 9]], np.float32), means) == 1
    assert (
        nearest_cluster(np.array([[6, 1]], np.float32), np.array([[5.0, 1], [7, 1]])) == 0
    )  # a tie
