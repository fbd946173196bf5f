"""How much rounding the server forgives in what clients answer before they are clustered."""

from dataclasses import replace

import numpy as np
import pytest

from fl_core.wire import protocol
from strategies import RccPfl, SpectralClustering
from tests.local_grid import LocalGrid, Visits
from tests.same_images import conversation
from tests.toy_app import TASKS, fail, run, toy_app, with_arrays, with_metrics


@pytest.mark.parametrize(
    ("query", "spoil", "reason"),
    [
        ("relevance", with_metrics(relevances=[1 + 1e-7] * 7), None),
        ("relevance", with_metrics(relevances=[1 + 1e-5] * 7), "not all numbers in [0, 1]"),
        ("relevance", with_metrics(relevances=[-1e-7] * 7), "not all numbers in [0, 1]"),
        ("spectrum", with_arrays(lambda a: a["eigenvectors"].__imul__(1 + 1e-4)), None),
        ("spectrum", with_arrays(lambda a: a["eigenvectors"].__imul__(1 + 2e-3)), "orthonormal"),
    ],
)
def test_rounding_is_forgiven_and_nothing_else(query, spoil, reason, caplog):
    strategy = RccPfl(3, num_eigenvectors=3)
    run(strategy, LocalGrid(toy_app(TASKS, {(f"query.{query}", 1): spoil}), len(TASKS)))
    assert list(strategy.failures) == ([1] if reason else [])
    assert (reason or "") in caplog.text


def test_newcomers_are_compared_with_those_that_answered_to_the_end():
    strategy = RccPfl(3, num_eigenvectors=3)
    grid = Visits(toy_app(TASKS, {("query.relevance", 4): fail}), len(TASKS), {6: [0]})
    run(strategy, grid)
    assert strategy.clusters.of_client[6] == strategy.clusters.of_client[3]
    assert list(strategy.failures) == [4]


def test_class_energy_finds_and_places_those_who_give_the_same_images_other_names():
    spoken = conversation(8)
    late = {client: spoken.nodes.pop(client) for client in (6, 7)}
    clustering = SpectralClustering(2, num_eigenvectors=2, relevance="class-energy")
    found = clustering.find(spoken)
    assert found.of_client == {client: client % 2 for client in range(6)}
    recalled = SpectralClustering(2, num_eigenvectors=2, relevance="class-energy")
    recalled.recall(clustering.memory())
    spoken.nodes.update(late)
    placed = recalled.place([6, 7], found, spoken)
    assert placed.of_client == {client: client % 2 for client in range(8)}


def test_label_weight_reaches_the_clients():
    clustering = SpectralClustering(
        2, num_eigenvectors=2, relevance="class-energy", label_weight=0.0
    )
    without = clustering.find(conversation(6)).comparison.similarity
    with_labels = replace(clustering, label_weight=1.0).find(conversation(6)).comparison.similarity
    assert not np.allclose(without, with_labels)


def test_a_class_for_each_eigenvector(caplog):
    def forgetful(replies):
        for reply in replies:
            metrics = reply.content.metric_records[protocol.METRICS]
            if reply.metadata.src_node_id == LocalGrid.node_of(1):
                metrics[protocol.COLUMN_CLASSES] = metrics[protocol.COLUMN_CLASSES][:-1]
        return replies

    spoken = conversation(4, forgetful)
    SpectralClustering(2, num_eigenvectors=2, relevance="class-energy").find(spoken)
    assert list(spoken.roster.failures) == [1]
    assert "it names 5 classes for 6 eigenvectors" in caplog.text


@pytest.mark.parametrize(
    ("relevance", "told"), [("paper", None), ("principal-angle", "principal-angle")]
)
def test_who_compares_angles_is_told_before_it_computes_a_gram_matrix(relevance, told):
    grid = LocalGrid(toy_app(TASKS), len(TASKS))
    run(RccPfl(3, num_eigenvectors=3, relevance=relevance), grid)
    said = {
        m.content.config_records[protocol.CONFIG].get(protocol.RELEVANCE_FORMULA)
        for m in grid.sent
        if m.metadata.message_type == protocol.query(protocol.SPECTRUM)
    }
    assert said == {told}
