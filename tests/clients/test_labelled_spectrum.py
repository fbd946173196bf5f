"""A relevance that sees labels as well as images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.label_weight import Cell, adjusted_rand
from clients.pre_round.labelled_spectrum import class_energy_relevance, labelled_spectrum
from clients.pre_round.spectrum import missed_energy_relevance

LABELS = np.array([0, 1])
IMAGES = np.array([[2, 0], [0, 1]], np.float32)


def test_by_hand_eigenvectors_of_all_images_and_of_each_class():
    # G = diag(4, 1)/2. Class 0 has 4/2 along e1, class 1 has 1/2 along e2.
    own = labelled_spectrum(IMAGES, LABELS, 1)
    assert own.classes.tolist() == [-1, 0, 1]
    assert np.allclose(np.abs(own.eigenvectors), [[1, 1, 0], [0, 0, 1]])
    assert (own.image_energy, own.class_energy) == pytest.approx((2, 2.5))


def test_by_hand_the_energy_that_is_missed():
    own = labelled_spectrum(IMAGES, LABELS, 1)
    e1, e2 = np.eye(2, dtype=np.float32)
    # Client 1 has the labels the other way round: of 2.5, its classes capture nothing. Client 2
    # knows class 0 alone, and captures 2 of 2.5. With a weight of 0.3 they miss 0.3 and 0.06.
    # log 0.3 = −1.204 and log 0.06 = −2.813 are one standard deviation from their mean.
    scores = class_energy_relevance(
        IMAGES,
        LABELS,
        own.image_energy,
        own.class_energy,
        [own.eigenvectors, np.stack([e1, e1, e2], 1), np.stack([e1, e1], 1)],
        [own.classes, np.array([-1, 1, 0]), np.array([-1, 0])],
        0.3,
    )
    assert scores == pytest.approx([1, 1 / 3, 2 / 3])


def clients(seed, count, labels=3):
    rng = np.random.default_rng(seed)
    made = []
    for n in rng.integers(6, 30, count):
        features = rng.normal(size=(n, 8)).astype(np.float32) * np.linspace(3, 0.5, 8)
        made.append((features.astype(np.float32), rng.integers(0, labels, n)))
    return made


def scores_of(own, everybody, weight, count=2):
    spectra = [labelled_spectrum(features, labels, count) for features, labels in everybody]
    mine = labelled_spectrum(*own, count)
    return class_energy_relevance(
        *own,
        mine.image_energy,
        mine.class_energy,
        [s.eigenvectors for s in spectra],
        [s.classes for s in spectra],
        weight,
    )


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(3, 6), st.floats(0, 2), st.data())
def test_invariants(seed, count, weight, data):
    everybody = clients(seed, count)
    own = everybody[0]
    scores = np.array(scores_of(own, everybody, weight))
    assert scores[0] == 1
    assert ((scores >= 0) & (scores <= 1)).all()
    order = data.draw(st.permutations(range(count)))
    shuffled = scores_of(own, [everybody[i] for i in order], weight)
    assert np.allclose(shuffled, scores[list(order)], atol=1e-6)
    # Other names for the classes, and images four times as bright, say nothing new.
    renamed = [(features, np.array([7, 2, 5])[labels]) for features, labels in everybody]
    assert np.allclose(scores_of(renamed[0], renamed, weight), scores, atol=1e-6)
    brighter = [(4 * features, labels) for features, labels in everybody]
    assert np.allclose(scores_of(brighter[0], brighter, weight), scores, atol=1e-4)


def test_without_weight_it_is_missed_energy():
    everybody = clients(1, 5)
    features, _ = everybody[0]
    spectra = [labelled_spectrum(*one, 2) for one in everybody]
    of_images = [s.eigenvectors[:, s.classes == -1] for s in spectra]
    gram = (features.T @ features / len(features)).astype(np.float32)
    expected = missed_energy_relevance(gram, np.array([spectra[0].image_energy]), of_images)
    assert scores_of(everybody[0], everybody, 0) == pytest.approx(expected, abs=1e-4)


def test_one_class_and_more_eigenvectors_than_images():
    (features, _), *others = clients(2, 3)
    own = (features[:3], np.zeros(3, int))
    found = labelled_spectrum(*own, 6)
    assert found.classes.tolist() == [-1] * 3 + [0] * 3
    assert scores_of(own, [own, *others], 0.3, 6)[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "images_alone"),
    [({"num-tasks": 3, "shift": "concept"}, False), ({"num-tasks": 3, "noise-rate": 0.45}, True)],
)
def test_tasks_of_other_labels_and_tasks_of_wrong_labels_are_both_found(scenario, images_alone):
    cell = Cell(tuple(scenario.items()), 25, 0)
    assert adjusted_rand(cell, 0.3) == 1
    assert (adjusted_rand(cell, 0) == 1) == images_alone
