"""FedHC: clients with updates of one direction are averaged together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from strategies import Clusters, Round, Update, UpdateClustering, make_strategy
from strategies.rounds import updates as u
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import TASKS, groups, in_rounds, run, toy_app, with_arrays


def model(values):
    return {"w": np.array(values, np.float32), "steps": np.array(5)}


def updates(*steps, clients=None):
    """Updates of clients that were all sent (1, 1)."""
    sent = model((1, 1))
    return tuple(
        Update(client, 0, model(np.add((1, 1), step)), 1, sent)
        for client, step in zip(clients or range(len(steps)), steps, strict=True)
    )


def grouped(clustering, found, all_clients=None):
    clients = all_clients or [update.client for update in found]
    clusters = Clusters(dict.fromkeys(clients, 0))
    return clustering.after_training(Round(1, clusters, (), found, initial=model((1, 1))))


def by_received(number):
    """Return FedHC as it compares what one round moves."""
    return UpdateClustering(number, reference="received")


def angles(*degrees, length=1.0):
    return [(length * np.cos(np.radians(a)), length * np.sin(np.radians(a))) for a in degrees]


def test_by_hand_an_update_is_what_training_took_off_a_model():
    (update,) = updates((3, -4))  # from (1, 1) to (4, −3)
    assert u.model_vector(update.received, update.arrays).tolist() == [-3, 4]
    assert u.model_vector(model((2, -4)), update.arrays).tolist() == [-2, -1]
    assert u.model_vector(update.received).tolist() == [1, 1]  # integers say nothing


def test_running_statistics_are_no_part_of_a_vector_and_no_layer():
    names = ("conv.weight", "norm.running_mean", "norm.running_var")
    before = {name: np.zeros(2, np.float32) for name in names}
    after = {name: np.full(2, 10.0**place, np.float32) for place, name in enumerate(names)}
    vector = u.model_vector(after, before)
    assert (vector.tolist(), vector.dtype) == ([1, 1], np.float32)
    assert u.last_layer(after) == ["conv.weight"]


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 30))
def test_products_of_blocks_are_those_of_all_columns(count, width, block):
    vectors = np.random.default_rng(width).normal(size=(count, width)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(u, "_BLOCK", block)
        products = u.inner_products(list(vectors))
    exact = vectors.astype(np.float64)
    assert np.allclose(products, exact @ exact.T)
    found = u.coordinates(products)
    assert np.allclose(cdist(found, found), cdist(exact, exact), atol=1e-5)


def test_by_hand_cosines():
    vectors = np.array([[3.0, 4], [6, 8], [-4, 3], [0, 0]])
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert np.allclose(u.cosine_similarities(vectors @ vectors.T), expected)


def test_by_hand_ward():
    # Clients 0 and 2 point the same way, client 1 the other: unit vectors u, −u, u. Ward joins u
    # and u at 0, then two at u with one at −u at √(2·2·1/(2 + 1))·‖u − (−u)‖ = √(4/3)·2.
    found = grouped(by_received(2), updates((1, 2), (-2, -4), (3, 6)))
    assert found.of_client == {0: 0, 1: 1, 2: 0}
    assert np.allclose(found.comparison.merges[:, 2], [0, np.sqrt(4 / 3) * 2], atol=1e-6)
    assert np.allclose(found.comparison.similarity, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]])


@pytest.mark.parametrize("rule", ["silhouette", "elbow", 2])
def test_sign_flipped_and_scaled_updates_end_up_in_a_separate_cluster(rule):
    honest = angles(10, 20, 15, 12)
    flipped = angles(190, 195, length=10)
    found = grouped(by_received(rule), updates(*honest[:2], *flipped, *honest[2:]))
    assert groups(found.of_client) == [[0, 1, 4, 5], [2, 3]]


def test_a_client_that_does_not_take_part_retains_its_last_direction():
    clustering = by_received(2)
    first = grouped(clustering, updates(*angles(0, 90, 91), clients=[0, 2, 3]), [0, 1, 2, 3])
    assert groups(first.of_client) == [[0], [1], [2, 3]]  # the cluster of client 1 is still unknown
    assert first.compared == (0, 2, 3)
    # Client 3 has turned round: with clients 0 and 2 as they were, at 0° and 90°, it is alone.
    second = grouped(clustering, updates(*angles(225), clients=[3]), [0, 1, 2, 3])
    assert groups(second.of_client) == [[0, 2], [1], [3]]


def test_by_hand_movements_are_measured_from_the_first_model():
    # Clients 0 and 1 were sent (5, 1), client 2 (1, 5); each trained by (0, 2), the same direction.
    # Since (1, 1) they are at (4, 2), (4, 2) and (0, 6): cos = 2·6/(√20·6) = 0.447.
    sent = [model((5, 1)), model((5, 1)), model((1, 5))]
    found = [Update(c, c // 2, model(np.add(at["w"], (0, 2))), 1, at) for c, at in enumerate(sent)]
    clusters = grouped(UpdateClustering(2), found)
    assert groups(clusters.of_client) == [[0, 1], [2]]
    assert clusters.comparison.similarity[0] == pytest.approx([1, 1, 2 / np.sqrt(20)])
    assert grouped(by_received(2), found).comparison.similarity == pytest.approx(np.ones((3, 3)))


def test_every_client_trains_in_the_first_round_and_a_newcomer_in_its_first():
    grid = Visits(toy_app(TASKS), 7, {6: range(2)})
    strategy = make_strategy("fedhc", 3, fraction_train=0.3)
    run(strategy, grid, rounds=3)
    trained = [[c for c in range(7) if r in grid.rounds_of(c)] for r in (1, 2, 3)]
    assert trained[0] == [0, 1, 2, 3, 4, 5]
    assert 6 in trained[1] and len(trained[1]) <= 3
    assert len(trained[2]) == 2
    assert groups(strategy.clusters.of_client) == [[0, 2, 5], [1, 4], [3, 6]]


def test_by_hand_a_new_cluster_in_which_no_client_trained_starts_from_what_its_clients_held():
    # Round 1, at 0°, 45° and 63°: {0} at (4, 0); {1, 2} at (20·(4, 4) + 30·(2, 4))/50 = (2.8, 4).
    # Round 2: only client 2 trains, down to (2.8, 0), so that 0° and 45° are together; they leave
    # with the mean of (4, 0) and (2.8, 4).
    steps = {0: (4, 0), 1: (4, 4), 2: (2, 4)}
    down = in_rounds(2, corrupt=with_arrays(lambda a: a["w"].__setitem__(slice(None), (2.8, 0))))
    corrupt = {("train", 0): in_rounds(2), ("train", 1): in_rounds(2), ("train", 2): down}
    strategy = make_strategy("fedhc", 2, reference="received")
    result = run(strategy, LocalGrid(toy_app(corrupt=corrupt, step=lambda c, t: steps[c]), 3), 2)
    assert [groups(report.clusters) for report in strategy.reports] == [
        [[0], [1, 2]],
        [[0, 1], [2]],
    ]
    assert result.arrays["0/w"].numpy() == pytest.approx([3.4, 2])
    assert result.arrays["1/w"].numpy() == pytest.approx([2.8, 0])
