"""IFCA and IFCA-PFL: of several models, each client trains the one with its lowest loss.

In these tests, model m starts at 10 m and a client of task t loses |first weight − 10 t|.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import ClusteredStrategy, ClusterMean, GraphMean, LossClustering, make_strategy
from strategies.clusterings.ifca import inhabit_all
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import MODEL, draw_model, fail, in_rounds, run, toy_app, weights, with_metrics


class Notes(LocalGrid):
    """Notes what each message holds when it is sent: clients put stored models into theirs."""

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        self.notes = [*getattr(self, "notes", []), *map(self.note, messages)]
        return super().send_and_receive(messages, timeout=timeout)

    def note(self, message):
        kind, config = message.metadata.message_type, message.content["config"]
        client = self.contexts[message.metadata.dst_node_id].node_config["partition-id"]
        return kind, config.get("server-round"), client, set(message.content), config

    def rounds_of(self, kind):
        return sorted({number for noted, number, *_ in self.notes if noted == kind})

    def trained(self, number):
        """Return what each client was sent to train: "whole", or the number of a stored model."""
        return {
            client: "whole" if "arrays" in records else config["stored-model"]
            for kind, when, client, records, config in self.notes
            if (kind, when) == ("train", number)
        }


def constant(*values):
    """Draw models that start at these values, in turn."""
    return lambda number: {**draw_model(0), "w": np.array([values[number], 0], np.float32)}


def test_by_hand_an_empty_cluster_gets_the_client_that_loses_least_there():
    # Cluster 1 is empty. Client 3 would lose least on it, but is alone in cluster 2; of the others,
    # clients 1 and 2 lose 3 each, and the first of them goes.
    losses = np.array([[1, 5, 2], [1, 3, 4], [1, 3, 9], [7, 2, 1.0]])
    labels = losses.argmin(axis=1)
    assert labels.tolist() == [0, 0, 0, 2]
    assert inhabit_all(losses, labels).tolist() == [0, 1, 0, 2]
    assert labels.tolist() == [0, 0, 0, 2]


def test_by_hand_several_empty_clusters_are_filled_in_order():
    # Cluster 1 takes client 1 (2 is the lowest), though cluster 2 would, too (0); there, of clients
    # 0 and 2, client 0 loses less.
    losses = np.array([[0, 5, 1], [0, 2, 0], [0, 3, 4.0]])
    assert inhabit_all(losses, np.array([0, 0, 0])).tolist() == [2, 1, 0]


def test_clients_that_are_not_asked_count_as_inhabitants_and_stay():
    losses = np.array([[1, 5, 9.0]])
    assert inhabit_all(losses, np.array([0]), [0, 1]).tolist() == [2]
    assert inhabit_all(losses, np.array([0]), [1, 1]).tolist() == [0]  # it is alone: no one moves
    assert inhabit_all(losses, np.array([0]), [1, 2]).tolist() == [0]  # no cluster is empty


@settings(max_examples=150)
@given(st.data(), st.integers(1, 8), st.integers(1, 5), st.lists(st.integers(0, 4), max_size=4))
def test_enforcement_empties_no_cluster_and_moves_one_client_for_each_empty_one(
    data, clients, models, elsewhere
):
    numbers = st.lists(st.integers(0, 3), min_size=models, max_size=models)  # many ties
    losses = np.array([data.draw(numbers) for _ in range(clients)], float)
    elsewhere = [cluster for cluster in elsewhere if cluster < models]
    labels = losses.argmin(axis=1)
    found = inhabit_all(losses, labels, elsewhere)
    before, after = {*labels.tolist(), *elsewhere}, {*found.tolist(), *elsewhere}
    assert before <= after
    assert (found != labels).sum() == len(after) - len(before)
    if not elsewhere and clients >= models:
        assert after == set(range(models))


def test_by_hand_two_rounds_of_two_models():
    # Client 0 prefers model 0, clients 1 and 2 prefer model 1: 0 + 1, and 10 + (2 + 3)/2 = 12.5.
    # Then client 1 loses 9 on model 0 and 2.5 on model 1, and all stay: 2, and 15.
    for strategy in (
        make_strategy("ifca-pfl", 2, draw_model),
        make_strategy("ifca", 2, draw_model),
    ):
        assert weights(run(strategy, LocalGrid(toy_app([0, 1, 1]), 3), rounds=2)) == [2, 15]
        assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 1}


def test_models_are_drawn_again_until_every_cluster_is_inhabited():
    # Everybody prefers the first of (100, 200) and the second of (90, 80): no good; of (0, 10),
    # clients of task 0 prefer one and those of task 1 the other.
    drawn = []

    def draw(number):
        drawn.append(number)
        return constant(100, 200, 90, 80, 0, 10)(number)

    result = run(make_strategy("ifca-pfl", 2, draw), LocalGrid(toy_app([1, 0, 1]), 3))
    assert drawn == [0, 1, 2, 3, 4, 5]
    assert weights(result) == [0 + 2, 10 + (1 + 3) / 2]


def test_without_enforcement_the_first_draw_stays_and_an_empty_cluster_retains_its_model():
    strategy = make_strategy("ifca", 2, constant(100, 200))
    result = run(strategy, LocalGrid(toy_app([1, 0, 1]), 3), rounds=2)
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 0}
    assert weights(result) == [100 + 2 * (1 + 2 + 3) / 3, 200]


def test_models_that_start_as_copies_are_noticed_not_trained(monkeypatch):
    # The fault: all copies lose equally, every client takes the first, and the others never train.
    monkeypatch.setattr("strategies.clusterings.ifca.MAX_DRAWS", 5)
    grid = LocalGrid(toy_app([0, 1, 1]), 3)
    with pytest.raises(RuntimeError, match=r"in 5 draws of 2 initial models .* no client pref"):
        run(make_strategy("ifca-pfl", 2, lambda number: draw_model(0)), grid)
    assert sum(m.metadata.message_type == "query.losses" for m in grid.sent) == 5 * 3


def test_in_training_an_emptied_cluster_gets_a_client_back_unless_it_is_vanilla_ifca():
    # Models 0 and 9; steps of 8 take model 1 to 17. Then client 1 (target 10) loses 10 on model 0
    # and 7 on model 1, but with model 0 at 8 it loses 2: both prefer model 0. Client 0 loses 17
    # on model 1, client 1 only 7, so client 1 is sent back there.
    app = toy_app([0, 1], step=lambda client, task: (8, 0))
    # Both tests are of these choices, and what Procedure 2 enforces holds there, too.
    found = {}
    for name in ("ifca-pfl", "ifca"):
        strategy = make_strategy(name, 2, constant(0, 9))
        result = run(strategy, LocalGrid(app, 2), rounds=2)
        assert strategy.reports[0].clusters == strategy.clusters.of_client
        found[name] = (strategy.clusters.of_client, weights(result))
    assert found["ifca-pfl"] == ({0: 0, 1: 1}, [16, 25])
    assert found["ifca"] == ({0: 0, 1: 0}, [16, 17])


def test_a_client_is_sent_all_models_once_and_then_only_which_of_them_to_train():
    grid = Notes(toy_app([0, 1, 1], {("query.losses", 2): in_rounds(2)}), 3)
    strategy = make_strategy("ifca-pfl", 2, draw_model)
    result = run(strategy, grid, rounds=3)
    # Client 2 could not say its losses in round 2: it stays in its cluster and gets a whole model.
    assert grid.trained(1) == {0: 0, 1: 1, 2: 1}
    assert grid.trained(2) == {0: 0, 1: 1, 2: "whole"}
    assert grid.trained(3) == {0: 0, 1: 1, 2: 1}
    assert weights(result) == [3, 10 + 3 * 2.5]


def test_models_that_are_compared_for_a_test_stay_at_no_client():
    grid = LocalGrid(toy_app([0, 1, 1]), 3)
    run(make_strategy("ifca-pfl", 2, draw_model), grid, rounds=2)
    assert not any("models" in context.state for context in grid.contexts.values())


def test_models_stay_at_no_client_that_is_not_drawn():
    grid, holders = LocalGrid(toy_app([0, 1, 1, 0]), 4), []
    strategy = make_strategy("ifca", 2, draw_model, fraction_train=0.25, evaluate_every=2)
    strategy.on_round = lambda report: holders.append(
        sum("models" in context.state for context in grid.contexts.values())
    )
    run(strategy, grid, rounds=2)
    assert holders == [0, 0]


def test_participants_are_asked_in_each_round_and_all_clients_before_each_test():
    grid = Notes(toy_app([0, 1, 1, 0]), 4)
    strategy = make_strategy("ifca", 2, draw_model, fraction_train=0.5, evaluate_every=2)
    run(strategy, grid, rounds=5)
    asked = {
        number: [c for kind, when, c, *_ in grid.notes if (kind, when) == ("query.losses", number)]
        for number in range(6)
    }
    assert [len(clients) for clients in asked.values()] == [4, 0, 2 + 4, 2, 2 + 4, 2 + 4]
    for number in (2, 3, 4, 5):
        assert set(asked[number][:2]) == set(grid.trained(number))
        assert "whole" not in grid.trained(number).values()
    model = sum(len(array.data) for array in MODEL.values())
    # What tests ask counts as testing: three times 4 clients, of 2 models and then of one.
    assert strategy.training.evaluate_traffic.down == 3 * 4 * 3 * model


def test_clients_are_no_longer_asked_once_no_client_has_moved_for_some_rounds():
    grid = Notes(toy_app([0, 1], step=lambda client, task: (0.1, 0)), 2)
    result = run(make_strategy("ifca-pfl", 2, draw_model, stop_after=2), grid, rounds=5)
    assert grid.rounds_of("query.losses") == [0, 1, 2, 3]
    assert grid.trained(3) == {0: 0, 1: 1}
    assert grid.trained(4) == grid.trained(5) == {0: "whole", 1: "whole"}
    assert weights(result) == pytest.approx([0.5, 10.5])


def test_a_move_starts_the_count_of_quiet_rounds_again():
    # One client, target 20. Model 1 goes 25, 31, 37, 43: it is further away than model 0 in round
    # 4, the client moves, and rounds 5, 6 and 7 are quiet: in round 8 it is not asked.
    grid = Notes(toy_app([2], step=lambda client, task: (6, 0)), 1)
    strategy = make_strategy("ifca", 2, constant(0, 25), stop_after=3, evaluate_every=9)
    run(strategy, grid, rounds=9)
    assert [report.clusters[0] for report in strategy.reports] == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert grid.rounds_of("query.losses") == [0, 2, 3, 4, 5, 6, 7]
    # Nobody lived in cluster 0 until round 4, and its model was yet at the client.
    assert grid.trained(4) == {0: 0}


def test_a_client_that_failed_in_training_is_not_taken_to_have_its_models_still():
    # Each client has a model; that of client 1, which fails in round 2, stays as it was.
    grid = Notes(toy_app([0, 1], {("train", 1): in_rounds(2)}, step=lambda c, t: (0.1, 0)), 2)
    clustering = LossClustering(2, draw_model, enforce=False, stop_after=1)
    result = run(ClusteredStrategy(clustering, GraphMean()), grid, rounds=3)
    assert grid.trained(2) == {0: 0, 1: 1}
    assert grid.trained(3) == {0: "whole", 1: "whole"}
    assert weights(result) == pytest.approx([0.3, 10.2])


@pytest.mark.parametrize(
    "losses", [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], ids=["others'", "no client's"]
)
@pytest.mark.parametrize("combining", [ClusterMean, GraphMean])
def test_by_hand_a_client_that_moves_trains_its_new_clusters_model(combining, losses):
    # Client 1 adds 2 to the model at 9, twice. Then it prefers the one at 2, to which client 0 has
    # added 1 twice: (10·1 + 20·2)/30 is 5/3; or that at 5, which no client has trained.
    app = toy_app([0, 1], {("query.losses", 1): in_rounds(3, corrupt=with_metrics(losses=losses))})
    clustering = LossClustering(3, constant(0, 9, 5), enforce=False)
    strategy = ClusteredStrategy(clustering, combining(weighted=True))
    result = run(strategy, LocalGrid(app, 2), rounds=3)
    assert [report.clusters[1] for report in strategy.reports] == [1, 1, losses.index(0)]
    held = [weights(result)[strategy.model_of_client[client]] for client in range(2)]
    assert held == pytest.approx([3, 7] if losses[0] else [2 + 5 / 3] * 2)


BAD_LOSSES = {
    "its answer does not hold 2 losses": with_metrics(losses=[1.0]),
    "none of its losses is a finite number": with_metrics(losses=[float("-inf"), float("nan")]),
    "the disk is full": fail,
}


@pytest.mark.parametrize(("word", "corrupt"), BAD_LOSSES.items(), ids=BAD_LOSSES.keys())
def test_a_client_with_invalid_losses_is_named(word, corrupt, caplog):
    strategy = make_strategy("ifca", 2, draw_model)
    run(strategy, LocalGrid(toy_app([0, 1, 1], {("query.losses", 1): corrupt}), 3))
    assert strategy.failures == {1: word}
    assert strategy.clusters.of_client == {0: 0, 2: 1}
    later = make_strategy("ifca", 2, draw_model)
    app = toy_app([0, 1, 1], {("query.losses", 1): in_rounds(2, corrupt=corrupt)})
    run(later, LocalGrid(app, 3), rounds=2)
    assert f"client 1 failed at losses in round 2: {word}" in caplog.text
    assert later.clusters.of_client == {0: 0, 1: 1, 2: 1}
    assert not later.failures


@pytest.mark.parametrize("name", ["ifca", "ifca-pfl"])
def test_by_hand_warm_models_are_the_means_of_groups_of_first_updates(name):
    # All train the model at 0: clients 0 and 2 to (4, 0) and (6, 0), client 1 to (0, 3). The plain
    # means, 5 and (0, 3), then compete: |5 − 10·0| > 0 for task 0, so all prefer the second,
    # and IFCA-PFL sends back the client that loses least on the first: all 5, so client 0. In round
    # 2, IFCA's second model moves by (4 + 0 + 6)/3; IFCA-PFL's by (0 + 6)/2, and the first by 4.
    steps = {0: (4, 0), 1: (0, 3), 2: (6, 0)}
    grid = Notes(toy_app(step=lambda client, task: steps[client]), 3)
    strategy = make_strategy(name, 2, draw_model, initial_models="warm", evaluate_every=2)
    result = run(strategy, grid, rounds=2)
    assert strategy.reports[0].clusters == {0: 0, 1: 1, 2: 0}
    assert strategy.clusters.of_client == {0: 1 if name == "ifca" else 0, 1: 1, 2: 1}
    assert weights(result) == pytest.approx([5, 10 / 3] if name == "ifca" else [9, 3])
    assert grid.rounds_of("query.losses") == [2]


def test_a_newcomer_before_warm_models_are_compared_has_a_place():
    grid = Visits(toy_app(), 4, {3: range(2)})
    strategy = make_strategy("ifca", 2, draw_model, initial_models="warm")
    run(strategy, grid, rounds=3)
    assert sorted(strategy.clusters.of_client) == [0, 1, 2, 3]


def test_more_clusters_than_clients_only_where_they_may_be_empty():
    with pytest.raises(ValueError, match=r"num-clusters is 3, but 2 clients .* the strategy ifca"):
        run(make_strategy("ifca-pfl", 3, draw_model), LocalGrid(toy_app([0, 1]), 2))
    result = run(make_strategy("ifca", 3, draw_model), LocalGrid(toy_app([0, 1]), 2))
    assert weights(result) == [1, 12, 20]
