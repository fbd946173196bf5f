"""Relevance worked out at the server: what clients would have answered, without asking them."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array
from sklearn.metrics import adjusted_rand_score

from clients.signatures.spectrum import leading_spectrum, relevance
from fl_core.relevance import FORMULAS, Spectra, relevances, smallest_angles
from strategies import SpectralClustering
from strategies.clusterings import at_server as landmarks
from tests.local_grid import LocalGrid
from tests.same_images import conversation


def federation(seed, clients=9, dimension=12):
    """Return whole spectra of clients of three kinds, some with fewer images than dimensions."""
    rng = np.random.default_rng(seed)
    found = []
    for client in range(clients):
        scales = np.roll(np.linspace(3, 0.3, dimension), 4 * (client % 3))
        rows = rng.standard_normal((int(rng.integers(5, 60)), dimension)) * scales
        found.append(leading_spectrum(rows.astype(np.float32), dimension))
    return found


def spectra_of(clients):
    return Spectra.of([c.eigenvectors for c in clients], [c.eigenvalues for c in clients])


def answers_of(formula, clients, k):
    """Return what the clients themselves would answer."""
    shared = [c.eigenvectors[:, :k] for c in clients]
    return np.array([relevance(formula, c.whole, shared) for c in clients])


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("k", [1, 3, 7])
def test_whole_spectra_say_what_clients_would(formula, k):
    for seed in range(3):
        clients = federation(seed)
        every = spectra_of(clients)
        found = relevances(formula, every, every, k)
        np.testing.assert_allclose(found, answers_of(formula, clients, k), atol=1e-3)


def test_two_eigenpairs_by_hand():
    # G_1 = diag(4, 1), G_2 = diag(1, 4), known by both eigenpairs each.
    axes = np.eye(2, dtype=np.float32)
    both = Spectra.of([axes, axes[:, ::-1]], [np.array([4.0, 1.0])] * 2)
    # λ̂ = (1, 4) against λ = (4, 1): the geometric mean of 1/4 and 1/4.
    np.testing.assert_allclose(relevances("paper", both, both, 2), [[1, 0.25], [0.25, 1]])
    # One eigenvector each: they stand at right angles.
    right = np.pi / 2
    np.testing.assert_allclose(smallest_angles(both, both, 1), [[0, right], [right, 0]], atol=1e-6)
    # 2's first eigenvector captures 1 of the 4 that one direction can: it misses 3/4, and is the
    # only other client.
    np.testing.assert_allclose(relevances("missed-energy", both, both, 1), [[1, 0.5], [0.5, 1]])


class TestClustering:
    """The clustering that asks once."""

    def clustering(self, formula="paper", **options):
        return SpectralClustering(
            1, num_eigenvectors=2, relevance=formula, relevance_at="server", **options
        )

    @pytest.mark.parametrize("formula", FORMULAS)
    def test_nothing_is_sent_to_clients_and_less_by_them(self, formula):
        spoken, other = conversation(6), conversation(6)
        found = self.clustering(formula).find(spoken)
        asked = replace(self.clustering(formula), relevance_at="clients").find(other)
        np.testing.assert_allclose(
            found.comparison.similarity, asked.comparison.similarity, atol=1e-4
        )
        # One question of a few words, against one with all eigenvectors.
        assert spoken.training.pre_round_traffic.down < other.training.pre_round_traffic.down
        assert len(spoken.registry.failures) == 0

    def test_newcomers_are_placed_without_anybodys_eigenvectors(self):
        spoken = conversation(8)
        late = {client: spoken.nodes.pop(client) for client in (6, 7)}
        clustering = self.clustering()
        found = clustering.find(spoken)
        before = spoken.training.pre_round_traffic.down
        recalled = self.clustering()
        recalled.recall(clustering.memory())
        spoken.nodes.update(late)
        placed = recalled.place([6, 7], found, spoken)
        assert set(placed.of_client) == set(range(8))
        assert spoken.training.pre_round_traffic.down - before < 1000

    @pytest.mark.parametrize("formula", ["paper", "missed-energy"])
    def test_a_client_with_huge_eigenvalues_is_compared_by_its_directions(self, formula):
        def scaled(replies):
            for reply in replies:
                record = reply.content.array_records["arrays"]
                if reply.metadata.src_node_id == LocalGrid.node_of(1):
                    huge = record["eigenvalues"].numpy().astype(np.float64) * 1e80
                    record["eigenvalues"] = Array(huge)
            return replies

        spoken, usual = conversation(8, scaled), conversation(8)
        found, expected = (self.clustering(formula).find(one).comparison for one in (spoken, usual))
        np.testing.assert_allclose(found.similarity, expected.similarity, atol=1e-4)
        assert not spoken.registry.failures

    @pytest.mark.parametrize(
        ("corrupt", "reason"),
        [
            (lambda array: array[:-1], "eigenvalues are float32 of shape (3,), not"),
            (lambda array: array[::-1].copy(), "not finite, positive and descending"),
            (lambda array: -array[::-1].copy(), "not finite, positive and descending"),
            (lambda array: array * np.float32(np.nan), "not finite, positive and descending"),
            (lambda array: array * np.float64([1, 1, 1, 1e-300]), "not finite, positive and desc"),
        ],
    )
    def test_eigenvalues_that_are_none_are_refused(self, corrupt, reason, caplog):
        def order(replies):
            for reply in replies:
                record = reply.content.array_records["arrays"]
                if reply.metadata.src_node_id == LocalGrid.node_of(1):
                    record["eigenvalues"] = Array(corrupt(record["eigenvalues"].numpy()))
            return replies

        spoken = conversation(4, order)
        self.clustering().find(spoken)
        assert list(spoken.registry.failures) == [1]
        assert reason in caplog.text


def test_landmarks_are_grouped_and_the_others_join_them(monkeypatch, caplog):
    clients = federation(3, clients=60, dimension=12)
    spectra = Spectra.of([c.eigenvectors for c in clients], [c.eigenvalues for c in clients])

    def labels_and_compared():
        clustering = SpectralClustering(3, 3, relevance="missed-energy", relevance_at="server")
        found = clustering.group_at_server(spectra, np.random.default_rng(0))
        return found.labels.tolist(), len(found.compared), found.similarity.shape

    monkeypatch.setattr(landmarks, "MOST_EXACT", 20)
    monkeypatch.setattr(landmarks, "LANDMARKS", 20)
    with caplog.at_level(logging.INFO):
        found, *compared = labels_and_compared()
    assert "60 clients are more than are compared with each other (20)" in caplog.text
    assert compared == [20, (20, 20)]
    assert adjusted_rand_score(found, np.arange(60) % 3) == 1
    # With room for all, it is the exact clustering.
    monkeypatch.setattr(landmarks, "MOST_EXACT", 60)
    assert labels_and_compared() == (found, 60, (60, 60))
