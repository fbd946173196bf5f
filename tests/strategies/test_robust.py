import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedMedian, FedTrimmedAvg
from flwr.serverapp.strategy import MultiKrum as FlowersMultiKrum
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.aggregations import robust
from strategies.aggregations.robust import Krum, Median, MultiKrum, TrimmedMean
from strategies.catalogue import ROBUST
from strategies.rounds.round_state import Clusters, Round, Update

BY_NAME = pytest.mark.parametrize("kind", ROBUST, ids=lambda kind: kind.name)


def model(values, kind=np.float32):
    return {"w": np.array(values, kind)}


def updates_of(*rows, received=0.0, cluster=0):
    """One update for each row of numbers, of clients 0, 1, …, who were all sent `received`."""
    sent = model(np.full(np.shape(rows[0]), received))
    return [Update(i, cluster, model(row), 1 + i, sent) for i, row in enumerate(rows)]


def combined(aggregation, updates, models=None):
    of_client = {u.client: u.cluster for u in sorted(updates, key=lambda u: u.client)}
    models = models or [model(np.zeros_like(updates[0].arrays["w"]))]
    found = aggregation(Round(1, Clusters(of_client, len(models)), models, updates))
    return [m["w"].tolist() for m in found]


def test_by_hand_medians():
    assert combined(Median(), updates_of([1, 9], [2, -4], [900, 5])) == [[2, 5]]
    assert combined(Median(), updates_of([1], [2], [3], [900])) == [[2.5]]


def test_by_hand_trimmed_means():
    rows = [0], [1], [2], [3], [900]
    assert combined(TrimmedMean(0.2), updates_of(*rows)) == [[2]]
    # 0.21 of 5 are two: what is left is the median.
    assert combined(TrimmedMean(0.21), updates_of([0], [1], [2.5], [3], [900])) == [[2.5]]
    assert combined(TrimmedMean(0), updates_of([0], [1], [2])) == [[1]]
    # 0.3 of 4 are two, which would leave nothing: one is cut on either side, as of three.
    assert combined(TrimmedMean(0.3), updates_of([0], [1], [2], [900])) == [[1.5]]
    assert combined(TrimmedMean(0.3), updates_of([0], [1], [900])) == [[1]]


def test_models_that_differ_little_from_each_other_lose_no_digits():
    """About the origin, inner products of 1e18 would say nothing of differences of 1."""
    rows = 1e9 + np.array([[0], [1], [2], [10], [11]])
    updates = [Update(i, 0, {"w": row}, 1, {"w": row}) for i, row in enumerate(rows)]
    assert combined(Krum(0.2), updates) == [[1e9 + 1]]


def test_the_share_that_is_tolerated_is_not_a_victim_of_binary_numbers():
    # In floating point, 0.07 · 100 is more than 7.
    rows = [*([1e6] for _ in range(7)), *([-1e6] for _ in range(8)), *([1] for _ in range(85))]
    (found,) = combined(TrimmedMean(0.07), updates_of(*rows))
    assert found[0] == pytest.approx((85 - 1e6) / 86)


def test_by_hand_krum_takes_the_model_in_the_densest_place():
    # f = 1, so that n − f − 2 = 2 nearest count: 1 + 4, 1 + 1, 1 + 4, 1 + 64, 1 + 81.
    rows = [0], [1], [2], [10], [11]
    assert combined(Krum(0.2), updates_of(*rows)) == [[1]]
    # The four best of Multi-Krum: 0, 1, 2 and 10.
    assert combined(MultiKrum(0.2), updates_of(*rows)) == [[3.25]]


def test_krum_expects_no_more_malicious_ones_than_its_paper_allows():
    # 0.4 of 6 are 3, but 6 ≥ 2f + 3 allows one. With f = 1, n − f − 2 = 3 nearest count, and
    # n − f = 5 are selected.
    rows = [0], [1], [2], [3], [4], [1000]
    assert combined(MultiKrum(0.4), updates_of(*rows)) == [[2]]


@pytest.mark.parametrize("kind", [Krum, MultiKrum])
def test_krum_takes_the_median_of_running_statistics_which_do_not_tell_models_apart(kind):
    sent = {"w": np.zeros(1, "f"), "bn.running_mean": np.zeros(1, "f")}
    found = []
    for typical in range(10):
        statistics = [1e12 if client == typical else client for client in range(10)]
        updates = [
            Update(c, 0, {"w": np.array([c], "f"), "bn.running_mean": np.array([s], "f")}, 1, sent)
            for c, s in enumerate(statistics)
        ]
        state = Round(1, Clusters(dict.fromkeys(range(10), 0)), [sent], updates)
        found.append(float(kind()(state)[0]["bn.running_mean"][0]))
    # Of 0 to 9 without one of the lower five, and one above all: the middle is 5 and 6.
    assert found == [5.5] * 5 + [(4 + 6) / 2] + [4.5] * 4


def flowers(strategy, rows):
    """What Flower's strategy makes of the rows."""
    replies = []
    for i, row in enumerate(rows):
        content = RecordDict(
            {
                "arrays": ArrayRecord([np.array(row, np.float32)]),
                "metrics": MetricRecord({"num-examples": 1}),
            }
        )
        asked = Message(RecordDict(), dst_node_id=i + 1, message_type="train")
        replies.append(Message(content, reply_to=asked))
    arrays, _ = strategy.aggregate_train(1, replies)
    return arrays.to_numpy_ndarrays()[0]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 12))
def test_flowers_strategies_do_the_same(seed, count):
    rows = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    updates = updates_of(*rows)

    def same(ours, theirs):
        return np.allclose(combined(ours, updates)[0], flowers(theirs, rows), atol=1e-6)

    assert same(Median(), FedMedian())
    cut = 1 / count + 1e-9
    assert same(TrimmedMean(1 / count), FedTrimmedAvg(beta=cut))
    assert same(
        MultiKrum(1 / count), FlowersMultiKrum(num_malicious_nodes=1, num_nodes_to_select=count - 1)
    )


@BY_NAME
def test_models_are_looked_at_in_blocks(kind, monkeypatch):
    """However large these are: with blocks of a few numbers, the same comes out."""
    rng = np.random.default_rng(5)
    updates = updates_of(*rng.normal(size=(7, 100)))
    whole = combined(kind(), updates)[0]
    monkeypatch.setattr(robust, "_BLOCK", 7 * 3)
    assert combined(kind(), updates)[0] == pytest.approx(whole, rel=1e-6)


@BY_NAME
def test_too_few_answers_are_averaged_and_that_is_said_once(kind, caplog):
    caplog.set_level(logging.WARNING)
    aggregation, few = kind(), kind.fewest - 1
    for _ in range(3):
        (found,) = combined(aggregation, updates_of(*([i] for i in range(few))))
        assert found == [(few - 1) / 2]
    said = f"{kind.name} tolerates one wrong answer if a cluster has at least {kind.fewest} answers"
    assert caplog.text.count(said) == 1
    assert f"with {few} answers it takes the mean" in caplog.text


def test_by_hand_running_statistics_do_not_decide_which_model_is_taken():
    rows = [0], [1], [2], [10], [11]
    updates = updates_of(*rows)
    for update in updates:  # by these, clients 2, 3 and 4 are together, and 10 is between them
        far = 1e6 * max(0, 2 - update.client)
        update.arrays["norm.running_var"] = np.array([far], np.float32)
        update.received["norm.running_var"] = np.ones(1, np.float32)
    assert combined(Krum(0.2), updates, [updates[0].received]) == [[1]]
