"""Strategies on clients with numbers that can be worked out by hand (see toy_app)."""

import itertools

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode

from fl_core.messages import protocol
from strategies import (
    ClusteredStrategy,
    ClusterMean,
    GivenClusters,
    GraphMean,
    LpsGps,
    make_strategy,
)
from strategies.catalogue import ROBUST
from strategies.rounds.replies import error_text
from tests.local_grid import LocalGrid
from tests.samples import sampled
from tests.toy_app import (
    MODEL,
    STRATEGIES,
    TASKS,
    every_path,
    every_strategy,
    fail,
    in_rounds,
    run,
    small_step,
    toy_app,
    weights,
    with_arrays,
    with_metrics,
    with_other_test,
)

rcc_pfl = STRATEGIES["rcc-pfl"]


pytestmark = pytest.mark.usefixtures("plane_without_umap")


def test_by_hand_two_clusters_two_rounds():
    # Clients 0, 1, 2 add 1, 2, 3 a round. Cluster 0 = {0, 2}: mean +2 a round; cluster 1 = {1}: +2.
    strategy = make_strategy("optimum", {0: 0, 1: 1, 2: 0})
    result = run(strategy, LocalGrid(toy_app(), 3), rounds=2)
    assert weights(result) == [4, 4]
    # Weighted by 10 and 30 images, cluster 0 moves (1·10 + 3·30)/40 = 2.5 a round.
    strategy = make_strategy("optimum", {0: 0, 1: 1, 2: 0}, weighted_mean=True)
    result = run(strategy, LocalGrid(toy_app(), 3), rounds=2)
    assert weights(result) == [5, 4]
    assert strategy.reports[-1].tested == {0: 0.005, 1: 0.004, 2: 0.005}
    assert strategy.reports[-1].score == pytest.approx((0.005 + 0.004 + 0.005) / 3)
    assert strategy.reports[-1].train_loss == pytest.approx((0 + 1 + 2) / 3)
    assert result.evaluate_metrics_clientapp[2]["accuracy-per-client"] == [0.005, 0.004, 0.005]


def test_by_hand_clusters_that_are_given_again_in_a_later_round():
    # {0, 1} and {2} are at 1.5 and 3; then client 0 goes over: 1.5 + 2, and 3 + (1 + 3)/2.
    clustering = GivenClusters({0: 0, 1: 0, 2: 1}, {2: {0: 1, 1: 0, 2: 1}})
    result = run(ClusteredStrategy(clustering), LocalGrid(toy_app(), 3), rounds=2)
    assert weights(result) == [3.5, 5]


@every_strategy
def test_one_cluster_of_all_is_the_single_model(make):
    # Everybody adds index + 1: the mean of 1 … 7 is 4, weighted by 10 … 70 images (1·1 + 2·2 + …
    # + 7·7)/28 = 5; alone, each has a separate model.
    strategy = make(1)
    found = weights(run(strategy, LocalGrid(toy_app(), 7), rounds=2))
    if make is STRATEGIES["local"]:
        assert found == [2, 4, 6, 8, 10, 12, 14]
    else:
        weighted = strategy.aggregation.weighted
        assert found == pytest.approx([10 if weighted else 8] * len(found))
        single = weights(
            run(make_strategy("single", weighted_mean=weighted), LocalGrid(toy_app(), 7), rounds=2)
        )
        assert set(found) == set(single)


NONSENSE = {
    "NaN": with_arrays(lambda a: a["w"].__setitem__(0, np.nan)),
    "its w holds 1e+38, far more than at": with_arrays(lambda a: a["w"].__setitem__(0, 1e38)),
    "its w holds 1.01e+03, far more": with_arrays(lambda a: a["w"].__setitem__(1, -1010)),
    "infinity": with_arrays(lambda a: a["w"].__setitem__(1, np.inf)),
    "shape": with_arrays(lambda a: a.update(w=np.zeros(3, np.float32))),
    "parameters": with_arrays(lambda a: a.pop("steps")),
    "num-examples": with_metrics(num_examples=0),
    "num-examples is inf": with_metrics(num_examples=float("inf")),
    "num-examples is [1.0]": with_metrics(num_examples=[1.0]),
    "its w is int8": with_arrays(lambda a: a.update(w=np.zeros(2, np.int8))),
    "its w is <U1": with_arrays(lambda a: a.update(w=np.array(["a", "b"]))),
    "num-examples is None": with_metrics(num_examples=None),
    "disk is full": fail,
}


