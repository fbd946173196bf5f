"""The mean of FLT's authors' code, which experiments/flt-code.toml takes."""

import numpy as np

from experiments.last_models import MeanOfLastModels
from strategies.aggregations.aggregation import ClusterMean
from strategies.engine.rounds import Clusters, Round, Update


def model(value):
    return {"w": np.array([value], np.float32)}


def averaged(aggregation, of_client, models, trained):
    """Trained: by client, the value that it sent."""
    updates = [Update(c, of_client[c], model(value), 10) for c, value in trained.items()]
    clusters = Clusters(of_client, len(models))
    state = Round(1, clusters, [model(value) for value in models], updates)
    return [found["w"].tolist() for found in aggregation(state)]


def test_by_hand_clients_that_sat_out_count_with_the_cluster_s_model():
    # Cluster 0: two of four trained, (3 + 5 + 1 + 1)/4; cluster 1: all, (7 + 9)/2; cluster 2: none.
    of_client = {0: 0, 1: 1, 2: 0, 3: 0, 4: 1, 5: 0, 6: 2}
    trained = {4: 9, 0: 3, 1: 7, 3: 5}
    found = averaged(MeanOfLastModels(), of_client, [1, 2, 6], trained)
    assert found == [[2.5], [8], [6]]


def test_if_everybody_trains_it_is_fedavg():
    of_client, trained = {0: 0, 1: 1, 2: 0}, {0: 1.5, 1: 4, 2: 9}
    assert averaged(MeanOfLastModels(), of_client, [0, 0], trained) == averaged(
        ClusterMean(), of_client, [0, 0], trained
    )
