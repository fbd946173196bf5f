"""FedSEM that does not wait for all clients, which some tables show beside the project's."""

import numpy as np

from experiments.models_of_some import ModelsOfSome
from strategies import ClusteredStrategy, ClusterMean, ModelClustering
from tests.local_grid import LocalGrid
from tests.toy_app import TASKS, run, toy_app


def first_round(clustering):
    strategy = ClusteredStrategy(clustering, ClusterMean(), fraction_train=0.5)
    run(strategy, LocalGrid(toy_app(TASKS), len(TASKS)), 1)
    return strategy


def test_who_sits_out_the_first_round_joins_the_largest_cluster():
    some = first_round(ModelsOfSome(2))
    whole = first_round(ModelClustering(2))
    assert len(whole.reports[0].samples) == len(TASKS)
    trained = set(some.reports[0].samples)
    assert 0 < len(trained) < len(TASKS)
    of_client = some.clusters.of_client
    sizes = np.bincount([of_client[client] for client in trained])
    away = set(of_client) - trained
    assert {of_client[client] for client in away} == {int(sizes.argmax())}
