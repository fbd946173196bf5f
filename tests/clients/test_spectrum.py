from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.signatures.spectrum import gram_matrix, leading_spectrum, spectrum_of_gram
from clients.signatures.spectrum import relevance as relevance_by
from fl_core.relevance import Spectra, captured_energies

relevance = partial(relevance_by, "paper")
missed_energy_relevance = partial(relevance_by, "missed-energy")


def captured_energy(one, eigenvectors):
    return captured_energies(one, Spectra.of_vectors(eigenvectors))[0]


def features(seed, n=50, d=12):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.linspace(3, 0.5, d)).astype(np.float32)


def test_by_hand_two_clients_on_two_axes():
    # Client 0: G = diag(4, 1). Client 1: G = diag(1, 4), so its leading eigenvector is e2.
    first = leading_spectrum(np.array([[np.sqrt(8), 0], [0, np.sqrt(2)]], np.float32), 2)
    second = leading_spectrum(np.array([[np.sqrt(2), 0], [0, np.sqrt(8)]], np.float32), 2)
    assert np.allclose(first.eigenvalues, [4, 1])
    assert np.allclose(first.eigenvectors, [[1, 0], [0, 1]])
    assert np.allclose(second.eigenvectors, [[0, 1], [1, 0]])
    # λ̂ of client 1's vectors at client 0: ‖G e2‖ = 1 and ‖G e1‖ = 4, against λ = 4 and 1:
    # ratios 1/4 and 1/4, geometric mean 1/4. Against itself: 1.
    scores = relevance(first.whole, [first.eigenvectors, second.eigenvectors])
    assert np.allclose(scores, [1, 0.25])


def test_by_hand_the_gram_matrix_is_not_centred():
    assert np.allclose(gram_matrix(np.array([[1, 2], [3, 4]], np.float32)), [[5, 7], [7, 10]])


def test_the_formula_term_by_term():
    one, other = (leading_spectrum(features(s), 4) for s in (0, 1))
    product, gram = 1.0, gram_matrix(features(0)).astype(np.float64)
    for k in range(4):
        estimated = np.linalg.norm(gram @ other.eigenvectors[:, k])
        low, high = sorted((one.eigenvalues[k], estimated))
        product *= low / high
    (score,) = relevance(one.whole, [other.eigenvectors])
    assert score == pytest.approx(product ** (1 / 4), rel=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 60))
def test_invariants(seed, k, n):
    one, other = features(seed, n), features(seed + 1, n + 3)
    mine, theirs = leading_spectrum(one, k), leading_spectrum(other, k)
    width = min(k, n)
    assert mine.eigenvectors.shape == (12, width)
    assert np.allclose(mine.eigenvectors.T @ mine.eigenvectors, np.eye(width), atol=1e-5)
    assert (np.diff(mine.eigenvalues) <= 0).all()
    itself, score = relevance(mine.whole, [mine.eigenvectors, theirs.eigenvectors])
    assert itself == pytest.approx(1, abs=1e-3)
    assert 0 <= score <= 1
    # An eigenvector's sign means nothing.
    (flipped,) = relevance(mine.whole, [-theirs.eigenvectors])
    assert flipped == pytest.approx(score, rel=1e-6)
    # All images twice is the same distribution.
    twice = leading_spectrum(np.concatenate([one, one]), k)
    (same,) = relevance(twice.whole, [theirs.eigenvectors])
    assert same == pytest.approx(score, rel=1e-3)
    # Both clients' pixels scaled equally: ratios of eigenvalues stay.
    small, other_small = leading_spectrum(one / 4, k), leading_spectrum(other / 4, k)
    (scaled,) = relevance(small.whole, [other_small.eigenvectors])
    assert scaled == pytest.approx(score, rel=1e-3)


def test_fewer_images_than_eigenvectors_give_fewer_eigenvectors():
    few, many = leading_spectrum(features(0, n=3), 8), leading_spectrum(features(1), 8)
    assert few.eigenvectors.shape == (12, 3)
    # The mean runs over the three that both have, whichever client computes it.
    three = [many.eigenvectors[:, :3]]
    assert relevance(few.whole, [many.eigenvectors]) == pytest.approx(relevance(few.whole, three))
    assert len(relevance(many.whole, [few.eigenvectors, *three])) == 2


