import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.signatures.signature import linear_signature, signature


def rows(seed, count=40, width=6):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_by_hand_the_centroids_are_means_in_lexicographic_order():
    data = np.array([[9, 1], [0, 0], [9, 3], [0, 2], [0, 4]], np.float32)
    found = signature(data, 2, seed=0)
    assert found.tolist() == [[0, 2], [9, 2]]
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([[1.0, 2.0]], [[1, 2]]),
        ([[3.0, 0.0], [1.0, 0.0], [3.0, 0.0]], [[1, 0], [3, 0]]),
        ([[7.0, 7.0]] * 30, [[7, 7]]),
    ],
)
def test_fewer_distinct_images_than_centroids_are_their_centroids(data, expected):
    assert signature(np.array(data, np.float32), 5, seed=3).tolist() == expected


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 40), st.data())
def test_the_order_of_the_images_does_not_matter(seed, k, count, data):
    embeddings = rows(seed, count)
    order = data.draw(st.permutations(range(count)))
    found = signature(embeddings, k, seed=1)
    assert np.array_equal(found, signature(embeddings[order], k, seed=1))
    assert found.shape == (min(k, count), 6)
    assert np.array_equal(found, np.unique(found, axis=0))  # the canonical order
    linear = linear_signature(embeddings, k, 3, seed=1)
    assert np.allclose(linear, linear_signature(embeddings[order], k, 3, seed=1), atol=1e-4)


def test_by_hand_linear_signatures_lie_on_the_clients_axes():
    # Mean (5, 1); the first axis is e1, with variance 16 against 1, so two centroids at ∓4.
    data = np.array([[1, 0], [1, 2], [9, 0], [9, 2]], np.float32)
    assert np.allclose(linear_signature(data, 2, 1, seed=0), [[-4], [4]], atol=1e-5)
    # Both axes, four centroids: the points themselves, as seen from the mean.
    four = linear_signature(data, 4, 2, seed=0)
    assert np.allclose(four, [[-4, -1], [-4, 1], [4, -1], [4, 1]], atol=1e-5)


def test_by_hand_mapped_centroids_are_where_the_images_are():
    data = np.array([[1, 0], [1, 2], [9, 0], [9, 2]], np.float32)
    # One axis, e1: the second coordinate is the mean's.
    assert np.allclose(linear_signature(data, 2, 1, seed=0, mapped=True), [[1, 1], [9, 1]])
    four = linear_signature(data, 4, 2, seed=0, mapped=True)
    assert np.allclose(four, data, atol=1e-5)
    equal = np.full((3, 4), 7, np.float32)
    assert linear_signature(equal, 2, 3, seed=0, mapped=True).tolist() == [[7, 7, 7, 7]]


@pytest.mark.parametrize(
    "function", [signature, lambda x, k, seed: linear_signature(x, k, 2, seed)]
)
@pytest.mark.parametrize(
    ("data", "k", "message"),
    [
        (np.zeros((0, 4), np.float32), 2, "no samples"),
        (np.full((3, 4), np.inf, np.float32), 2, "not all finite"),
    ],
)
def test_what_has_no_signature(function, data, k, message):
    with pytest.raises(ValueError, match=message):
        function(data, k, seed=0)
