import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster

from strategies.clusterings.agglomeration import (
    COUNT_RULES,
    LINKAGES,
    agglomerate,
    agglomerate_distances,
    average_relevance,
    canonical_labels,
    choose_num_clusters,
    closest_clusters,
    cut_dendrogram,
)
from strategies.clusterings.number import best_silhouette


def similarity(seed, count):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.uniform(0, 1, (count, count)), 1)
    return upper + upper.T + np.eye(count)


def blocks(truth, within=0.9, across=0.4, jitter=0.02, seed=0):
    truth = np.asarray(truth)
    noise = np.triu(np.random.default_rng(seed).uniform(0, jitter, (len(truth),) * 2), 1)
    return np.where(truth[:, None] == truth, within, across) + noise + noise.T


def test_by_hand_average_linkage():
    # Distances: (0,1) 0.1, (0,2) 0.5, (1,2) 0.7, so {0,1} at 0.1 and then 2 at (0.5 + 0.7)/2.
    found = agglomerate(np.array([[1, 0.9, 0.5], [0.9, 1, 0.3], [0.5, 0.3, 1]]), 2)
    assert found.labels.tolist() == [0, 0, 1]
    assert np.allclose(found.merges[:, 2], [0.1, 0.6])


def test_by_hand_averaging_relevances():
    assert average_relevance(np.array([[1, 0.2], [0.6, 1]])).tolist() == [[1, 0.4], [0.4, 1]]


@settings(max_examples=60)
@given(
    st.integers(0, 10**6), st.integers(2, 15), st.sampled_from(LINKAGES), st.booleans(), st.data()
)
def test_exactly_as_many_clusters_as_asked_even_with_ties(seed, count, method, ties, data):
    number = data.draw(st.integers(1, count))
    matrix = similarity(seed, count)
    matrix = np.round(matrix * 2) / 2 if ties else matrix
    found = agglomerate(matrix, number, method)
    assert len(set(found.labels.tolist())) == number
    assert found.labels.tolist() == canonical_labels(found.labels).tolist()
    if method not in ("centroid", "median") and not ties:  # where scipy's cut is unambiguous
        expected = fcluster(found.merges, number, "maxclust")
        assert np.array_equal(found.labels, canonical_labels(expected))


@pytest.mark.parametrize("method", LINKAGES)
def test_every_linkage_finds_clear_clusters_of_unequal_interleaved_size(method):
    truth = [0, 1, 0, 2, 0, 1, 0, 0, 2, 0, 1]
    assert agglomerate(blocks(truth), 3, method).labels.tolist() == truth


@pytest.mark.parametrize(
    "truth", [[0, 1], [0, 0, 1, 1, 1], [0, 1, 0, 2, 1, 2, 0], [0, 1, 2, 3, 4] * 5, [0, 0, 0, 1]]
)
@pytest.mark.parametrize("rule", COUNT_RULES)
def test_the_rules_find_the_number_of_clusters(truth, rule):
    assert agglomerate(blocks(truth), rule).labels.tolist() == canonical_labels(truth).tolist()


def test_clusters_are_read_off_in_client_order_not_in_leaf_order():
    # The fault: labels in the dendrogram's leaf order (0, 3, 1, 2, 4 here) taken for the clients'.
    truth = np.array([0, 1, 1, 0, 1])
    assert agglomerate(blocks(truth), 2).labels.tolist() == truth.tolist()
    merges = np.array([[0, 3, 0.1, 2], [1, 2, 0.1, 2], [4, 6, 0.1, 3], [5, 7, 0.6, 5]])
    assert cut_dendrogram(merges, 2).tolist() == truth.tolist()
    assert cut_dendrogram(merges, 1).tolist() == [0] * 5
    assert cut_dendrogram(merges, 5).tolist() == [0, 1, 2, 3, 4]


def test_by_hand_the_widest_gap():
    merges = np.array([[0, 1, 0.1, 2], [2, 3, 0.15, 2], [4, 5, 0.7, 4]])
    assert choose_num_clusters(merges) == 2
    # Centroids may turn back: 0.2 after 0.5 is no fall from which 0.7 would be the widest rise.
    merges = np.array([[0, 1, 0.1, 2], [5, 2, 0.5, 3], [6, 3, 0.2, 4], [7, 4, 0.7, 5]])
    assert choose_num_clusters(merges) == 4


def test_by_hand_the_best_silhouette():
    # Two pairs, 1 within and 9 across: two clusters have (9 − 1)/9 for each client; three leave one
    # pair, (2·8/9 + 0 + 0)/4.
    distances = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0.0]])
    assert best_silhouette(distances, agglomerate_distances(distances, 2).merges) == 2
    # Clients 0 and 1 in one place, all else at 6. Three clusters: (1 + 1 + 0 + 0)/4. Two, with
    # client 2 in the pair: (6 − 3)/6 for the pair, nothing for the others: half of that.
    distances = np.full((4, 4), 6.0) - 6 * np.eye(4)
    distances[0, 1] = distances[1, 0] = 0
    assert best_silhouette(distances, agglomerate_distances(distances, 2).merges) == 3
    # All equal: every number scores 0, and the lowest is taken.
    distances = 1 - np.eye(5)
    assert best_silhouette(distances, agglomerate_distances(distances, 2).merges) == 2


def test_one_client_is_one_cluster():
    for number in (1, *COUNT_RULES):
        found = agglomerate(np.ones((1, 1)), number)
        assert found.labels.tolist() == [0]
        assert found.merges.shape == (0, 4)


@pytest.mark.parametrize("number", [0, 4, np.int64(4)])
def test_more_clusters_than_clients(number):
    with pytest.raises(ValueError, match=f"num-clusters is {number}, but 3 clients"):
        agglomerate(similarity(0, 3), number)


def test_by_hand_the_closest_cluster_is_the_best_on_average_and_of_equal_ones_the_first():
    # Cluster 2: (0.9 + 0.1)/2 = 0.5, cluster 4: 0.5, cluster 7: 0.4; then 4 is the best alone.
    scores = np.array([[0.5, 0.9, 0.1, 0.4], [0.6, 0.9, 0.1, 0.4]])
    assert closest_clusters(scores, [4, 2, 2, 7]).tolist() == [2, 4]
    # Distances count negative: −3 is nearer than −(1 + 6)/2.
    assert closest_clusters(-np.array([[1.0, 3.0, 6.0]]), [0, 1, 0]).tolist() == [1]


def test_a_word_that_is_no_rule_is_not_taken_for_one():
    with pytest.raises(ValueError, match="Did you mean silhouette"):
        agglomerate_distances(1 - np.eye(4), "silhouete")