@pytest.mark.parametrize(("word", "corrupt"), NONSENSE.items(), ids=NONSENSE.keys())
def test_a_client_that_sends_no_model_is_left_out(word, corrupt, caplog):
    app = toy_app(corrupt={("train", 1): corrupt})
    result = run(make_strategy("single"), LocalGrid(app, 3))
    assert weights(result) == [2]  # the mean of +1 and +3
    assert "client 1 could not train in round 1" in caplog.text
    assert word in caplog.text


def test_by_hand_how_far_a_model_may_go_in_all_rounds_together(caplog):
    """A thousand times what training began with, or 1: growing with each round is no way around."""
    steps = {1: 900, 2: 1000, 3: 1001}

    def leap(message, context, answer):
        server_round = message.content["config"]["server-round"]
        step = with_arrays(lambda a: a.update(w=np.full(2, steps[server_round], np.float32)))
        return step(message, context, answer)

    result = run(
        make_strategy("single"), LocalGrid(toy_app([0], {("train", 0): leap}), 1), rounds=2
    )
    assert weights(result) == [1000]
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 3"):
        run(make_strategy("single"), LocalGrid(toy_app([0], {("train", 0): leap}), 1), rounds=3)


@every_path
def test_a_cluster_that_fails_as_a_whole_in_a_round_retains_its_model(make):
    clean = make()
    run(clean, LocalGrid(toy_app(TASKS, step=small_step), 7))
    cluster = [c for c in range(7) if clean.clusters.of_client[c] == clean.clusters.of_client[1]]
    assert 1 <= len(cluster) < 7
    strategy = make()
    fails = {("train", client): in_rounds(2) for client in cluster}
    run(strategy, LocalGrid(toy_app(TASKS, fails, step=small_step), 7), rounds=3)
    first, second, third = (report.tested for report in strategy.reports)
    for client in range(7):
        assert (second[client] == first[client]) == (client in cluster)
        assert third[client] != second[client]


def test_a_round_in_which_all_fail_is_an_error():
    app = toy_app(TASKS, {("train", c): in_rounds(2) for c in range(7)})
    strategy = rcc_pfl()
    with pytest.raises(RuntimeError, match="no client sent a usable model in round 2"):
        run(strategy, LocalGrid(app, 7), rounds=3)
    assert set(strategy.reports[0].tested) == set(range(7))


RAY_RAISED = """<class 'ray.exceptions.RayTaskError(ClientAppException)'>:<'\
\x1b[36mray::ClientAppActor.run()\x1b[39m (pid=1, ip=127.0.0.1, repr=<flwr.ClientAppActor>)
  File "/app/fl_app/config/run_config.py", line 3, in parse_config
    read[key] = one.rule.read(key, run_config[key])
                                   ~~~~~~~~~~^^^^^
KeyError: 'num-starts'
flwr.clientapp.client_app.ClientAppException:
Exception ClientAppException occurred. Message: the run-config key num-starts is
missing: set it.'>"""


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (ErrorCode.MESSAGE_UNAVAILABLE, "It may have expired.", "no answer in time"),
        (ErrorCode.REPLY_MESSAGE_UNAVAILABLE, "The reply has expired.", "no answer in time"),
        (ErrorCode.NODE_UNAVAILABLE, "No heartbeat.", "it is no longer connected"),
        (ErrorCode.CLIENT_APP_CRASHED, "It was killed.", "It was killed."),
        (ErrorCode.UNKNOWN, RAY_RAISED, "the run-config key num-starts is missing: set it."),
        (ErrorCode.UNKNOWN, RAY_RAISED.partition("\nflwr.")[0], "KeyError: 'num-starts'"),
        (ErrorCode.UNKNOWN, "<class 'E'>:<'one\ntwo'>", "one two"),  # no traceback
        (ErrorCode.UNKNOWN, "<class 'KeyError'>:<''arrays''>", "KeyError: 'arrays'"),
        (ErrorCode.UNKNOWN, "<class 'a.b.OwnError'>:<''>", "OwnError:"),
    ],
)
def test_what_flower_says_of_a_lost_message_is_said_in_plain_words(code, reason, said):
    asked = Message(RecordDict(), dst_node_id=1, message_type="train")
    assert error_text(Message(Error(code, reason), reply_to=asked)) == said


