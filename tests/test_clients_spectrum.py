import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.spectrum import gram_matrix, leading_spectrum, relevance


def features(seed, n=50, d=12):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.linspace(3, 0.5, d)).astype(np.float32)


def test_by_hand_two_clients_on_two_axes():
    # Client 0: G = diag(4, 1). Client 1: G = diag(1, 4), so its leading eigenvector is e2.
    first = leading_spectrum(np.array([[np.sqrt(8), 0], [0, np.sqrt(2)]], np.float32), 2)
    second = leading_spectrum(np.array([[np.sqrt(2), 0], [0, np.sqrt(8)]], np.float32), 2)
    assert np.allclose(first.gram, [[4, 0], [0, 1]])
    assert np.allclose(first.eigenvalues, [4, 1])
    assert np.allclose(first.eigenvectors, [[1, 0], [0, 1]])
    assert np.allclose(second.eigenvectors, [[0, 1], [1, 0]])
    # λ̂ of client 1's vectors at client 0: ‖G e2‖ = 1 and ‖G e1‖ = 4, against λ = 4 and 1:
    # ratios 1/4 and 1/4, geometric mean 1/4. Against itself: 1.
    scores = relevance(first.gram, first.eigenvalues, [first.eigenvectors, second.eigenvectors])
    assert np.allclose(scores, [1, 0.25])


def test_by_hand_the_gram_matrix_is_not_centred():
    assert np.allclose(gram_matrix(np.array([[1, 2], [3, 4]], np.float32)), [[5, 7], [7, 10]])


def test_the_formula_term_by_term():
    own, other = (leading_spectrum(features(s), 4) for s in (0, 1))
    product = 1.0
    for k in range(4):
        estimated = np.linalg.norm(own.gram.astype(np.float64) @ other.eigenvectors[:, k])
        low, high = sorted((own.eigenvalues[k], estimated))
        product *= low / high
    (score,) = relevance(own.gram, own.eigenvalues, [other.eigenvectors])
    assert score == pytest.approx(product ** (1 / 4), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 60))
def test_invariants(seed, k, n):
    own, other = features(seed, n), features(seed + 1, n + 3)
    mine, theirs = leading_spectrum(own, k), leading_spectrum(other, k)
    kept = min(k, n)
    assert mine.eigenvectors.shape == (12, kept)
    assert np.allclose(mine.eigenvectors.T @ mine.eigenvectors, np.eye(kept), atol=1e-5)
    assert (np.diff(mine.eigenvalues) <= 0).all()
    itself, score = relevance(mine.gram, mine.eigenvalues, [mine.eigenvectors, theirs.eigenvectors])
    assert itself == pytest.approx(1, abs=1e-3)
    assert 0 <= score <= 1
    # An eigenvector's sign means nothing.
    (flipped,) = relevance(mine.gram, mine.eigenvalues, [-theirs.eigenvectors])
    assert flipped == pytest.approx(score, rel=1e-6)
    # All images twice is the same distribution.
    twice = leading_spectrum(np.concatenate([own, own]), k)
    (same,) = relevance(twice.gram, twice.eigenvalues, [theirs.eigenvectors])
    assert same == pytest.approx(score, rel=1e-3)
    # Both clients' pixels scaled alike: ratios of eigenvalues stay.
    small, other_small = leading_spectrum(own / 4, k), leading_spectrum(other / 4, k)
    (scaled,) = relevance(small.gram, small.eigenvalues, [other_small.eigenvectors])
    assert scaled == pytest.approx(score, rel=1e-3)


@pytest.mark.parametrize("k", [1, 5, 39, 41, 319, 320])
def test_leading_eigenpairs_are_those_of_the_full_decomposition(k):
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(400, 320)) * np.geomspace(3, 0.3, 320)).astype(np.float32)
    found = leading_spectrum(data, k)
    values, vectors = np.linalg.eigh(found.gram.astype(np.float64))
    assert np.allclose(found.eigenvalues, values[::-1][:k], rtol=1e-6)
    overlap = np.abs(np.sum(found.eigenvectors * vectors[:, ::-1][:, :k], axis=0))
    assert np.allclose(overlap, 1, atol=1e-4)


def test_fewer_images_than_eigenvectors_give_fewer_eigenvectors():
    few, many = leading_spectrum(features(0, n=3), 8), leading_spectrum(features(1), 8)
    assert few.eigenvectors.shape == (12, 3)
    # The mean runs over the three that both have, whichever client computes it.
    three = [many.eigenvectors[:, :3]]
    assert relevance(few.gram, few.eigenvalues, [many.eigenvectors]) == pytest.approx(
        relevance(few.gram, few.eigenvalues, three)
    )
    assert len(relevance(many.gram, many.eigenvalues, [few.eigenvectors, *three])) == 2


def test_clients_of_one_kind_are_more_relevant_to_each_other():
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.normal(size=(30, 30)))[0] * np.geomspace(3, 0.1, 30) for _ in "ab"]
    clients = [
        leading_spectrum((rng.normal(size=(200, 30)) @ bases[i % 2].T).astype(np.float32), 10)
        for i in range(6)
    ]
    vectors = [c.eigenvectors for c in clients]
    scores = np.array([relevance(c.gram, c.eigenvalues, vectors) for c in clients])
    same = np.add.outer(np.arange(6), np.arange(6)) % 2 == 0
    assert scores[same].min() > scores[~same].max() + 0.1


@pytest.mark.parametrize(
    ("data", "k", "message"),
    [
        (np.zeros((0, 4), np.float32), 2, "the client has no images"),
        (np.full((3, 4), np.nan, np.float32), 2, "not all finite"),
        (np.zeros((3, 4), np.float32), 2, "all zero"),
        (np.ones((3, 4), np.float32), 5, "num-eigenvectors is 5, but the features have 4"),
        (np.ones((3, 4), np.float32), 0, "choose 1 to 4"),
    ],
)
def test_what_has_no_spectrum(data, k, message):
    with pytest.raises(ValueError, match=message):
        leading_spectrum(data, k)


def test_no_variance_along_a_vector_is_no_relevance():
    own = leading_spectrum(np.array([[1, 0, 0]], np.float32), 1)
    assert relevance(own.gram, own.eigenvalues, [np.array([[0], [1], [0]], np.float32)]) == [0]
