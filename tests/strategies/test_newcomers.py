"""Clients that appear, vanish and come back between rounds."""

import pytest

from strategies import make_strategy
from strategies.rounds.round_state import Clusters
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import (
    ENCODER,
    PATHS,
    STRATEGIES,
    TASKS,
    draw_model,
    every_path,
    fail,
    groups,
    run,
    small_step,
    toy_app,
    weights,
    with_metrics,
)

pytestmark = pytest.mark.usefixtures("plane_without_umap")


@pytest.mark.parametrize(
    ("name", "number"), [("rcc-pfl", 1), *((name, 2) for name in (*PATHS, "fedsem", "cfl"))]
)
def test_a_newcomer_is_placed_trains_and_is_tested(name, number):
    grid = Visits(toy_app(TASKS), 7, {6: range(number)})
    strategy = STRATEGIES[name]()
    run(strategy, grid, rounds=3)
    assert grid.round == 3
    assert grid.rounds_of(6) == grid.rounds_of(6, "evaluate") == list(range(number, 4))
    for report in strategy.reports:
        present = set(range(7 if report.round >= number else 6))
        assert set(report.clusters) == set(report.tested) == present
    assert strategy.reports[-1].tested[6] > 0
    assert not strategy.failures


TOGETHER = [[0, 2, 5], [1, 4], [3, 6]]


@pytest.mark.parametrize(
    "name", ["rcc-pfl", "pacfl", "flt", "flt-graph", "pca-km-hc", "fedhc", "ifca-pfl", "optimum"]
)
def test_newcomers_land_where_their_like_are(name):
    # Clients 2 and 6 come in round 2; with the others there are clusters {0, 5}, {1, 4}, {3}.
    strategy = STRATEGIES[name]()
    app = toy_app(TASKS, step=small_step)
    run(strategy, Visits(app, 7, {2: {0, 1}, 6: {0, 1}}), rounds=2)
    assert groups(strategy.reports[0].clusters) == [[0, 5], [1, 4], [3]]
    assert groups(strategy.reports[1].clusters) == TOGETHER


def test_by_hand_a_newcomer_starts_from_its_clusters_model():
    # Cluster {0} is at 1 after round 1, and client 2 starts there: (1 + 1 + 1 + 3)/2 = 3.
    strategy = make_strategy("optimum", {0: 0, 1: 1, 2: 0})
    assert weights(run(strategy, Visits(toy_app(), 3, {2: {0, 1}}), rounds=2)) == [3, 4]


def test_by_hand_a_newcomer_that_is_the_first_of_its_cluster_starts_from_the_initial_model():
    strategy = make_strategy("optimum", {0: 0, 1: 0, 2: 1})
    assert weights(run(strategy, Visits(toy_app(), 3, {2: {0, 1}}), rounds=2)) == [3, 3]
    strategy = make_strategy("local")
    assert weights(run(strategy, Visits(toy_app(), 3, {1: {0, 1}}), rounds=2)) == [2, 6, 2]
    assert strategy.clusters.of_client == {0: 0, 1: 2, 2: 1}


def test_by_hand_in_a_graph_a_newcomer_starts_from_its_clusters_mean_and_is_linked_with_it():
    # {0, 1} (10 and 20 images) are at 5/3 after round 1; client 2, of their task, starts there.
    # Round 2: 5/3 + (1·10 + 2·20 + 3·30)/60 = 5/3 + 7/3 = 4 for all three; client 3 is alone.
    strategy = make_strategy("flt-graph", ENCODER, 2)
    result = run(strategy, Visits(toy_app([0, 0, 0, 1]), 4, {2: {0, 1}}), rounds=2)
    assert weights(result) == pytest.approx([4, 4, 4, 8])
    assert strategy.clusters.neighbours == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {0, 1, 2}, 3: {3}}


@every_path
def test_a_node_that_vanishes_and_returns_goes_on_where_it_was(make, caplog):
    grid = Visits(toy_app(TASKS), 7, {4: {2}})
    strategy = make()
    run(strategy, grid, rounds=3)
    assert "client 4 could not train in round 2: it is not connected" in caplog.text
    assert "client 4 could not be tested in round 2: no answer in time" in caplog.text
    assert "already" not in caplog.text  # its index is not taken
    assert grid.rounds_of(4) == grid.rounds_of(4, "evaluate") == [1, 3]
    assert [4 in report.tested for report in strategy.reports] == [True, False, True]
    assert set(strategy.clusters.of_client) == set(range(7))
    assert not strategy.failures


QUERIES = [
    ("rcc-pfl", "spectrum"),
    ("rcc-pfl", "relevance"),
    ("pacfl", "spectrum"),
    ("flt", "signature"),
    ("ifca-pfl", "losses"),
]


