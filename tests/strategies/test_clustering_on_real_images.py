"""What the project promises about clustering, on real images. docs/results.md has the full grid."""

import os
from itertools import product
from pathlib import Path

import pytest

from benchmarks import relevance_search
from benchmarks.clustering_grid import Cell, Score, score
from tests.samples import sampled

needs_data = pytest.mark.skipif(
    not (Path(os.environ.get("FL_DATA_DIR", "")) / "FashionMNIST").is_dir(),
    reason="FL_DATA_DIR names no folder with MNIST, Fashion-MNIST and CIFAR-10",
)
PERFECT = {tasks: Score(1.0, 1.0, tasks) for tasks in (2, 3, 5)}


@pytest.mark.parametrize(
    ("partition", "tasks", "seed"), sampled(product(["label", "quantity"], [2, 3, 5], range(3)), 4)
)
def test_the_embedded_images_are_grouped_perfectly(partition, tasks, seed):
    cell = Cell("mnist-5k", "hog", 20, partition, tasks, seed)
    assert score(cell) == PERFECT[tasks]


def test_missed_energy_groups_clients_of_a_handful_of_images_where_the_papers_formula_fails():
    cell = relevance_search.Cell("mnist-5k", "quantity", 2, seed=8, min_samples=1)
    found = relevance_search.adjusted_rands(cell, relevance_search.FORMULAS)
    assert found["paper"] < 0.9
    assert found[relevance_search.MISSED_ENERGY] == 1


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "partition"), [("mnist", "label"), ("fashion-mnist", "quantity")]
)
@pytest.mark.parametrize("tasks", sampled([3, 2, 5], 3))
def test_full_data_sets_are_grouped_perfectly_and_their_number_is_found(dataset, partition, tasks):
    cell = Cell(dataset, "hog", 20, partition, tasks, 0)
    assert score(cell) == PERFECT[tasks]
