"""FL+HC, OCFL, FedAMP and LCFed: what each server does, worked out by hand."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from fl_core.messages import protocol
from fl_core.objectives.lcfed import LcFed
from strategies import (
    AttentiveMean,
    ClusteredStrategy,
    ClusterMean,
    Clusters,
    GivenClusters,
    GraphMean,
    LowRankClustering,
    Round,
    TemperatureClustering,
    Update,
    WarmUpClustering,
    make_strategy,
)
from strategies.clusterings.ocfl import cosine_distances, temperature
from tests.local_grid import LocalGrid, Visits
from tests.objective_app import BODY, HEAD, NUM_CLIENTS, small_app
from tests.objective_app import run as run_small
from tests.toy_app import groups, in_rounds, run, toy_app, weights, with_arrays

ZERO = {"w": np.zeros(2, np.float32)}


def state(moves, number=1, of_client=None, received=ZERO, models=()):
    """Return a round in which client c moved the model by moves[c]."""
    of_client = of_client or dict.fromkeys(range(len(moves)), 0)
    updates = [
        Update(c, of_client[c], {"w": received["w"] + np.array(move, np.float32)}, 1, received)
        for c, move in enumerate(moves)
    ]
    return Round(number, Clusters(of_client), models, updates, initial=ZERO)


# ------------------------------------------------------------------------------------------- FL+HC


def test_by_hand_fl_hc_groups_all_clients_after_the_warm_up():
    """Clients move the second weight by their task: 0, 1, 0, 1 times (client + 1)."""
    step = lambda client, task: (1.0, 10.0 * task)  # noqa: E731
    app = toy_app([0, 1, 0, 1], step=step)
    strategy = make_strategy("fl-hc", 2, warm_up_rounds=1, weighted_mean=False, fraction_train=0.5)
    seen = []
    strategy.on_round = lambda report: seen.append((len(set(report.clusters.values())), report))
    result = run(strategy, LocalGrid(app, 4), rounds=3)
    assert [count for count, _ in seen] == [1, 2, 2]
    assert [len(report.samples) for _, report in seen] == [4, 4, 2]  # all train until round 2
    assert groups(strategy.clusters.of_client) == [[0, 2], [1, 3]]
    assert strategy.clusters.comparison.round == 2
    # The warm-up's mean is (1, 5); then each cluster continues with its own clients.
    second = [protocol.to_arrays(m)["w"][1] for m in protocol.unpack_models(result.arrays)]
    trained = {strategy.clusters.of_client[client] for client in seen[2][1].samples}
    assert weights(result) == [3.0 if cluster in trained else 2.0 for cluster in (0, 1)]
    assert second == [5.0, 25.0 if 1 in trained else 15.0]


@pytest.mark.parametrize(
    ("distance", "expected"), [("euclidean", [[0, 1], [2]]), ("cosine", [[0, 2], [1]])]
)
def test_by_hand_fl_hc_compares_by_length_or_by_angle(distance, expected):
    one = make_strategy("fl-hc", 2, warm_up_rounds=0, distance=distance).clustering
    found = one.after_training(state([[1, 0], [0, 1], [9, 0]]))
    assert groups(found.of_client) == expected


OPTIMA = {0: (100, 5), 1: (60, -5)}


def halfway(client):
    """Train the model that is sent half the way to the optimum of the client's task."""

    def corrupt(message, context, answer):
        sent = protocol.to_arrays(message.content[protocol.ARRAYS])["w"]
        moved = np.add(sent, OPTIMA[client % 2]) / 2
        return with_arrays(lambda arrays: arrays.update(w=moved.astype(np.float32)))(
            message, context, answer
        )

    return corrupt


