"""FLT: clients are related by their centroids; the plane is that of the first two coordinates."""

import numpy as np
import pytest

from fl_core.messages import protocol
from strategies import make_strategy
from tests.local_grid import LocalGrid
from tests.toy_app import (
    ENCODER,
    TASKS,
    fail,
    groups,
    in_rounds,
    run,
    toy_app,
    weights,
    with_arrays,
    with_metrics,
)

# With UMAP itself in strategies/test_signatures.py, where it is compiled already.
pytestmark = pytest.mark.usefixtures("plane_without_umap")


def sends(*rows):
    """A client sends these centroids."""
    return with_arrays(lambda a: a.update(centroids=np.array(rows, np.float32)))


def on_a_line(*places, corrupt=None, **others):
    """Clients with one centroid each, on a line."""
    signatures = {("query.signature", c): sends((x, 0, 0)) for c, x in enumerate(places)}
    return toy_app(corrupt={**signatures, **(corrupt or {})}, **others)


def asked_in(grid):
    """Return in which rounds clients were asked for their signatures, by client."""
    rounds = {}
    for message in grid.sent:
        if message.metadata.message_type == "query.signature":
            client = grid.contexts[message.metadata.dst_node_id].node_config["partition-id"]
            rounds.setdefault(client, []).append(message.content["config"]["server-round"])
    return rounds


def test_by_hand_case_2_fedavg_per_cluster():
    # Clients 0, 2 in one task with 10 and 30 images: (1·10 + 3·30)/40 = 2.5 a round; client 1: 2.
    strategy = make_strategy("flt", ENCODER, 2)
    assert weights(run(strategy, LocalGrid(toy_app([0, 1, 0]), 3), rounds=2)) == [5, 4]
    assert strategy.clusters.neighbours == {0: {0, 2}, 1: {1}, 2: {0, 2}}


def test_by_hand_case_1_means_over_neighbours():
    # A chain, 0 – 1 – 2, at γ = 1. Weights 10, 20, 30.
    # Round 1: (1·10 + 2·20)/30 = 5/3; (1·10 + 2·20 + 3·30)/60 = 7/3; (2·20 + 3·30)/50 = 13/5.
    # Then they train to 5/3 + 1 = 8/3, 7/3 + 2 = 13/3, 13/5 + 3 = 28/5.
    app = on_a_line(0, 0.8, 1.6)
    first = run(make_strategy("flt-graph", ENCODER, threshold=1), LocalGrid(app, 3))
    assert weights(first) == pytest.approx([5 / 3, 7 / 3, 13 / 5])
    second = run(make_strategy("flt-graph", ENCODER, threshold=1), LocalGrid(app, 3), rounds=2)
    a, b, c = 8 / 3, 13 / 3, 28 / 5
    expected = [(10 * a + 20 * b) / 30, (10 * a + 20 * b + 30 * c) / 60, (20 * b + 30 * c) / 50]
    assert weights(second) == pytest.approx(expected)
    unweighted = make_strategy("flt-graph", ENCODER, threshold=1, weighted_mean=False)
    assert weights(run(unweighted, LocalGrid(app, 3))) == [1.5, 2, 2.5]


def test_by_hand_matched_centroids_separate_clients_with_a_common_class():
    # Clients 0 and 2 have classes at 0 and 4, 1 has those at 4 and 8: matched, 0 and 1 are at
    # √(4² + 4²)/2 = √8 or √(8² + 0²)/2 = 4, whichever is less.
    corrupt = {
        ("query.signature", client): sends(*((x, 0, 0) for x in points))
        for client, points in enumerate([(0, 4), (4, 8), (0, 4)])
    }
    found = {}
    for distance in ("closest", "matching"):
        strategy = make_strategy("flt", ENCODER, threshold=2.8, centroid_distance=distance)
        run(strategy, LocalGrid(toy_app(corrupt=corrupt), 3))
        found[distance] = groups(strategy.clusters.of_client)
    assert found == {"closest": [[0, 1, 2]], "matching": [[0, 2], [1]]}
    assert np.allclose(strategy.clusters.comparison.similarity[0], [1, 1 / (1 + np.sqrt(8)), 1])