@pytest.mark.parametrize(
    ("data", "k", "message"),
    [
        (np.zeros((0, 4), np.float32), 2, "the client has no samples"),
        (np.full((3, 4), np.nan, np.float32), 2, "not all finite"),
        (np.zeros((3, 4), np.float32), 2, "all zero"),
        (np.ones((3, 4), np.float32), 5, "num-eigenvectors is 5, but the features have 4"),
        (np.ones((3, 4), np.float32), 0, "choose 1 to 4"),
    ],
)
def test_what_has_no_spectrum(data, k, message):
    with pytest.raises(ValueError, match=message):
        leading_spectrum(data, k)


@pytest.mark.parametrize("count", [2, 50])
def test_what_is_not_finite_or_too_large_is_refused_however_many_samples_there_are(count):
    data = features(0, n=count)
    for value, message in ((-np.inf, "are not all finite"), (-1e20, "too large to be squared")):
        data[1, 2] = value
        with pytest.raises(ValueError, match=message):
            leading_spectrum(data, 2)


def test_by_hand_missed_energy():
    # G = diag(6, 3, 1) and k = 1: the axes capture 6/6, 3/6 and 1/6, so they miss 0, 1/2, 5/6.
    one = spectrum_of_gram(np.diag([6, 3, 1]).astype(np.float32), 1).whole
    first, second, third = (np.eye(3, dtype=np.float32)[:, [axis]] for axis in range(3))
    axes = [first, second, third]
    assert captured_energy(one, axes) == pytest.approx([1, 1 / 2, 1 / 6])
    # Of two others one lies a standard deviation below the mean of log m, the other above.
    assert missed_energy_relevance(one, axes) == pytest.approx([1, 2 / 3, 1 / 3])
    # Of the logarithms log 1/2, log 1/2, log 5/6, the mean is log 5/6 − 2a/3 with a = log 5/3 and
    # the standard deviation a √2/3: z = 1/√2, 1/√2, −√2.
    found = missed_energy_relevance(one, [second, first, second, third])
    near, far = 0.5 + np.sqrt(0.5) / 6, 0.5 - np.sqrt(2) / 6
    assert found == pytest.approx([near, 1, near, far])


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 8), st.data())
def test_invariants_of_missed_energy(seed, k, count, data):
    clients = [leading_spectrum(features(seed + i, n=20 + 5 * i), k) for i in range(count)]
    one, *_ = clients
    vectors = [c.eigenvectors for c in clients]
    energies = captured_energy(one.whole, vectors)
    assert (energies >= 0).all()
    assert (energies <= 1 + 1e-6).all()
    scores = missed_energy_relevance(one.whole, vectors)
    assert scores[0] == 1
    assert all(0 <= score <= 1 for score in scores)
    # Who captures more is at least as relevant.
    assert (np.diff(np.array(scores)[np.argsort(energies)]) >= -1e-9).all()
    # Whatever the clients' order.
    order = data.draw(st.permutations(range(count)))
    shuffled = missed_energy_relevance(one.whole, [vectors[j] for j in order])
    assert shuffled == pytest.approx([scores[j] for j in order], abs=1e-3)
    # Only the span of the eigenvectors counts: neither their signs nor their order.
    mirrored = missed_energy_relevance(one.whole, [-vectors[0], *(v[:, ::-1] for v in vectors[1:])])
    assert mirrored == pytest.approx(scores, abs=1e-2)
    # This client's pixels scaled: a camera's exposure means nothing, unlike in the paper's formula.
    scaled = missed_energy_relevance(replace(one.whole, values=4 * one.whole.values), vectors)
    assert scaled == pytest.approx(scores, abs=1e-9)


@pytest.mark.parametrize("samples", [1_200, 1_050])
def test_the_leading_pairs_alone_are_those_of_all(samples):
    data = np.random.default_rng(0).normal(size=(samples, 1_100)).astype(np.float32)
    data[:, :3] *= 30, 20, 10
    whole, alone = (leading_spectrum(data, 3, only_leading=only) for only in (False, True))
    assert len(alone.whole.values[0]) == 3 < len(whole.whole.values[0])
    np.testing.assert_allclose(alone.eigenvalues, whole.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(alone.eigenvectors, whole.eigenvectors, atol=1e-5)


@pytest.mark.parametrize("samples", [5, 50])
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_entry_of_each_eigenvector_is_positive(samples, seed):
    """Of few samples and of many, which are decomposed in different ways."""
    vectors = leading_spectrum(features(seed, n=samples), 5).eigenvectors
    largest = np.abs(vectors).argmax(axis=0)
    assert (vectors[largest, np.arange(5)] > 0).all()