@pytest.mark.parametrize("mean", [ClusterMean(), GraphMean(weighted=False)])
def test_by_hand_fl_hc_compares_only_movements_from_the_warm_ups_model(mean):
    """The warm-up ends at (40, 0): from there, tasks move by (30, 2.5) and (10, −2.5).

    From (0, 0), task 1 moves by (30, −2.5): it would look like task 0. Client 5 trains that in the
    warm-up and fails in the round of the grouping; client 6, of task 0, connects after it.
    """
    steps = {("train", client): halfway(client) for client in range(7)}
    trained = steps["train", 5]
    steps["train", 5] = lambda *asked: in_rounds(2)(*asked[:2], trained(*asked))
    strategy = ClusteredStrategy(WarmUpClustering(2, warm_up_rounds=1), mean)
    seen = []

    def on_round(report):
        held = [float(model["w"][0]) for model in strategy.training.models]
        waiting = [held[strategy.model_of_client[client]] for client in (0, 1, 5)]
        seen.append((groups(report.clusters), waiting))
        moves.append(len(strategy.checkpoint()["clustering"]["_moves"]))

    strategy.on_round, moves = on_round, []
    run(strategy, Visits(toy_app(corrupt=steps), 7, {6: (0, 1, 2)}), rounds=3)
    assert seen == [
        ([[0, 1, 2, 3, 4, 5]], [40, 40, 40]),
        ([[0, 2, 4], [1, 3], [5]], [70, 50, 40]),
        ([[0, 2, 4, 6], [1, 3, 5]], [85, 55, 55]),
    ]
    assert moves == [0, 5, 7]  # none is stored in the warm-up


# -------------------------------------------------------------------------------------------- OCFL


def test_by_hand_ocfl_groups_once_the_temperature_has_risen():
    """Two pairs of clients at an angle of 90°, then 0°, then 180°."""
    assert temperature(cosine_distances([np.ones(2, np.float32)] * 3)) < 1e-9
    right = [[1, 0], [2, 0], [0, 1], [0, 3]]
    found = temperature(cosine_distances([np.array(move, np.float32) for move in right]))
    assert found == pytest.approx(sqrt(8) / sqrt(4 * 4 * 3))  # 8 of 12 pairs have the distance 1
    one = TemperatureClustering()
    assert one.needs_all_clients(1)
    assert one.after_training(state(right)).count == 1
    assert one.after_training(state([[1, 1]] * 4, 2)).count == 1
    last = one.after_training(state([[1, 0], [2, 0], [-1, 0], [-3, 0]], 3))
    assert groups(last.of_client) == [[0, 1], [2, 3]]
    assert not one.needs_all_clients(4)
    assert last.comparison.round == 3 and last.comparison.merges.shape == (0, 4)
    np.testing.assert_allclose(last.comparison.similarity[0], [1, 1, -1, -1])
    again = state([[1, 1]] * 4, 4, last.of_client)
    assert again.clusters is one.after_training(again)


def test_ocfl_does_not_group_by_a_round_in_which_clients_fail():
    """Updates become more similar in each round, and in round 2 only client 0 answers."""
    app = toy_app(
        [0, 1, 0, 1],
        {("train", client): in_rounds(2) for client in (1, 2, 3)},
        step=lambda client, task: (1, task),
    )
    strategy = make_strategy("ocfl")
    run(strategy, LocalGrid(app, 4), rounds=3)
    assert groups(strategy.clusters.of_client) == [[0, 1, 2, 3]]
    assert strategy.clustering.needs_all_clients(4)


def test_ocfl_by_mean_shift_finds_the_same_and_a_late_client_joins_by_angle():
    one = TemperatureClustering("mean-shift")
    one.after_training(state([[1, 1]] * 4))
    found = one.after_training(state([[1, 0], [2, 0], [-1, 0], [-3, 0]], 2))
    assert groups(found.of_client) == [[0, 1], [2, 3]]
    moves = [np.array(move, np.float32) for move in ([1, 0], [-1, 0], [-1, 0.1])]
    labels, late = one.nearest(moves[2:], moves[:2], np.array([0, 1]))
    assert labels.tolist() == [1]
    np.testing.assert_allclose(late[0], np.array([-1, 1]) / sqrt(1.01), atol=1e-6)


# ------------------------------------------------------------------------------------------ FedAMP


def test_by_hand_fedamp_attends_to_similar_models():
    """w_0 ⟂ w_1, and w_2 halfway: cosines 0 and 1/√2."""
    one = AttentiveMean(sharpness=2.0, own_share=0.4)
    models = [{"w": np.full(2, c, np.float32)} for c in range(4)]
    of_client = dict.fromkeys(range(4), 0)
    trained = state([[1, 0], [0, 1], [1, 1]], of_client=of_client, models=models)
    found = [model["w"].tolist() for model in one(trained)]
    near, far = exp(2 / sqrt(2)), 1.0
    share = 0.6 * near / (near + far)  # that client 0 has of client 2
    assert found[0] == pytest.approx([0.4 + share, 0.6])
    assert found[1] == pytest.approx([0.6, 0.4 + share])
    assert found[2] == pytest.approx([0.4 + 0.3, 0.4 + 0.3])
    assert found[3] == [3, 3]  # it did not train


