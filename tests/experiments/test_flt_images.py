"""FLT's scenario 2 as its authors deal out images, here those of mnist-5k."""

import numpy as np

from experiments.flt_images import CLUSTERS, SEED, drawn, in_slices
from fl_core.data.datasets import load_dataset


def test_clients_have_as_many_images_of_each_class_and_neighbours_the_same_ones():
    digits = load_dataset("mnist-5k")
    size = len(digits.train_labels) // 300
    federation = in_slices("mnist-5k")
    check_classes(federation, size)
    # Seven is the last class of the first cluster, and the first one of the second.
    for client in range(20):
        mine, neighbours = federation.clients[client], federation.clients[20 + client]
        assert (mine[0][-size:] == neighbours[0][:size]).all()
    sevens = digits.train_samples[digits.train_labels == 7]
    assert (federation.clients[3][0][-size:] == sevens[3 * size : 4 * size]).all()


def test_drawn_clients_have_what_the_authors_code_drew():
    digits = load_dataset("mnist-5k")
    size = len(digits.train_labels) // 200
    federation = drawn("mnist-5k")
    check_classes(federation, size)
    random = np.random.RandomState(SEED)
    in_turn = random.choice(10, 10, replace=False).tolist()
    assert tuple((*in_turn, in_turn[0])[first : first + 3] for first in range(0, 10, 2)) == CLUSTERS
    for label, part in zip((5, 3, 7), range(3), strict=True):
        images = digits.train_samples[digits.train_labels == label]
        mine = random.choice(len(images) - 1, size, replace=False)
        assert (federation.clients[0][0][part * size :][:size] == images[mine]).all()


def check_classes(federation, size):
    assert federation.tasks == [client // 20 for client in range(100)]
    for task, classes in enumerate(CLUSTERS):
        expected = sorted(label for label in classes for _ in range(size))
        for _, labels, _, tested in federation.clients[task * 20 :][:20]:
            assert sorted(labels.tolist()) == expected
            assert set(tested.tolist()) == set(classes)
