"""The state of a training, by itself: who holds which model when clusters change."""

import numpy as np
import pytest

from strategies import ClientRegistry, Training
from strategies.rounds.round_state import Clusters

NODES = {0: 10, 1: 11, 2: 12}


def model(value):
    return {"w": np.full(2, value, np.float32)}


def training(per_client, of_client, models):
    state = Training(ClientRegistry(dict(NODES)), per_client)
    state.start_from(model(0), Clusters(of_client))
    state.set_models(models)
    return state


def held(state, client):
    return float(state.models[state.model_of_client[client]]["w"][0])


@pytest.mark.parametrize("retains", [False, True])
def test_where_each_client_has_a_model_it_retains_it_and_a_newcomer_gets_the_clusters_mean(retains):
    state = training(True, {0: 0, 1: 0}, [model(1), model(5)])
    state.regroup(Clusters({0: 0, 1: 0, 2: 0}), retains_models=retains)
    assert [held(state, client) for client in range(3)] == [1, 5, 3]
    state.regroup(Clusters({0: 0, 1: 1, 2: 1}), retains_models=False)
    assert [held(state, client) for client in range(3)] == [1, 5, 3]


def test_where_clusters_retain_their_models_a_client_that_joins_one_gets_it():
    state = training(True, {0: 0, 1: 0, 2: 1}, [model(1), model(1), model(5)])
    state.regroup(Clusters({0: 0, 1: 1, 2: 0}), retains_models=True)
    assert [held(state, client) for client in range(3)] == [1, 5, 1]
    state.regroup(Clusters({0: 0, 1: 2, 2: 0}), retains_models=True)
    assert [held(state, client) for client in range(3)] == [1, 0, 1]  # no client was in cluster 2


def test_a_cluster_that_retains_its_model_gives_it_to_those_who_join():
    state = training(False, {0: 0, 1: 1, 2: 1}, [model(1), model(5)])
    state.regroup(Clusters({0: 0, 1: 0, 2: 1}, num_clusters=3), retains_models=True)
    assert [held(state, client) for client in range(3)] == [1, 1, 5]
    assert len(state.models) == 3 and float(state.models[2]["w"][0]) == 0


@pytest.mark.parametrize("per_client", [False, True])
def test_clusters_that_come_with_models_go_on_with_these_and_do_not_hold_them(per_client):
    state = training(per_client, {0: 0, 1: 1, 2: 1}, [model(1), model(5), model(5)])
    state.regroup(Clusters({0: 1, 1: 0}, models=[model(7), model(8)]), retains_models=True)
    assert [held(state, client) for client in range(3)] == [8, 7, 7]
    assert state.clusters.models == ()
    assert state.initial["w"].tolist() == [0, 0]


def test_failures_and_who_has_trained_survive_a_checkpoint():
    state = training(False, {0: 0, 1: 1, 2: 1}, [model(1), model(5)])
    state.record_failures({1: "its disk is full"}, "train")
    state.trained.update({0, 2})
    registry = ClientRegistry(dict(NODES))
    again = Training.from_checkpoint(state.as_checkpoint(), registry, False, False)
    assert [one.client for one in again.registry.log] == [1]
    assert again.trained == {0, 2}