@pytest.mark.parametrize("number", [3, "elbow", "silhouette"])
@pytest.mark.parametrize("graph", [False, True])
def test_interleaved_tasks_of_unequal_size_are_found(number, graph):
    strategy = make_strategy("flt-graph" if graph else "flt", ENCODER, number)
    run(strategy, LocalGrid(toy_app(TASKS), 7))
    assert list(strategy.clusters.of_client.values()) == TASKS


def flagging(*rounds_of_client):
    """Clients say in these rounds' training that their data have moved far."""
    changed = with_metrics(data_shift=0.5)
    return {
        ("train", client): in_rounds(*rounds, corrupt=changed)
        for client, rounds in enumerate(rounds_of_client)
    }


@pytest.mark.parametrize(
    ("max_changed", "flags", "expected"),
    [
        (0, ([1],), [0, 2]),  # one flag up in round 1 is more than none
        (1, ([1],), [0]),
        (1, ([1], [2]), [0, 3]),  # the second flag comes in round 2
        (1, ([1, 2, 3],), [0]),  # the same client's flag counts once
        (1, ([1, 3], [1, 4]), [0, 2, 5]),  # and again after they were asked
        (0, ([], [1, 2, 3, 4, 5]), [0, 2, 3, 5]),  # the first, second and fourth in a row count
        (0, ([], [1, 2, 3, 5]), [0, 2, 3]),  # of a row that ends, the third does not
        (None, ([1], [1], [1]), [0]),
        (0, (), [0]),
    ],
)
def test_all_are_asked_again_once_more_than_lambda_flags_are_up(max_changed, flags, expected):
    grid = LocalGrid(toy_app([0, 1, 0], flagging(*flags)), 3)
    run(make_strategy("flt", ENCODER, 2, max_changed=max_changed), grid, rounds=5)
    assert asked_in(grid) == dict.fromkeys(range(3), expected)


def asking_in_every_round(strategy):
    """Let no flag be more than are allowed, which no configuration can say."""
    strategy.clustering.max_changed = -1
    return strategy


@pytest.mark.parametrize(
    ("every", "expected"), [(0, [0]), (1, [0, 2, 3, 4, 5]), (2, [0, 3, 5]), (4, [0, 5])]
)
def test_all_are_asked_again_every_tau_rounds(every, expected):
    grid = LocalGrid(toy_app([0, 1, 0]), 3)
    run(make_strategy("flt", ENCODER, 2, refresh_every=every), grid, rounds=5)
    assert asked_in(grid) == dict.fromkeys(range(3), expected)


def test_clients_with_changed_data_are_grouped_again():
    # In round 1, {0, 2} and {1}; client 2 then has data like client 1's, and says so.
    corrupt = {
        **flagging([], [], [1]),
        ("query.signature", 2): in_rounds(2, corrupt=sends((10, 10, 10))),
    }
    strategy = make_strategy("flt", ENCODER, 2)
    result = run(strategy, LocalGrid(toy_app([0, 1, 0], corrupt), 3), rounds=2)
    assert [groups(r.clusters) for r in strategy.reports] == [[[0, 2], [1]], [[0], [1, 2]]]
    # Client 0 goes on from (1·10 + 3·30)/40 = 2.5; clients 1 and 2 from (2 + 2.5)/2 = 2.25, by
    # (2·20 + 3·30)/50 = 2.6.
    assert weights(result) == pytest.approx([3.5, 4.85])


def test_a_client_that_fails_when_all_are_asked_again_stays_in(caplog):
    grid = LocalGrid(toy_app(TASKS, {("query.signature", 4): in_rounds(2)}), 7)
    strategy = asking_in_every_round(make_strategy("flt", ENCODER, 3))
    run(strategy, grid, rounds=3)
    assert "client 4 failed at signature in round 2: the disk is full" in caplog.text
    assert not strategy.failures
    assert 4 in strategy.reports[1].clusters
    assert list(strategy.reports[2].clusters.values()) == TASKS
    assert 4 in strategy.reports[1].tested


