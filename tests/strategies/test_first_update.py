"""FedClust and FedGroup: clients are grouped once, by their first training, and then stay."""

import numpy as np
import pytest

from strategies import (
    Clusters,
    FirstDirectionClustering,
    FirstUpdateClustering,
    Round,
    Update,
    make_strategy,
)
from strategies.clusterings.first_update import decomposed_cosines
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import TASKS, fail, groups, in_rounds, run, toy_app, weights, with_arrays


def model(hidden, output):
    arrays = {"hidden.weight": hidden, "output.weight": output[:1], "output.bias": output[1:]}
    floats = {name: np.array(values, np.float32) for name, values in arrays.items()}
    return {**floats, "steps": np.array(5)}


def updates(*outputs, hidden=(0, 0), clients=None):
    """Updates of clients that were all sent a hidden layer of ones and a last layer (1, 1)."""
    sent = model((1, 1), (1, 1))
    return tuple(
        Update(client, 0, model(np.add((1, 1), hidden), np.add((1, 1), output)), 1, sent)
        for client, output in zip(clients or range(len(outputs)), outputs, strict=True)
    )


def grouped(clustering, found, all_clients=None):
    clustering.find(type("Roll", (), {"nodes": ()}))
    clients = all_clients or [update.client for update in found]
    return clustering.after_training(Round(1, Clusters(dict.fromkeys(clients, 0)), (), found))


def test_by_hand_fedclust_goes_by_the_distance_of_last_layers():
    # (3, 4) is 5 from (0, 0) and 1 from (3, 5), which is √34 from (0, 0).
    found = grouped(FirstUpdateClustering(2), updates((3, 4), (0, 0), (3, 5)))
    assert found.of_client == {0: 0, 1: 1, 2: 0}
    root = np.sqrt(34)
    assert np.allclose(found.comparison.merges[:, 2], [1, (5 + root) / 2])
    assert np.allclose(1 / found.comparison.similarity - 1, [[0, 5, 1], [5, 0, root], [1, root, 0]])


def test_by_hand_fedclust_does_not_look_at_other_layers():
    found = updates((0, 0), (0, 9), (0, 1))
    far = updates((0, 0), (0, 9), (0, 1), hidden=(50, -70))
    mixed = (found[0], far[1], far[2])
    assert grouped(FirstUpdateClustering(2), mixed).of_client == {0: 0, 1: 1, 2: 0}
    assert grouped(FirstDirectionClustering(2), mixed).of_client == {0: 0, 1: 1, 2: 1}


def test_by_hand_fedgroups_coordinates_are_cosines_with_the_leading_directions():
    # The directions are the axes: 3² + 5² is more than 2² + 1².
    vectors = np.array([[3.0, 0], [0, 2], [5, 0], [0, -1], [0, 0]])
    found = decomposed_cosines(vectors @ vectors.T, 2)
    signs = np.sign(found[[0, 1], [0, 1]])
    assert np.allclose(found * signs, [[1, 0], [0, 1], [1, 0], [0, -1], [0, 0]])
    # Of one direction, (1, 1) and (1, −1), both at 45° to the axes, are seen equally.
    vectors = np.array([[9.0, 0], [1, 1], [1, -1]])
    (long, up, down) = decomposed_cosines(vectors @ vectors.T, 1)
    assert np.abs([long, up, down]).ravel() == pytest.approx([1, np.sqrt(0.5), np.sqrt(0.5)])


def test_by_hand_fedgroup_groups_by_direction_and_not_by_length():
    steps = ((1, 0), (0, 9), (8, 0), (0, 1), (9, 0))
    assert groups(grouped(FirstDirectionClustering(2), updates(*steps)).of_client) == [
        [0, 2, 4],
        [1, 3],
    ]
    # FedClust does the opposite: (1, 0) and (0, 1) have hardly moved, (8, 0) is alone with (9, 0).
    assert groups(grouped(FirstUpdateClustering(3), updates(*steps)).of_client) == [
        [0, 3],
        [1],
        [2, 4],
    ]