@pytest.mark.parametrize(
    "corrupt",
    [
        fail,
        *(with_metrics(accuracy=value) for value in (float("nan"), -0.1, 1.1, None)),
        with_metrics(macro_f1=1.5),
        with_metrics(balanced_accuracy=float("nan")),
        with_metrics(balanced_accuracy=[0.5]),
        with_other_test(accuracy=1.1),
        with_other_test(macro_f1=0.5),
    ],
)
def test_a_client_that_cannot_be_tested_has_no_accuracy(corrupt, caplog):
    strategy = make_strategy("single")
    result = run(strategy, LocalGrid(toy_app(corrupt={("evaluate", 0): corrupt}), 3))
    assert set(strategy.reports[0].tested) == {1, 2}
    listed = result.evaluate_metrics_clientapp[1]["accuracy-per-client"]
    assert np.isnan(listed[0])
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == pytest.approx(0.002)
    assert "client 0 could not be tested in round 1: " in caplog.text


def eigenvectors(values):
    """A client answers with these, or with what a function makes of its own."""
    made = values if callable(values) else lambda true: np.array(values, np.float32)
    change = with_arrays(lambda a: a.update(eigenvectors=made(a["eigenvectors"])))
    return ("query.spectrum", change)


BAD_SPECTRA = {
    "disk is full": ("query.spectrum", fail),
    "not all finite numbers": eigenvectors(lambda true: np.full((8, 3), "a")),
    "not all finite": eigenvectors(lambda true: true * np.nan),
    "not orthonormal": eigenvectors(lambda true: 2 * true),
    "have shape (8, 4)": eigenvectors(np.eye(8, 4)),
    "have shape (8,)": eigenvectors(np.ones(8)),
    "its features have 9 dimensions, the others' 8": eigenvectors(np.eye(9, 3)),
    "has no eigenvectors": (
        "query.spectrum",
        with_arrays(lambda a: a.update(other=a.pop("eigenvectors"))),
    ),
    "not all numbers in [0, 1]": ("query.relevance", with_metrics(relevances=[float("nan")] * 7)),
    "does not hold 7 relevances": ("query.relevance", with_metrics(relevances=[0.5] * 5)),
}


@pytest.mark.parametrize("word", BAD_SPECTRA)
def test_a_client_that_fails_in_the_pre_round_is_named_and_the_others_go_on(word, caplog):
    kind, corrupt = BAD_SPECTRA[word]
    strategy = rcc_pfl()
    grid = LocalGrid(toy_app(TASKS, {(kind, 4): corrupt}), len(TASKS))
    run(strategy, grid)
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 2, 5: 0, 6: 2}
    assert list(strategy.failures) == [4]
    assert any("client 4 is left out" in line and word in line for line in caplog.text.splitlines())
    assert set(strategy.reports[0].tested) == {0, 1, 2, 3, 5, 6}
    assert not any(
        m.metadata.message_type == "train" and m.metadata.dst_node_id == grid.node_of(4)
        for m in grid.sent
    )


