"""IFCA's means against a bad start: a warm-up by FedAvg, and restarts.

Model m starts at 10 m and a client of task t loses |first weight − 10 t|, as in
strategies/test_ifca.py.
"""

import numpy as np
import pytest

from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from fl_core.wire import protocol
from strategies import ClusteredStrategy, ClusterMean, GraphMean, Ifca, IfcaPfl, LossClustering
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import MODEL, draw_model, in_rounds, run, toy_app, weights

TASKS = [0, 1, 1]
TWO_LAYERS = protocol.to_record({"body": np.zeros(2, np.float32), "w": np.zeros(2, np.float32)})
GOOD, BAD = (0, 10), (100, 200)


def ones(client, task):
    return (1, 0)


def starts(*values):
    """Draw models whose first weights are these, in turn."""
    numbers = [value for pair in values for value in pair]
    return lambda number: {**draw_model(0), "w": np.array([numbers[number], 0], np.float32)}


def asked(grid, client=0):
    """Return the rounds in which a client was asked for its losses."""
    return [
        int(m.content["config"]["server-round"])
        for m in grid.sent
        if (m.metadata.dst_node_id, m.metadata.message_type)
        == (grid.node_of(client), "query.losses")
    ]


@pytest.mark.parametrize("make", [Ifca, IfcaPfl])
def test_by_hand_a_warm_up_trains_all_layers_but_the_last_of_every_cluster(make):
    # Round 1: all train the model at 0, by 1, 2 and 3: body and w are 2. Then w is drawn anew: 0
    # for client 0, 10 for the others. Round 2: 2 + 1 and 0 + 1; 2 + (2 + 3)/2 and 10 + 2.5.
    def draw(number):
        return {"body": np.full(2, 99, np.float32), "w": np.array([10 * number, 0], np.float32)}

    grid = LocalGrid(toy_app(TASKS), 3)
    strategy = make(2, draw, warm_up_rounds=1)
    result = run(strategy, grid, rounds=2, initial=TWO_LAYERS)
    models = [protocol.to_arrays(m) for m in protocol.unpack_models(result.arrays)]
    assert [(float(m["body"][0]), float(m["w"][0])) for m in models] == [(3, 1), (4.5, 12.5)]
    assert [report.clusters for report in strategy.reports] == [
        {0: 0, 1: 0, 2: 0},
        {0: 0, 1: 1, 2: 1},
    ]
    assert asked(grid) == [2]


def test_bytes_of_a_warm_up_are_one_model_down():
    strategy = Ifca(2, draw_model, warm_up_rounds=2)
    run(strategy, LocalGrid(toy_app(TASKS), 3), rounds=3)
    model = sum(len(array.data) for array in MODEL.values())
    assert strategy.training.train_traffic.down == 3 * (2 * 1 + 2) * model


def test_by_hand_warm_models_are_grouped_by_the_last_updates_of_the_warm_up():
    # The mean step of (4, 0), (0, 3) and (6, 0) is (10/3, 1); then the groups move by 5 and by 0.
    steps = {0: (4, 0), 1: (0, 3), 2: (6, 0)}
    grid = LocalGrid(toy_app(step=lambda client, task: steps[client]), 3)
    strategy = IfcaPfl(2, draw_model, initial_models="warm", warm_up_rounds=2)
    result = run(strategy, grid, rounds=2)
    assert [report.clusters for report in strategy.reports] == [
        {0: 0, 1: 0, 2: 0},
        {0: 0, 1: 1, 2: 0},
    ]
    assert weights(result) == pytest.approx([10 / 3 + 5, 10 / 3])
    assert asked(grid) == []


def test_a_warm_start_with_a_cluster_in_which_nobody_is_goes_on_with_a_model_for_each_client():
    found = []
    for combining in (ClusterMean(True), GraphMean(True)):
        clustering = LossClustering(4, draw_model, False, initial_models="warm")
        strategy = ClusteredStrategy(clustering, combining)
        result = run(strategy, LocalGrid(toy_app(TASKS), 3), rounds=4)
        models = [weights(result)[strategy.model_of_client[client]] for client in range(3)]
        found.append((strategy.clusters.of_client, models))
    assert found[0] == found[1]