def test_all_train_in_round_1_for_any_share_and_then_none_moves():
    grid = LocalGrid(toy_app(TASKS), 7)
    strategy = make_strategy("fedgroup", 3, fraction_train=0.3)
    run(strategy, grid, rounds=4)
    trained = [m.metadata.group_id for m in grid.sent if m.metadata.message_type == "train"]
    assert [trained.count(str(number)) for number in (1, 2, 3, 4)] == [7, 2, 2, 2]
    assert groups(strategy.clusters.of_client) == [[0, 2, 5], [1, 4], [3, 6]]
    assert len({tuple(report.clusters.items()) for report in strategy.reports}) == 1


@pytest.mark.parametrize("name", ["fedclust", "fedgroup"])
def test_by_hand_clusters_go_on_with_the_means_of_what_round_1_trained(name):
    # Clients 0 and 2 (10 and 30 images) move right, client 1 up: (4·10 + 6·30)/40 = 5.5.
    steps = {0: (4, 0), 1: (0, 40), 2: (6, 0)}
    strategy = make_strategy(name, 2)
    result = run(strategy, LocalGrid(toy_app(step=lambda c, _: steps[c]), 3), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
    assert weights(result) == [11, 0]


RIGHT_OR_UP = {0: (1, 0), 1: (1, 0), 2: (0, 1), 3: (1, 0), 4: (0, 1)}


def moves_right_or_up(corrupt=None):
    return toy_app(corrupt=corrupt, step=lambda client, _: RIGHT_OR_UP[client])


@pytest.mark.parametrize("name", ["fedclust", "fedgroup"])
def test_by_hand_who_fails_in_round_1_joins_later_and_what_it_trained_alone_counts_nowhere(name):
    # Round 1: {0, 1} at (1, 0), {2} at (0, 1). Round 2: they are at (2, 0) and (0, 2); client 3
    # trains the first model, to (1, 0), and joins before the test. Round 3: it starts from (2, 0),
    # as 0 and 1 do.
    strategy = make_strategy(name, 2)
    grid = LocalGrid(moves_right_or_up({("train", 3): in_rounds(1, corrupt=fail)}), 4)
    result = run(strategy, grid, rounds=3)
    assert [groups(report.clusters) for report in strategy.reports] == [
        [[0, 1], [2], [3]],
        [[0, 1, 3], [2]],
        [[0, 1, 3], [2]],
    ]
    assert weights(result) == [3, 0]
    assert result.arrays["1/w"].numpy().tolist() == [0, 3]


def test_fedclusts_newcomers_are_in_the_picture_and_joined_by_mean_distance():
    # Clients 0 and 1, at (0, 0) and (8, 0), are one cluster; client 2 is at (0, 90). Client 3, at
    # (4, 2), is √20 from each of the former.
    steps = {0: (0, 0), 1: (8, 0), 2: (0, 90), 3: (4, 2)}
    strategy = make_strategy("fedclust", 2)
    run(strategy, Visits(toy_app(step=lambda c, _: steps[c]), 4, {3: {0, 1}}), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 1, 3: 0}
    assert strategy.clusters.compared == (0, 1, 2)
    expected = [np.sqrt(20), np.sqrt(20), np.hypot(4, 88)]
    assert np.allclose(1 / strategy.clusters.comparison.late[3] - 1, expected)


def test_by_hand_fedgroups_newcomers_join_by_the_direction_of_the_mean_update():
    # (2, 3) is at 34° to (0, 1) and at 56° to (9, 0), with which its product is larger.
    steps = {0: (9, 0), 1: (9, 0), 2: (0, 1), 3: (2, 3)}
    strategy = make_strategy("fedgroup", 2)
    run(strategy, Visits(toy_app(step=lambda c, _: steps[c]), 4, {3: {0, 1}}), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 1, 3: 1}


@pytest.mark.parametrize("name", ["fedclust", "fedgroup"])
def test_newcomers_are_compared_with_what_round_1_moved_and_nothing_later(name):
    # Round 1: 0 and 1 go right, 2 goes up. Round 2: each goes the other way, to (1, 1).
    # Client 3 comes in round 2 and goes right.
    back = in_rounds(2, corrupt=with_arrays(lambda a: a.update(w=np.ones(2, np.float32))))
    app = moves_right_or_up({("train", client): back for client in (0, 1, 2)})
    strategy = make_strategy(name, 2)
    run(strategy, Visits(app, 4, {3: {0, 1}}), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 1, 3: 0}