every_query = pytest.mark.parametrize(
    ("name", "query"),
    [
        ("rcc-pfl", "spectrum"),
        ("rcc-pfl", "relevance"),
        ("pacfl", "spectrum"),
        ("flt", "signature"),
        ("ifca-pfl", "losses"),
        ("pca-km-hc", "signature"),
    ],
)


@every_query
def test_when_all_fail_in_the_pre_round_the_first_reason_is_given(name, query):
    app = toy_app(TASKS, {(f"query.{query}", c): fail for c in range(7)})
    with pytest.raises(RuntimeError, match=f"every client failed at {query}: the disk is full"):
        run(STRATEGIES[name](), LocalGrid(app, 7))


@pytest.mark.parametrize("index", [None, float("nan"), -1, 0.5, [1]])
def test_a_node_without_a_valid_index_is_left_out(index, caplog):
    app = toy_app(corrupt={("query.describe", 1): with_metrics(client_index=index)})
    assert weights(run(make_strategy("single"), LocalGrid(app, 3))) == [2]
    assert f"node {LocalGrid.node_of(1)} is left out, it gave no partition-id" in caplog.text


def test_a_loss_that_is_no_number_costs_only_the_loss():
    corrupt = {("train", 1): with_metrics(loss=[1.0]), ("evaluate", 1): with_metrics(loss=None)}
    strategy = make_strategy("single")
    assert weights(run(strategy, LocalGrid(toy_app(corrupt=corrupt), 3))) == [2]
    assert strategy.reports[0].train_loss == 1  # the mean of 0 and 2
    assert set(strategy.reports[0].tested) == {0, 1, 2}


def test_no_node_at_all():
    with pytest.raises(RuntimeError, match="no client answered: no node is connected"):
        run(make_strategy("single"), LocalGrid(toy_app(), 0))


@every_query
def test_more_clusters_than_clients_that_answered(name, query):
    failing = toy_app([0, 1, 2], {(f"query.{query}", 1): fail})
    for grid in (LocalGrid(toy_app(), 2), LocalGrid(failing, 3)):
        with pytest.raises(ValueError, match="num-clusters is 3, but 2 clients can be grouped"):
            run(STRATEGIES[name](), grid)


def test_clusters_that_do_not_cover_the_clients():
    for strategy in (make_strategy("optimum", {0: 0, 1: 0}), make_strategy("random", [1, 1])):
        with pytest.raises(ValueError, match="no cluster is given for client 2: give one"):
            run(strategy, LocalGrid(toy_app(), 3))


def test_partial_participation_is_seeded_and_of_the_right_size():
    def participants(seed):
        strategy, grid = (
            make_strategy("single", fraction_train=0.4, seed=seed),
            LocalGrid(toy_app(), 10),
        )
        run(strategy, grid, rounds=6)
        assert all(len(r.tested) == 10 for r in strategy.reports)
        rounds = {}
        for message in grid.sent:
            if message.metadata.message_type == "train":
                group = rounds.setdefault(message.metadata.group_id, set())
                group.add(message.metadata.dst_node_id)
        return list(rounds.values())

    first = participants(0)
    assert [len(nodes) for nodes in first] == [4] * 6
    assert len({frozenset(nodes) for nodes in first}) > 3
    assert participants(0) == first
    assert participants(1) != first


def test_evaluation_every_so_many_rounds_and_after_the_last():
    seen = []
    strategy = make_strategy("single", evaluate_every=2, on_round=seen.append)
    run(strategy, LocalGrid(toy_app(), 3), rounds=5)
    assert [bool(r.tested) for r in strategy.reports] == [False, True, False, True, True]
    assert seen == strategy.reports