def test_one_round_of_warm_up_is_what_warm_models_have_anyway():
    results = [
        run(
            Ifca(2, draw_model, initial_models="warm", warm_up_rounds=rounds),
            LocalGrid(toy_app(TASKS), 3),
            rounds=3,
        )
        for rounds in (0, 1)
    ]
    assert weights(results[0]) == weights(results[1])


@pytest.mark.parametrize("order", [(BAD, GOOD), (GOOD, BAD)])
@pytest.mark.parametrize("combining", [ClusterMean, GraphMean])
def test_by_hand_the_start_after_which_clients_lose_least_goes_on(order, combining):
    # After one round of steps of 1, clients lose 1 on (1, 11), and 101, 91, 91 on 101. In round 3
    # the first goes on, whichever came first: at 2 and 12.
    grid = LocalGrid(toy_app(TASKS, step=ones), 3)
    clustering = LossClustering(2, starts(*order), False, restarts=1)
    strategy = ClusteredStrategy(clustering, combining())
    result = run(strategy, grid, rounds=3)
    found = [weights(result)[strategy.model_of_client[client]] for client in range(3)]
    assert found == [2, 12, 12]
    together = {0: 0, 1: 0, 2: 0}  # all prefer 100 to 200
    apart = {0: 0, 1: 1, 2: 1}
    expected = [apart if start == GOOD else together for start in order]
    assert [report.clusters for report in strategy.reports] == [*expected, apart]
    # Round 2: how good is the first start, and which model of the second one; then as ever.
    assert asked(grid) == [0, 2, 2, 3]


def test_bytes_of_restarts_count_as_trainings():
    strategy = Ifca(2, starts(GOOD, BAD), restarts=1)
    run(strategy, LocalGrid(toy_app(TASKS, step=ones), 3), rounds=4)
    model = sum(len(array.data) for array in MODEL.values())
    # 2 drawn; 2 compared and 2 drawn; 2 compared and 1 of the first start; 2 as ever.
    assert strategy.training.train_traffic.down == 3 * (2 + 4 + 3 + 2) * model


def test_of_equal_starts_the_first_goes_on():
    # Clients lose 1 on the second model of both; nobody chooses the first, and nobody counts it.
    strategy = Ifca(2, starts((20, 10), (30, 10)), restarts=1)
    result = run(strategy, LocalGrid(toy_app([1, 1], step=ones), 2), rounds=3)
    assert weights(result) == [20, 12]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_training_that_ends_before_starts_are_compared_ends_with_the_best_so_far(rounds):
    # After rounds 2 and 3, the first start, at (1, 11), beats the others.
    strategy = Ifca(2, starts(GOOD, BAD, BAD), restarts=2)
    result = run(strategy, LocalGrid(toy_app(TASKS, step=ones), 3), rounds)
    assert weights(result) == [1, 11]
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 1}


@pytest.mark.parametrize(
    ("options", "first"), [({}, 1), ({"restarts": 2}, 4), ({"warm_up_rounds": 2}, 3)]
)
def test_what_may_be_given_up_is_known(options, first):
    lasting = [
        n for n in range(1, 7) if not Ifca(2, draw_model, **options).clustering.begins_anew_after(n)
    ]
    assert lasting == list(range(first, 7))


def test_a_training_that_ends_in_the_warm_up_is_fedavgs():
    strategy = IfcaPfl(2, draw_model, warm_up_rounds=2, fraction_train=0.7)
    grid = LocalGrid(toy_app(TASKS, step=ones), 3)
    assert weights(run(strategy, grid, rounds=2)) == [2, 0]
    assert not any(asked(grid, client) for client in range(3))


def test_everybody_is_asked_to_compare_starts_and_an_empty_cluster_is_filled():
    # All prefer 100 to 200, on which client 1 loses least. One of the three trains in a round.
    strategy = IfcaPfl(2, starts(GOOD, BAD), restarts=1, fraction_train=0.3)
    grid = LocalGrid(toy_app(TASKS, step=ones), 3)
    run(strategy, grid, rounds=3)
    for client in range(3):
        assert asked(grid, client)[:4] == [0, 2, 2, 3]
    assert strategy.reports[1].clusters == {0: 0, 1: 1, 2: 0}


