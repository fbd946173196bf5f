"""PACFL: clients are grouped once, by the angles between the spaces that their images span."""

import itertools

import numpy as np
import pytest
import torch
from flwr.clientapp import ClientApp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import subspace_angles

from clients.handlers import answer_queries, answer_training
from fl_core.relevance import Spectra, corresponding_angles
from strategies import ClusteredStrategy, PrincipalAngleClustering, make_strategy
from strategies.clusterings.agglomeration import number_within
from tests import objective_app
from tests.local_grid import LocalGrid, Visits
from tests.objective_app import Small
from tests.toy_app import groups, run, toy_app, with_arrays


def lines(*degrees):
    """Each client shares one direction in the plane."""
    found = {}
    for client, degree in enumerate(degrees):
        turn = np.radians(degree)
        vector = np.array([[np.cos(turn)], [np.sin(turn)]], np.float32)
        found["query.spectrum", client] = with_arrays(
            lambda a, vector=vector: a.update(eigenvectors=vector)
        )
    return toy_app(corrupt=found)


def found_of(strategy, *degrees, rounds=1, away=None):
    run(strategy, Visits(lines(*degrees), len(degrees), away or {}), rounds=rounds)
    return strategy.clusters


def test_by_hand_the_angle_between_lines():
    # 0° and 170° differ by 10°, as a line has no direction; 60° is 60° and 70° from these.
    found = found_of(make_strategy("pacfl", 2, num_eigenvectors=1, threshold=None), 0, 60, 170)
    assert found.of_client == {0: 0, 1: 1, 2: 0}
    assert np.allclose(
        90 * (1 - found.comparison.similarity), [[0, 60, 10], [60, 0, 70], [10, 70, 0]], atol=0.1
    )
    assert found.comparison.merges[:, 2] == pytest.approx([10, 65], abs=0.1)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (9, [[0], [1], [2], [3]]),
        (11, [[0, 2], [1], [3]]),
        (16, [[0, 2], [1, 3]]),
        (90, [[0, 1, 2, 3]]),
    ],
)
@pytest.mark.parametrize("number", [1, 4, "elbow"])
def test_by_hand_clusters_are_merged_up_to_the_threshold_however_many_are_left(
    threshold, expected, number
):
    found = found_of(
        make_strategy("pacfl", number, num_eigenvectors=1, threshold=threshold), 0, 60, 170, 75
    )
    assert groups(found.of_client) == expected


def test_within_a_height_ties_are_merged_and_one_client_is_one_cluster():
    merges = np.array([[0, 1, 2.0, 2], [2, 3, 2.0, 2], [4, 5, 7.0, 4]])
    assert [number_within(merges, height) for height in (1.9, 2, 6, 7)] == [4, 2, 2, 1]
    assert number_within(np.empty((0, 4)), 3) == 1


def test_by_hand_the_sum_of_angles_pairs_first_with_first_and_second_with_second():
    # Both span the same plane, so their smallest angle is 0, but in another order.
    plane, turned = np.eye(3, 2, dtype=np.float32), np.eye(3, 2, dtype=np.float32)[:, ::-1]
    lone = -np.eye(3, 1, dtype=np.float32)  # one vector only: its sign says nothing
    spectra = Spectra.of_vectors([plane, turned, lone])
    found = corresponding_angles(spectra, spectra, 2)
    assert found[0].tolist() == [0, 180, 90]
    assert found[1].tolist() == [180, 0, 180]
    assert corresponding_angles(spectra[np.array([0, 1])], spectra[np.array([0])], 1).tolist() == [
        [0],
        [90],
    ]


def bases(seed, count, width=3):
    rng = np.random.default_rng(seed)
    return [np.linalg.qr(rng.normal(size=(8, width)))[0].astype(np.float32) for _ in range(count)]


def shares(vectors):
    return {
        ("query.spectrum", client): with_arrays(lambda a, basis=basis: a.update(eigenvectors=basis))
        for client, basis in enumerate(vectors)
    }


@settings(max_examples=20)
@given(st.integers(0, 10**6))
@pytest.mark.parametrize("measure", ["smallest", "sum"])
def test_signs_of_vectors_and_the_order_of_clients_change_nothing(measure, seed):
    rng = np.random.default_rng(seed)
    vectors, order = bases(seed, 6), rng.permutation(6)
    signs = rng.choice([-1, 1], size=(6, 3)).astype(np.float32)
    plain, other = (
        make_strategy("pacfl", 3, measure=measure, threshold=None),
        make_strategy("pacfl", 3, measure=measure, threshold=None),
    )
    run(plain, LocalGrid(toy_app(corrupt=shares(vectors)), 6))
    turned = [vectors[c] * signs[c] for c in order]
    run(other, LocalGrid(toy_app(corrupt=shares(turned)), 6))
    again = {int(order[c]): cluster for c, cluster in other.clusters.of_client.items()}
    assert groups(dict(sorted(again.items()))) == groups(plain.clusters.of_client)
    similarity = plain.clusters.comparison.similarity[np.ix_(order, order)]
    assert np.allclose(other.clusters.comparison.similarity, similarity, atol=1e-3)


def test_pixels_are_compared_whatever_the_features_are():
    class Other(Small):
        def features(self):
            raise AssertionError("features were computed")

    app = ClientApp()
    answer_queries(app, Other)
    answer_training(app, Other)
    strategy = ClusteredStrategy(PrincipalAngleClustering(2, threshold=None))
    objective_app.run(strategy, LocalGrid(app, 3), rounds=1)
    spectra = []
    for client in range(3):
        generator = torch.Generator().manual_seed(client)
        pixels = torch.randint(0, 256, (6 + client, 4), generator=generator, dtype=torch.uint8)
        left = np.linalg.svd(pixels.numpy().T / 255)[0][:, :3]
        spectra.append(left)
    for i, j in itertools.combinations(range(3), 2):
        smallest = np.degrees(subspace_angles(spectra[i], spectra[j])[-1])
        found = 90 * (1 - strategy.clusters.comparison.similarity[i, j])
        assert found == pytest.approx(smallest, abs=0.1)


def test_by_hand_newcomers_join_the_nearest_cluster_on_average_or_found_one():
    # There are {0°, 10°} and {60°}. Later come 20° (15° from the first on average), 130° and 135°,
    # both farther than 25° from all, and 5° from each other.
    away = {client: {0, 1} for client in (3, 4, 5)}
    degrees = (0, 10, 60, 20, 130, 135)
    strategy = make_strategy("pacfl", 2, num_eigenvectors=1, threshold=25.0)
    found = found_of(strategy, *degrees, away=away, rounds=2)
    assert groups(strategy.reports[0].clusters) == [[0, 1], [2]]
    assert groups(found.of_client) == [[0, 1, 3], [2], [4, 5]]
    assert 90 * (1 - found.comparison.late[3]) == pytest.approx([20, 10, 40], abs=0.1)
    # Without a threshold, each joins a cluster: 130° is 50° from 0° and 60° from 10°.
    found = found_of(
        make_strategy("pacfl", 2, num_eigenvectors=1, threshold=None), *degrees, away=away, rounds=2
    )
    assert groups(found.of_client) == [[0, 1, 3, 4, 5], [2]]
