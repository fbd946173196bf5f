from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from clients.attacks import random_basis
from clients.privacy import noise_generator, noisy_eigenvectors, noisy_relevances
from fl_app.client_app import app
from fl_app.devices.node import DeviceNode
from fl_app.node import Node, SimulatedNode
from fl_core import protocol
from strategies.grouping import agglomerate, average_relevance
from tests.app_runs import DEFAULTS, run, without_seconds
from tests.local_grid import LocalGrid


class NeverDrawn:
    def __getattr__(self, name):
        raise AssertionError(f"{name} was drawn")


class Fixed:
    """In place of a generator: noise that can be worked by hand."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers, np.float64)

    def standard_normal(self, shape):
        return self.numbers.reshape(shape)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_without_noise_nothing_is_drawn_and_nothing_changes():
    vectors = random_basis((6, 3), rng())
    assert noisy_eigenvectors(vectors, 0.0, NeverDrawn()) is vectors
    scores = [0.25, 1.0000001]
    assert noisy_relevances(scores, 0.0, NeverDrawn()) == scores


def test_the_noise_on_one_eigenvector_by_hand():
    # d = 4: noise of 1 in an entry is 2/√4 = 1 long for σ = 2, so (1, 0, 0, 0) becomes
    # (1, 1, 0, 0), which is (1, 1, 0, 0)/√2 once it has length 1.
    vector = np.array([[1], [0], [0], [0]], np.float32)
    found = noisy_eigenvectors(vector, 2.0, Fixed(0, 1, 0, 0))
    np.testing.assert_allclose(found[:, 0], [0.5**0.5, 0.5**0.5, 0, 0], atol=1e-7)
    assert found.dtype == np.float32


def test_two_noisy_eigenvectors_become_the_nearest_orthonormal_ones():
    # (1, 0) and (0, 1) in the plane, noise (0, 1) on the first for σ = √2: the matrix
    # [[1, 0], [1, 1]], whose polar factor is the turn by atan(1/2).
    noise = Fixed(0, 0, 1, 0)
    found = noisy_eigenvectors(np.eye(2, dtype=np.float32), 2**0.5, noise)
    turn = np.array([[2, -1], [1, 2]]) / 5**0.5
    np.testing.assert_allclose(found, turn, atol=1e-6)


@given(st.integers(1, 5), st.integers(0, 8), st.floats(1e-6, 1000), st.integers(0, 2**32))
def test_what_leaves_is_always_orthonormal(count, more, sigma, seed):
    vectors = random_basis((count + more, count), rng(seed))
    found = noisy_eigenvectors(vectors, sigma, rng(seed + 1))
    assert found.shape == vectors.shape
    np.testing.assert_allclose(found.astype(float).T @ found, np.eye(count), atol=1e-5)


def test_little_noise_moves_an_eigenvector_by_its_own_length():
    # Of 400 dimensions, one lies along the vector and is lost when it gets length 1 again.
    vector = random_basis((400, 1), rng(99))
    moved = [
        np.linalg.norm(noisy_eigenvectors(vector, 0.01, rng(seed)) - vector) for seed in range(50)
    ]
    assert np.mean(moved) == pytest.approx(0.01, rel=0.02)


def test_scores_by_hand_stay_between_zero_and_one():
    found = noisy_relevances([0.5, 0.5, 0.9, 0.1], 0.2, Fixed(1, -1, 3, -3))
    assert found == pytest.approx([0.7, 0.3, 1, 0])
    assert all(type(score) is float for score in found)


def test_the_noise_on_scores_has_the_deviation_that_is_asked_for():
    found = noisy_relevances([0.5] * 20_000, 0.05, rng())
    assert np.std(found) == pytest.approx(0.05, rel=0.03)
    assert np.mean(found) == pytest.approx(0.5, abs=0.002)


def test_a_simulation_draws_the_same_again_and_a_real_device_never():
    def draw(*entropy, real_device):
        return noise_generator(*entropy, real_device=real_device).standard_normal(4).tolist()

    assert draw(0, 1, real_device=False) == draw(0, 1, real_device=False)
    assert draw(0, 1, real_device=False) != draw(0, 2, real_device=False)
    assert draw(0, 1, real_device=True) != draw(0, 1, real_device=True)


def sharing_noise(kind, client=0, server_round=0, seed=0, *, real_device=False):
    """Return four numbers of the noise with which a node answers this query."""
    settings = ConfigRecord({protocol.SEED: seed, protocol.SERVER_ROUND: server_round})
    content = RecordDict({protocol.CONFIG: settings})
    node = SimpleNamespace(
        message=Message(content, dst_node_id=1, message_type=protocol.query(kind)),
        config=SimpleNamespace(sharing_noise=0.3),
        index=client,
        noise_is_secret=(DeviceNode if real_device else SimulatedNode).noise_is_secret,
    )
    sigma, generator = Node.sharing_noise(node)
    assert sigma == 0.3
    return tuple(generator.standard_normal(4))


def test_simulated_noise_depends_on_all_that_tells_one_answer_from_another():
    different = [
        {"kind": "spectrum"},
        {"kind": "relevance"},
        {"kind": "spectrum", "client": 1},
        {"kind": "spectrum", "server_round": 1},
        {"kind": "spectrum", "seed": 1},
    ]
    first = [sharing_noise(**options) for options in different]
    assert len(set(first)) == len(different)
    assert [sharing_noise(**options) for options in different] == first


def test_a_node_with_data_of_its_own_does_not_use_the_servers_seed():
    drawn = [sharing_noise("spectrum", real_device=True) for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert sharing_noise("spectrum") not in drawn


def answers(sigma, **overrides):
    """Return the eigenvectors and the scores with which two real clients answer."""
    grid = LocalGrid(app, 2, run_config={**DEFAULTS, "sharing-noise": sigma, **overrides})
    config = {protocol.SEED: 0, protocol.SERVER_ROUND: 0, protocol.NUM_CLIENTS: 2}

    def ask(kind, content, **options):
        messages = [
            Message(
                RecordDict({**content, protocol.CONFIG: ConfigRecord({**config, **options})}),
                dst_node_id=grid.node_of(client),
                message_type=protocol.query(kind),
            )
            for client in range(2)
        ]
        return [reply.content for reply in grid.send_and_receive(messages)]

    spectra = [
        content.array_records[protocol.ARRAYS][protocol.EIGENVECTORS]
        for content in ask(protocol.SPECTRUM, {}, **{protocol.NUM_EIGENVECTORS: 5})
    ]
    everybody = np.concatenate([array.numpy() for array in spectra], axis=1)
    replies = ask(
        protocol.RELEVANCE,
        {protocol.ARRAYS: ArrayRecord({protocol.EIGENVECTORS: Array(everybody)})},
        **{protocol.RELEVANCE_FORMULA: "paper", protocol.NUM_COLUMNS: [5, 5]},
    )
    scores = [protocol.numbers(content, protocol.RELEVANCES) for content in replies]
    return np.array([array.numpy() for array in spectra]), np.array(scores)


def test_both_answers_of_the_app_carry_the_noise_and_the_run_can_be_repeated():
    true, true_scores = answers(0.0)
    noisy, noisy_scores = answers(0.1)
    again, again_scores = answers(0.1)
    assert (noisy == again).all()
    assert (noisy_scores == again_scores).all()
    lengths = np.linalg.norm(noisy - true, axis=1)
    assert lengths == pytest.approx(np.full((2, 5), 0.1), rel=0.2)
    assert (noisy_scores != true_scores).all()
    # A client's relevance to itself is 1 only of its true eigenvectors.
    assert np.diag(true_scores) == pytest.approx(1, abs=1e-4)


def test_a_clients_relevance_to_itself_moves_nobody():
    scores = np.array([[1, 0.9, 0.2], [0.8, 1, 0.3], [0.2, 0.1, 1]])
    low = scores - np.diag([0.9, 0.5, 1])
    found = [agglomerate(average_relevance(one), 2) for one in (scores, low)]
    assert found[0].labels.tolist() == found[1].labels.tolist() == [0, 0, 1]
    assert (found[0].merges == found[1].merges).all()


def test_a_run_with_noise_groups_as_before_and_says_so_twice(tmp_path):
    options = {"strategy": "rcc-pfl", "num_server_rounds": 1, "clients": 9}
    plain, first, second, deaf = (
        run(tmp_path / name, **options, sharing_noise=sigma)
        for name, sigma in (("plain", 0), ("first", 0.05), ("second", 0.05), ("deaf", 100))
    )
    assert without_seconds(first) == without_seconds(second)
    assert plain["runs"][0]["ari"] == first["runs"][0]["ari"] == 1
    assert deaf["runs"][0]["ari"] < 0.7
    assert plain["runs"][0]["bytes"] == first["runs"][0]["bytes"]
