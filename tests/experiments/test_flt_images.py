"""FLT's scenario 2 as its authors deal out images, here those of mnist-5k."""

from experiments.flt_images import CLUSTERS, of_scenario_2
from fl_core.data.datasets import load_dataset


def test_clients_have_as_many_images_of_each_class_and_neighbours_the_same_ones():
    digits = load_dataset("mnist-5k")
    size = len(digits.train_labels) // 300
    federation = of_scenario_2("mnist-5k")
    assert federation.tasks == [client // 20 for client in range(100)]
    for task, classes in enumerate(CLUSTERS):
        wanted = sorted(label for label in classes for _ in range(size))
        for _, labels, _, tested in federation.clients[task * 20 :][:20]:
            assert sorted(labels.tolist()) == wanted
            assert set(tested.tolist()) == set(classes)
    # Seven is the last class of the first cluster, and the first one of the second.
    for client in range(20):
        mine, neighbours = federation.clients[client], federation.clients[20 + client]
        assert (mine[0][-size:] == neighbours[0][:size]).all()
    sevens = digits.train_images[digits.train_labels == 7]
    assert (federation.clients[3][0][-size:] == sevens[3 * size : 4 * size]).all()
