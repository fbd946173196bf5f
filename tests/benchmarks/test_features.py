"""Benchmarks compute features of the images that a federation's clients hold, for every seed."""

import numpy as np
import pytest

from benchmarks import harness, relevance_search
from clients.features.compute import feature_map
from clients.signatures.spectrum import gram_matrix
from fl_core.data.datasets import load_dataset


@pytest.fixture(params=[0, 1])
def dataset(request):
    return load_dataset("mnist-5k", seed=request.param)


def test_features_are_those_of_the_split_and_computed_once(dataset):
    found = harness.all_features(dataset, "hog")
    np.testing.assert_array_equal(found, feature_map("hog")(dataset.train_samples).numpy())
    assert harness.all_features(dataset, "hog") is found


@pytest.mark.parametrize("seed", [0, 1])
def test_a_client_of_the_relevance_search_has_its_images(seed, monkeypatch):
    simulated = []
    simulate = harness.simulate_federation

    def keep(settings):
        simulated.append(simulate(settings))
        return simulated[-1]

    monkeypatch.setattr(harness, "simulate_federation", keep)
    cell = relevance_search.Cell("mnist-5k", "label", 3, seed)
    spectra, _ = relevance_search.spectra_and_tasks(cell)
    for client in (0, 24):
        images, _ = simulated[0].training_data(client)
        gram = gram_matrix(feature_map("hog")(images).numpy())
        np.testing.assert_allclose(harness.gram_of(spectra[client]), gram, atol=1e-5)