def test_bytes_are_those_of_the_papers_exchange():
    strategy = rcc_pfl()
    run(strategy, LocalGrid(toy_app(TASKS), 7), rounds=2)
    # Up: 7 clients, 8 × 3 float32 eigenvectors and 7 float64 relevances; headers are small.
    vectors, relevances = 8 * 3 * 4, 7 * 8
    header = 128  # of an array on the wire
    training = strategy.training
    assert training.pre_round_traffic.up == 7 * (
        vectors + header + relevances + len("relevances") + 8 + len("client-index")
    )
    # Down: all eigenvectors to all.
    assert training.pre_round_traffic.down == 7 * (7 * vectors + header)
    model = sum(len(array.data) for array in MODEL.values())
    assert training.train_traffic.down == 2 * 7 * model
    assert training.train_traffic.up == 2 * 7 * (model + 16 + len("num-examples") + len("loss"))


def test_the_gram_matrix_never_leaves_and_does_not_stay():
    grid = LocalGrid(toy_app(TASKS), 7)
    run(rcc_pfl(), grid)
    assert all(not context.state for context in grid.contexts.values())


# The number of clusters that a strategy's clustering ends with, where it is not 3.
COUNTS = {"cfl": 7, "single": 1, "local": 7}
LATER = GivenClusters(dict(enumerate(TASKS)), {2: dict(enumerate(TASKS[::-1]))})
AGGREGATIONS = {
    "mean": (ClusterMean(), 1),
    "graph": (GraphMean(), 1),
    "lps-gps": (LpsGps(("w",), 2), 1),
    "graph-half": (GraphMean(), 0.5),
    **{kind.name: (kind(), 1) for kind in ROBUST},
}


@pytest.mark.parametrize(
    ("clustering", "aggregation"),
    sampled(itertools.product([*STRATEGIES, "later"], AGGREGATIONS), 7),
)
def test_any_clustering_times_any_aggregation(clustering, aggregation):
    aggregation, fraction = AGGREGATIONS[aggregation]
    parts = LATER if clustering == "later" else STRATEGIES[clustering]().clustering
    strategy = ClusteredStrategy(parts, aggregation, fraction_train=fraction)
    result = run(strategy, LocalGrid(toy_app(TASKS), 7), rounds=3)
    models = [protocol.to_arrays(m) for m in protocol.unpack_models(result.arrays)]
    if fraction == 1:
        assert strategy.clusters.count == COUNTS.get(clustering, 3)
    assert len(models) == (7 if aggregation.per_client else strategy.clusters.count)
    assert all(np.isfinite(array).all() for model in models for array in model.values())
    assert set(strategy.model_of_client) == set(strategy.clusters.of_client) == set(range(7))
    assert [set(report.tested) for report in strategy.reports] == [set(range(7))] * 3
    for client, number in strategy.model_of_client.items():
        assert strategy.reports[-1].tested[client] == models[number]["w"][0] / 1000
        assert fraction < 1 or models[number]["w"][0] >= 3  # all have gained 1 a round or more


def test_the_random_clusters_are_seeded_and_of_the_given_sizes():
    def clusters(seed):
        strategy = make_strategy("random", [5, 3, 2], seed=seed)
        run(strategy, LocalGrid(toy_app(), 10))
        return list(strategy.clusters.of_client.values())

    assert sorted(np.bincount(clusters(0))) == [2, 3, 5]
    assert clusters(0) == clusters(0)
    assert len({tuple(clusters(seed)) for seed in range(5)}) > 1


def test_who_tests_is_not_drawn_as_who_trains():
    """Else only models that have just seen a client's task would be tested on it."""
    grid = LocalGrid(toy_app(), 10)
    run(make_strategy("single", fraction_train=0.3, fraction_evaluate=0.3), grid, rounds=4)
    drawn = {"train": [], "evaluate": []}
    for number in ("1", "2", "3", "4"):
        for kind, of_rounds in drawn.items():
            found = {
                m.metadata.dst_node_id
                for m in grid.sent
                if (m.metadata.message_type, m.metadata.group_id) == (kind, number)
            }
            of_rounds.append(found)
    assert [len(found) for kind in drawn.values() for found in kind] == [3] * 8
    assert drawn["train"] != drawn["evaluate"]
