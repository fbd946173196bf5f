"""fedsem-flt: all clients' last models are grouped again in each round."""

import numpy as np

from experiments.output_layers import OutputLayersOfAll
from strategies import AllModelsClustering, make_strategy
from strategies.rounds.round_state import Clusters, Round, Update
from tests.local_grid import LocalGrid
from tests.toy_app import fail, groups, run, toy_app, weights


def model(*values):
    return {"w": np.array(values, np.float32)}


def test_by_hand_all_clients_are_grouped_in_each_round():
    clustering, clusters = AllModelsClustering(2), Clusters(dict.fromkeys(range(4), 0), 2)
    found = []
    for trained in ({0: (8, 0)}, {1: (0, 2)}, {2: (9, 0)}, {0: (0, 1)}):
        updates = [Update(client, 0, model(*values), 10) for client, values in trained.items()]
        state = Round(1, clusters, [], updates, initial=model(0, 0))
        clusters = clustering.after_training(state)
        of_client = [clusters.of_client[client] for client in range(4)]
        found.append([other == of_client[3] for other in of_client[:3]])
    # Client 3 never trains. Of (8, 0), (0, 2), (0, 0), (0, 0), the first is alone; then client 2
    # is with it; when client 0 has (0, 1), client 2 is alone.
    assert found == [
        [False, True, True],
        [False, True, True],
        [False, True, False],
        [True, True, False],
    ]


def test_by_hand_clients_stay_where_they_are_while_there_are_fewer_models_than_clusters():
    clustering, clusters = AllModelsClustering(5), Clusters(dict.fromkeys(range(10), 0), 5)
    found = []
    for trained in ({0: (8, 0), 1: (0, 8)}, {2: (30, 30), 3: (-30, 0)}, {2: (8, 0), 3: (0, 8)}):
        updates = [Update(client, 0, model(*values), 10) for client, values in trained.items()]
        clusters = clustering.after_training(Round(1, clusters, [], updates, initial=model(0, 0)))
        found.append([clusters.of_client[client] for client in range(10)])
    # Three different models, then five, then the first three again.
    assert found == [[0, 1, *[2] * 8], [0, 1, 3, 4, *[2] * 6], [0, 1, 0, 1, *[2] * 6]]


def test_one_client_and_one_that_never_answers_which_has_the_initial_model():
    strategy = make_strategy("fedsem-flt", 2)
    assert weights(run(strategy, LocalGrid(toy_app([0]), 1), 2)) == [2, 0]  # one is empty
    steps = [(1, 0), (10, 0), (5, 0)]
    app = toy_app([0] * 3, {("train", 2): fail}, step=lambda client, task: steps[client])
    run(strategy, LocalGrid(app, 3), 2)
    assert groups(strategy.clusters.of_client) == [[0, 2], [1]]


def test_by_hand_the_output_layer_alone_is_compared():
    # By all layers, clients 0 and 1 would be similar; by the last, 0 and 2 are.
    trained = {0: (9, 1), 1: (9, 5), 2: (0, 1)}
    models = {
        client: {"hidden.w": np.array([first], np.float32), "output.w": np.array([last], "f")}
        for client, (first, last) in trained.items()
    }
    updates = [Update(client, 0, model, 10) for client, model in models.items()]
    state = Round(1, Clusters(dict.fromkeys(range(3), 0), 2), [], updates, initial=models[0])
    for clustering, like in ((AllModelsClustering(2), 1), (OutputLayersOfAll(2), 2)):
        of_client = clustering.after_training(state).of_client
        assert [c for c in (1, 2) if of_client[c] == of_client[0]] == [like]
