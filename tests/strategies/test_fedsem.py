"""FedSEM: k-means over client models, then one step of it in every round."""

import pytest

from strategies import make_strategy
from tests.local_grid import LocalGrid
from tests.toy_app import fail, in_rounds, run, toy_app, weights, with_arrays

STEPS = {0: (1, 0), 1: (10, 0), 2: (2, 0)}


def jump(number, value):
    """In a round, a client's training ends at `value`."""
    return in_rounds(number, corrupt=with_arrays(lambda a: a["w"].__setitem__(0, value)))


def semantic(strategy, rounds, corrupt=None):
    app = toy_app(corrupt=corrupt, step=lambda client, task: STEPS[client])
    return weights(run(strategy, LocalGrid(app, 3), rounds))


def test_by_hand_kmeans_and_then_the_nearest_model():
    # Models 1, 10, 2 fall into {1, 2} and {10}: means 1.5 and 10. Then clients 0 and 2 train to 2.5
    # and 3.5, nearest to 1.5, and client 1 to 20, nearest to 10: means 3 and 20.
    strategy = make_strategy("fedsem", 2)
    assert semantic(strategy, 1) == [1.5, 10]
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
    assert semantic(strategy, 2) == [3, 20]


def test_models_that_start_as_copies_part_in_the_first_round():
    # The fault would be to choose the nearest of identical models: all in cluster 0.
    strategy = make_strategy("fedsem", 3)
    assert semantic(strategy, 1) == [1, 10, 2]
    assert len(set(strategy.clusters.of_client.values())) == 3


def test_by_hand_a_client_goes_where_its_model_is_nearest_and_an_empty_cluster_retains_its_model():
    # In round 2, client 1 ends at 5: 3.5 from cluster 0's model and 5 from cluster 1's: it moves,
    # (2.5 + 5 + 3.5)/3 = 11/3, and the other model stays at 10.
    strategy = make_strategy("fedsem", 2)
    assert semantic(strategy, 2, {("train", 1): jump(2, 5)}) == pytest.approx([11 / 3, 10])
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 0}
    assert strategy.clusters.count == 2


def test_clusters_retain_their_numbers_when_a_lower_one_is_empty():
    # In round 2, clients 0 and 2 end at 12, nearer to 10 than to 1.5, and stay there.
    strategy = make_strategy("fedsem", 2)
    semantic(strategy, 3, {("train", 0): jump(2, 12), ("train", 2): jump(2, 12)})
    assert [r.clusters for r in strategy.reports[1:]] == [{0: 1, 1: 1, 2: 1}] * 2


def test_clients_that_do_not_take_part_stay_where_they_are():
    # Client 1 fails from round 2 on. In the first round, who fails joins the largest cluster.
    strategy = make_strategy("fedsem", 2)
    assert semantic(strategy, 3, {("train", 1): in_rounds(2, 3)}) == [1.5 * 3, 10]
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
    strategy = make_strategy("fedsem", 2)
    app = toy_app([0] * 5, {("train", 4): fail}, step=lambda c, t: ((1, 9, 2, 8.5, 1)[c], 0))
    run(strategy, LocalGrid(app, 5))
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    strategy = make_strategy("fedsem", 2)  # the largest cluster is not that of the first client
    app = toy_app([0] * 5, {("train", 4): fail}, step=lambda c, t: ((9, 1, 2, 1, 1)[c], 0))
    run(strategy, LocalGrid(app, 5))
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 1, 3: 1, 4: 1}


def test_by_hand_all_are_grouped_in_round_1_and_a_share_trains_on():
    # Models 1, 10, 2, 11, 3 and 9 in round 1: means 2 and 10. Then 2 of the 6 train.
    strategy = make_strategy("fedsem", 2, fraction_train=1 / 3)
    steps = (1, 10, 2, 11, 3, 9)
    grid = LocalGrid(toy_app([0] * 6, step=lambda client, task: (steps[client], 0)), 6)
    run(strategy, grid, rounds=2)
    trained = [m.metadata.group_id for m in grid.sent if m.metadata.message_type == "train"]
    assert [trained.count(number) for number in ("1", "2")] == [6, 2]
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0, 5: 1}