@pytest.mark.parametrize(("name", "query"), QUERIES)
def test_a_newcomer_that_fails_its_query_is_named_and_left_out(name, query, caplog):
    grid = Visits(toy_app(TASKS, {(f"query.{query}", 6): fail}), 7, {6: {0, 1}})
    strategy = STRATEGIES[name]()
    run(strategy, grid, rounds=3)
    assert strategy.failures == {6: "the disk is full"}
    assert f"client 6 is left out, its {query} failed: the disk is full" in caplog.text
    assert set(strategy.clusters.of_client) == set(strategy.reports[-1].tested) == set(range(6))
    assert not grid.rounds_of(6)
    assert len(strategy.reports) == 3


def test_an_index_that_another_node_has_is_refused(caplog):
    app = toy_app(TASKS, {("query.describe", 6): with_metrics(client_index=0)})
    grid = Visits(app, 7, {6: {0, 1}})
    strategy = make_strategy("single")
    run(strategy, grid, rounds=2)
    node = grid.node_of(6)
    assert f"node {node} is left out, it says that it is client 0, which takes" in caplog.text
    assert grid.rounds_of(0) == [1, 2]
    assert not grid.rounds_of(6)


def test_two_newcomers_to_ifca_are_asked_about_the_models_as_they_were_last():
    # Models are at 0 and 10 in round 1, and the newcomers' targets are 0 and 10.
    strategy = make_strategy("ifca-pfl", 2, draw_model)
    run(strategy, Visits(toy_app([0, 1, 1, 0]), 4, {2: {0, 1}, 3: {0, 1}}), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 1, 3: 0}


@pytest.mark.parametrize(
    ("name", "options"), [("rcc-pfl", {}), ("mt-hfl", {"common_layers": ["w"]})]
)
def test_newcomers_become_known_to_later_newcomers(name, options):
    # Clients 0 and 1 are there; clients 2 and then 3 come one after the other.
    strategy = make_strategy(name, 2, num_eigenvectors=3, **options)
    grid = Visits(toy_app([0, 1, 0, 1]), 4, {2: {0, 1}, 3: {0, 1, 2}})
    run(strategy, grid, rounds=3)
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 1}
    asked = [m for m in grid.sent if m.metadata.message_type == "query.relevance"]
    assert [len(m.content["config"]["num-columns"]) for m in asked] == [2, 2, 2, 3]


class Slow(LocalGrid):
    """A grid in which clients are too slow in some rounds; it notes how long one waits for whom."""

    def __init__(self, app, num_clients, slow):
        super().__init__(app, num_clients)
        self.slow = {(self.node_of(client), group) for client, group in slow}
        self.waited = []

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.waited += [(m.metadata.message_type, timeout, m.metadata.ttl) for m in messages]
        late = {(m.metadata.dst_node_id, m.metadata.group_id) for m in messages} & self.slow
        replies = super().send_and_receive(messages, timeout=timeout)
        gone = {node for node, _ in late}
        return [reply for reply in replies if reply.metadata.src_node_id not in gone]


@pytest.mark.parametrize("name", ["rcc-pfl", "flt"])
def test_a_client_that_was_too_slow_is_asked_again_and_placed(name, caplog):
    grid = Slow(toy_app(TASKS), 7, {(6, "pre-round"), (6, "1")})
    strategy = STRATEGIES[name]()
    run(strategy, grid, rounds=3)
    assert "is left out, it could not take part: no answer in time" in caplog.text
    assert [6 in report.tested for report in strategy.reports] == [False, True, True]
    assert groups(strategy.clusters.of_client) == TOGETHER


def test_a_client_that_is_always_too_slow_is_not_waited_for_in_every_round():
    slow = {(6, group) for group in ("pre-round", *map(str, range(1, 9)))}
    grid = Slow(toy_app(TASKS), 7, slow)
    run(make_strategy("rcc-pfl", 3, num_eigenvectors=3), grid, rounds=6)
    asked = [m for m in grid.sent if m.metadata.dst_node_id == grid.node_of(6)]
    assert [m.metadata.group_id for m in asked] == ["pre-round", "1", "2"]


def test_a_client_that_comes_back_to_another_cluster_is_no_neighbour_of_those_that_it_left():
    """Or these would go on averaging its model, and it not theirs."""
    near = {0: frozenset({0, 1}), 1: frozenset({0, 1}), 2: frozenset({2})}
    found = Clusters({0: 0, 1: 0, 2: 1}, neighbours=near).with_clients({1: 1, 3: 1})
    assert found.neighbours == {0: {0}, 1: {1, 2, 3}, 2: {1, 2, 3}, 3: {1, 2, 3}}


@pytest.mark.parametrize("name", ["rcc-pfl", "fedsem", "optimum"])
def test_a_client_may_come_back_as_another_node(name, caplog):
    # Node 6 is client 0's new one: it comes when the old one has gone.
    app = toy_app(TASKS, {("query.describe", 6): with_metrics(client_index=0)})
    grid = Visits(app, 7, {0: {2, 3}, 6: {0, 1}})
    strategy = STRATEGIES[name]()
    run(strategy, grid, rounds=3)
    assert grid.rounds_of(0) == [1]
    assert grid.rounds_of(6) == [2, 3]
    assert set(strategy.reports[-1].tested) == set(range(6))
    assert "left out" not in caplog.text
