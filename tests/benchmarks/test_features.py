"""Benchmarks compute features of the images that a federation's clients hold, whatever the seed."""

from itertools import pairwise

import numpy as np
import pytest

from benchmarks import clustering_grid, graph_threshold, harness, relevance_search
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


def test_embeddings_are_those_of_the_split_and_computed_once(dataset, monkeypatch):
    monkeypatch.setattr(graph_threshold, "pretrained_autoencoder", lambda *_: None)
    monkeypatch.setattr(graph_threshold, "encode", lambda _, images: images.flatten(1).numpy())
    graph_threshold.all_embeddings.cache_clear()
    found = graph_threshold.all_embeddings(dataset)
    np.testing.assert_array_equal(found, dataset.train_samples.flatten(1).numpy())
    assert graph_threshold.all_embeddings(dataset) is found
    graph_threshold.all_embeddings.cache_clear()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_client_of_the_relevance_search_has_its_own_images(seed, monkeypatch):
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


def test_the_grid_groups_a_federation_by_its_own_images(monkeypatch):
    used = []
    monkeypatch.setattr(
        clustering_grid,
        "table_of_relevances",
        lambda dataset, *_: (used.append(dataset), np.eye(harness.CLIENTS))[1],
    )
    cell = clustering_grid.Cell("mnist-5k", "hog", 20, "label", 3, "class-independent", 0.0, 1)
    clustering_grid.score(cell)
    assert used == [load_dataset("mnist-5k", seed=1)]


def test_cells_of_one_split_come_one_after_another():
    cells = relevance_search.cells(["mnist", "mnist-5k"], range(3))
    splits = [(cell.dataset, cell.seed) for cell in cells]
    assert len(cells) == 2 * 3 * 3 + 2 * 2 * 3 * 3
    changes = sum(one != other for one, other in pairwise(splits))
    assert changes == 5