def test_fedamp_of_one_client_in_a_cluster_is_its_own_model():
    of_client = {0: 0, 1: 1, 2: 1}
    trained = state([[1, 0], [0, 4], [0, 2]], of_client=of_client, models=[ZERO] * 3)
    found = [model["w"].tolist() for model in AttentiveMean(own_share=0.5)(trained)]
    assert found == [[1, 0], [0, 3], [0, 3]]


def test_by_hand_fedamp_with_a_sharp_attention_takes_the_most_similar_model():
    cosines = np.array([[1, 0.5, 0.4], [0.5, 1, 0.9], [0.4, 0.9, 1]])
    found = AttentiveMean(sharpness=1e6, own_share=0.0).attention(cosines)
    assert found.tolist() == [[0, 1, 0], [0, 0, 1], [0, 1, 0]]


# ------------------------------------------------------------------------------------------- LCFed


def test_by_hand_lcfed_joins_the_cluster_at_the_smallest_angle():
    one = LowRankClustering(2)
    moves = [[1, 0], [1, 0.1], [-9, 0], [-8, -1]]
    first = one.after_training(state(moves))
    assert groups(first.of_client) == [[0, 1], [2, 3]]
    # Client 1 turns round: nearer to its cluster by distance, to the other one by angle.
    models = [{"w": np.array(w, np.float32)} for w in ([1, 0], [-9, 0])]
    moves[1] = [-1, 0.1]
    second = one.after_training(state(moves, 2, first.of_client, models=models))
    assert groups(second.of_client) == [[0], [1, 2, 3]]


def test_by_hand_lcfed_s_angles_are_of_models_and_not_of_changes():
    """Model (8, 1): its cosine with (4, 3) is 35/5√65 = 0.87, with (3, 0) 8/√65 = 0.99.

    As changes of (4, 0), (4, 1) is nearer to (0, 3), 1/√17, than to (−1, 0), −4/√17.
    """
    one = LowRankClustering(2)
    first = one.after_training(state([[4, 3], [3, 0]])).of_client
    models = [{"w": np.array([[4, 3], [3, 0]][first[c]], np.float32)} for c in (0, 1)]
    second = state([[8, 1], [3, 0]], 2, first, models=models)
    second = replace(second, initial={"w": np.array([4, 0], np.float32)})
    assert one.after_training(second).of_client == {0: first[1], 1: first[1]}


def test_by_hand_lcfed_s_global_embedding_counts_clients():
    models = [
        {"body.w": np.full(2, x, np.float32), "output.w": np.full(3, x, np.float32)} for x in (1, 4)
    ]
    found = LcFed().common_beside(models, [2, 1])
    assert list(found) == ["body.w"]
    assert found["body.w"].tolist() == [2, 2]  # (2 · 1 + 1 · 4) / 3


@pytest.mark.parametrize("secure", [False, True])
def test_lcfed_s_embedding_goes_down_to_all_clusters_and_not_up(secure):
    world = LocalGrid(small_app(), NUM_CLIENTS)
    together = dict.fromkeys(range(NUM_CLIENTS), 0) if secure else {c: c % 2 for c in range(5)}
    one = ClusteredStrategy(GivenClusters(together), local=LcFed(), secure_aggregation=secure)
    result = run_small(one, world, rounds=2)
    assert not list(one.training.registry.log)
    assert {name.partition("/")[2] for name in result.arrays} == {*BODY, *HEAD}
    counts = np.bincount(list(together.values()))
    for name in BODY:
        shared = [model[f"{protocol.BESIDE}.{name}"] for model in one.training.models]
        mean = np.average([model[name] for model in one.training.models], axis=0, weights=counts)
        assert all(np.array_equal(shared[0], other) for other in shared)
        np.testing.assert_allclose(shared[0], mean, atol=1e-6)
    if not secure:
        sizes = {name: len(array.data) for name, array in one.training.records[0].items()}
        alone = sum(size for name, size in sizes.items() if name in (*BODY, *HEAD))
        assert one.training.train_traffic.down == 2 * NUM_CLIENTS * sum(sizes.values())
        assert one.training.train_traffic.up < 2 * NUM_CLIENTS * (alone + 50)  # and metrics
