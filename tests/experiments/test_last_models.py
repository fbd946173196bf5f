"""The means of FLT's authors' code, which experiments/flt-code.toml takes."""

import numpy as np
import pytest

from experiments.last_models import MeanOfLastModels, MeanOfLastTrained
from strategies.aggregations.aggregation import GraphMean
from strategies.rounds.round_state import Clusters, Round, Update

NEAR = {0: frozenset({0, 1}), 1: frozenset({0, 1, 2}), 2: frozenset({1, 2})}


def model(value):
    return {"w": np.array([value], np.float32)}


def averaged(aggregation, of_client, models, trained, neighbours=None):
    """Models: of each client; trained: by client, the value that it sent; the initial one has 0."""
    updates = [Update(c, of_client[c], model(value), 10) for c, value in trained.items()]
    clusters = Clusters(of_client, max(of_client.values()) + 1, neighbours)
    held = [model(value) for value in models]
    state = Round(1, clusters, held, updates, initial=model(0))
    return [float(found["w"][0]) for found in aggregation(state)]


def test_by_hand_clients_that_sat_out_count_with_their_last_model():
    # Cluster 0: two of four trained, (3 + 5 + 1 + 1)/4; cluster 1: all, (7 + 9)/2; cluster 2: none.
    of_client = {0: 0, 1: 1, 2: 0, 3: 0, 4: 1, 5: 0, 6: 2}
    trained = {4: 9, 0: 3, 1: 7, 3: 5}
    found = averaged(MeanOfLastModels(), of_client, [1, 2, 1, 1, 2, 1, 6], trained)
    assert found == [2.5, 8, 2.5, 2.5, 8, 2.5, 6]


def test_by_hand_each_client_averages_over_its_neighbours():
    found = averaged(MeanOfLastModels(), {0: 0, 1: 0, 2: 1}, [1, 2, 3], {0: 5}, NEAR)
    assert found == pytest.approx([(5 + 2) / 2, (5 + 2 + 3) / 3, (2 + 3) / 2])


def test_by_hand_clients_that_sat_out_count_with_what_they_last_trained():
    # Cluster 0 has clients 0 and 1, which hold 9 each; client 1 has not trained before round 3.
    mean, of_client = MeanOfLastTrained(), {0: 0, 1: 0, 2: 1}
    found = [averaged(mean, of_client, [9] * 3, sent) for sent in ({0: 4}, {2: 5}, {1: 2})]
    assert found == [[2, 2, 0], [2, 2, 5], [3, 3, 5]]


@pytest.mark.parametrize("mean", [MeanOfLastModels, MeanOfLastTrained])
@pytest.mark.parametrize("near", [None, NEAR])
def test_if_all_clients_train_it_is_case_i(near, mean):
    given = {0: 0, 1: 1, 2: 0}, [0, 0, 0], {0: 1.5, 1: 4, 2: 9}, near
    found = averaged(mean(), *given)
    assert found == averaged(GraphMean(weighted=False), *given)