def test_a_start_that_nobody_could_judge_is_taken_only_if_there_is_no_other():
    spoil = {("query.losses", client): in_rounds(2) for client in range(3)}
    strategy = Ifca(2, starts(GOOD, BAD), restarts=1)
    run(strategy, LocalGrid(toy_app(TASKS, spoil, step=ones), 3), rounds=3)
    # Nobody could choose in the second start either: clusters stay as they were.
    assert strategy.reports[1].clusters == {0: 0, 1: 1, 2: 1}
    assert strategy.reports[2].clusters == {0: 0, 1: 0, 2: 0}
    assert not strategy.failures


def test_quiet_rounds_are_counted_anew_after_the_starts():
    grid = LocalGrid(toy_app(TASKS, step=lambda client, task: (0.1, 0)), 3)
    run(Ifca(2, starts(GOOD, BAD), restarts=1, stop_after=1), grid, rounds=6)
    assert asked(grid) == [0, 2, 2, 3, 4]


@pytest.mark.parametrize("arrives", range(1, 6))
def test_a_newcomer_has_a_place_in_every_phase(arrives):
    grid = Visits(toy_app([0, 1, 1, 0]), 4, {3: range(arrives)})
    strategy = IfcaPfl(2, draw_model, warm_up_rounds=1, restarts=1)
    run(strategy, grid, rounds=6)
    assert [3 in report.clusters for report in strategy.reports] == [
        number >= arrives for number in range(1, 7)
    ]


@pytest.mark.parametrize("combining", [ClusterMean, GraphMean])
@pytest.mark.parametrize("after", range(1, 6))
def test_a_training_resumed_in_any_phase_ends_as_an_undisturbed_one(after, combining, tmp_path):
    def make(on_round):
        clustering = LossClustering(2, draw_model, warm_up_rounds=1, restarts=1)
        return ClusteredStrategy(clustering, combining(), fraction_train=0.7, on_round=on_round)

    def note(report):
        if report.round == after:
            save_checkpoint(tmp_path / "c", undisturbed.checkpoint())

    undisturbed = make(note)
    wanted = run(undisturbed, LocalGrid(toy_app([0, 1, 1, 0]), 4), rounds=7)
    resumed = make(lambda report: None)
    resumed.resume(load_checkpoint(tmp_path / "c"))
    found = run(resumed, LocalGrid(toy_app([0, 1, 1, 0]), 4), rounds=7)
    for name in wanted.arrays:
        assert found.arrays[name].numpy().tobytes() == wanted.arrays[name].numpy().tobytes()
    assert resumed.reports == undisturbed.reports
    assert resumed.training.train_traffic == undisturbed.training.train_traffic
    assert resumed.training.pre_round_traffic == undisturbed.training.pre_round_traffic


@pytest.mark.parametrize("initial", ["drawn", "warm"])
def test_too_many_clusters_are_refused_before_the_warm_up(initial):
    grid = LocalGrid(toy_app(TASKS), 3)
    with pytest.raises(ValueError, match="num-clusters is 4, but 3 clients"):
        run(IfcaPfl(4, draw_model, initial_models=initial, warm_up_rounds=2), grid)
    assert {m.metadata.message_type for m in grid.sent} == {"query.describe"}


def test_restarts_of_warm_models_are_refused():
    with pytest.raises(ValueError, match="restarts is 2, but initial-models is warm"):
        Ifca(2, draw_model, initial_models="warm", restarts=2)


def test_a_start_is_as_good_as_the_model_that_each_client_would_choose():
    # After one round: (5, 6), on which clients lose 5, 4 and 4 at least and 6, 5 and 5 at most;
    # then (1, 11), on which they lose 1 at least, but 11, 9 and 9 at most.
    strategy = Ifca(2, starts((4, 5), GOOD), restarts=1)
    result = run(strategy, LocalGrid(toy_app(TASKS, step=ones), 3), rounds=3)
    assert weights(result) == [2, 12]