@pytest.mark.parametrize(
    ("shift", "flagged"),
    [
        (0.13, True),
        (0.12, False),
        (2, True),
        *((other, False) for other in (np.nan, np.inf, -1, [0.5], None)),
    ],
)
def test_a_finite_number_above_the_threshold_is_a_flag(shift, flagged):
    said = {} if shift is None else {"data_shift": shift}
    corrupt = {("train", 0): in_rounds(1, corrupt=with_metrics(**said))}
    grid = LocalGrid(toy_app([0, 1, 0], corrupt), 3)
    run(make_strategy("flt", ENCODER, 2), grid, rounds=2)
    assert asked_in(grid)[0] == ([0, 2] if flagged else [0])


def contents(grid):
    """Return, for each round in which clients were asked, what they were sent and the epochs."""
    return {
        m.content["config"]["server-round"]: (
            set(m.content["arrays"]),
            m.content["config"]["encoder-epochs"],
        )
        for m in grid.sent
        if m.metadata.message_type == "query.signature"
    }


ENCODER_ONLY, WHOLE = {"encoder.w"}, {"encoder.w", "decoder.w"}


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ({}, (WHOLE, 5), (WHOLE, 5)),
        ({"fine_tune": "refresh"}, (ENCODER_ONLY, 0), (WHOLE, 5)),
        ({"fine_tune": "never"}, (ENCODER_ONLY, 0), (ENCODER_ONLY, 0)),
    ],
)
def test_clients_get_the_whole_autoencoder_only_to_fine_tune_it(options, first, later):
    grid = LocalGrid(toy_app([0, 1, 0]), 3)
    strategy = asking_in_every_round(make_strategy("flt", ENCODER, 2, num_centroids=4, **options))
    run(strategy, grid, rounds=2)
    assert contents(grid) == {0: first, 1: later, 2: later}
    asked = [m for m in grid.sent if m.metadata.message_type == "query.signature"]
    assert {m.content["config"]["num-centroids"] for m in asked} == {4}
    sent = protocol.to_record({n: a for n, a in ENCODER.items() if n in first[0]})
    size = sum(len(array.data) for array in sent.values())
    again = make_strategy("flt", ENCODER, 2, num_centroids=4, **options)
    run(again, LocalGrid(toy_app([0, 1, 0]), 3), rounds=2)
    assert again.training.pre_round_traffic.down == 3 * size


BAD_CENTROIDS = {
    "its answer has no centroids": with_arrays(lambda a: a.update(other=a.pop("centroids"))),
    "its centroids have shape (6, 3), not (1 to 5, e)": sends(*np.zeros((6, 3))),
    "its centroids have shape (0, 3), not (1 to 5, e)": with_arrays(
        lambda a: a.update(centroids=np.zeros((0, 3), np.float32))
    ),
    "its centroids have shape (3,), not (1 to 5, e)": with_arrays(
        lambda a: a.update(centroids=np.zeros(3, np.float32))
    ),
    "its centroids are not all numbers below 1e+06": sends((0, np.nan, 0)),
    "its centroids have 2 numbers, the others' 3": sends((0, 0)),
    "the disk is full": fail,
}


@pytest.mark.parametrize(("word", "corrupt"), BAD_CENTROIDS.items(), ids=BAD_CENTROIDS)
@pytest.mark.parametrize("graph", [False, True])
def test_a_client_with_invalid_centroids_is_named_and_the_others_go_on(word, corrupt, graph):
    strategy = make_strategy("flt-graph" if graph else "flt", ENCODER, 3)
    run(strategy, LocalGrid(toy_app(TASKS, {("query.signature", 4): corrupt}), 7))
    assert strategy.failures == {4: word}
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 2, 5: 0, 6: 2}


def test_the_flag_of_a_client_that_failed_when_asked_again_counts_no_more():
    corrupt = {**flagging([1, 2, 3, 4]), ("query.signature", 0): in_rounds(2)}
    grid = LocalGrid(toy_app([0, 1, 0], corrupt), 3)
    run(make_strategy("flt", ENCODER, 2), grid, rounds=5)
    assert asked_in(grid) == {client: [0, 2] for client in range(3)}
