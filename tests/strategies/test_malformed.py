"""Bytes from the network may be anything: the client is named, and the others go on."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from fl_core.messages import protocol
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
from strategies import GivenClusters, RandomClusters, make_strategy
from strategies.rounds.client_registry import ClientRegistry
from strategies.rounds.conversation import Conversation
from strategies.rounds.replies import read_tests, read_update
from strategies.rounds.round_state import Clusters
from strategies.rounds.training import Training
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import ENCODER, run, toy_app, weights, with_metrics

pytestmark = pytest.mark.usefixtures("plane_without_umap")


WEIGHT = {"w": np.ones(2, np.float32)}


def trained(**metrics):
    """Return the answer of a client that trained nothing, and says these metrics."""
    said = MetricRecord({protocol.NUM_EXAMPLES: 10, **metrics})
    return RecordDict({protocol.ARRAYS: protocol.to_record(WEIGHT), protocol.METRICS: said})


def sends(name, array):
    """A client answers with this Array under `name`, or under every name for None."""

    def corrupt(message, context, answer):
        old = answer.content[protocol.ARRAYS]
        names = [name] if name else list(old)
        answer.content[protocol.ARRAYS] = ArrayRecord({**old, **dict.fromkeys(names, array)})
        return answer

    return corrupt


def arrays(shape=(3, 2), dtype="float32"):
    good = Array(np.eye(*shape, dtype=np.float32))
    return {
        "another serialisation": Array(dtype, shape, "pickle", good.data),
        "junk": Array(dtype, shape, good.stype, b"junk"),
        "no bytes": Array(dtype, shape, good.stype, b""),
    }


@pytest.mark.parametrize("kind", arrays())
@pytest.mark.parametrize(
    ("make", "query", "name"),
    [
        (lambda: make_strategy("rcc-pfl", 2, num_eigenvectors=3), "query.spectrum", "eigenvectors"),
        (lambda: make_strategy("flt", ENCODER, 2), "query.signature", "centroids"),
        (lambda: make_strategy("pca-km-hc", 2), "query.signature", "centroids"),
    ],
)
def test_an_answer_that_cannot_be_read_is_the_clients_problem(kind, make, query, name):
    strategy = make()
    app = toy_app([0, 1, 0, 1], {(query, 1): sends(name, arrays()[kind])})
    run(strategy, LocalGrid(app, 4))
    assert list(strategy.failures) == [1]
    assert "cannot be read" in strategy.failures[1]
    assert strategy.clusters.of_client == {0: 0, 2: 0, 3: 1}


@pytest.mark.parametrize("kind", arrays())
def test_a_model_that_cannot_be_read_is_left_out_of_the_round(kind, caplog):
    app = toy_app(corrupt={("train", 1): sends("w", arrays()[kind])})
    assert weights(run(make_strategy("single"), LocalGrid(app, 3))) == [2]  # (1 + 3) / 2
    assert "client 1 could not train in round 1" in caplog.text


def declares_fewer(record):
    """Return eigenpairs, less one by what is said of them, and what is said is not true."""
    true, values = record["eigenvectors"], record["eigenvalues"].numpy()
    shape = (true.shape[0], true.shape[1] - 1)
    lying = Array(true.dtype, shape, true.stype, true.data)
    return {"eigenvectors": lying, "eigenvalues": Array(values[:-1])}


@pytest.mark.parametrize("rounds_away", [(), (0, 1)], ids=["in the pre-round", "as a newcomer"])
@pytest.mark.parametrize("formula", ["paper", "missed-energy"])
def test_a_false_number_of_eigenvalues_ends_no_run(formula, rounds_away):
    def corrupt(message, context, answer):
        changed_arrays = declares_fewer(dict(answer.content[protocol.ARRAYS]))
        answer.content[protocol.ARRAYS] = ArrayRecord(changed_arrays)
        return answer

    strategy = make_strategy(
        "rcc-pfl", 2, num_eigenvectors=3, relevance=formula, relevance_at="server"
    )
    app = toy_app([0, 1, 0, 1, 0], {("query.spectrum", 4): corrupt})
    run(strategy, Visits(app, 5, {4: rounds_away}), rounds=3)
    assert list(strategy.failures) == [4]
    assert "its eigenvalues" in strategy.failures[4]
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize("value", [1e300, -1e300, 1e7, float("nan")])
def test_centroids_that_would_overflow_are_refused(value):
    corrupt = sends("centroids", Array(np.full((1, 3), value, np.float64)))
    for strategy in (make_strategy("flt", ENCODER, 2), make_strategy("pca-km-hc", 2)):
        run(strategy, LocalGrid(toy_app([0, 1, 0, 1], {("query.signature", 0): corrupt}), 4))
        assert list(strategy.failures) == [0]


@pytest.mark.parametrize("count", [1.7e308, 1e13, float("inf"), -1, 0])
def test_an_absurd_number_of_samples_does_not_drown_the_others(count):
    app = toy_app(corrupt={("train", 1): with_metrics(num_examples=count)})
    # (1·10 + 3·30) / 40; client 1, of which nothing is known, has the initial model.
    assert weights(run(make_strategy("fedhc", 1), LocalGrid(app, 3))) == [2.5, 0]


def test_one_clients_negative_variances_do_not_corrupt_its_clusters_mean():
    sent = {"norm.running_mean": np.zeros(2), "norm.running_var": np.ones(2)}

    def answer(**changed):
        changed_arrays = {
            **sent,
            **{f"norm.{name}": np.array(values) for name, values in changed.items()},
        }
        metrics = MetricRecord({protocol.NUM_EXAMPLES: 10})
        return RecordDict({"arrays": protocol.to_record(changed_arrays), "metrics": metrics})

    good = read_update(0, 0, answer(running_mean=[-3.0, 0], running_var=[0.0, 2]), sent, sent)
    assert good.arrays["norm.running_var"].tolist() == [0, 2]
    with pytest.raises(ValueError, match="running_var holds negative variances"):
        read_update(1, 0, answer(running_var=[1, -1e-6]), sent, sent)


@pytest.mark.parametrize("clustering", [GivenClusters({0: 0, 1: 1}), RandomClusters([1, 1], 0)])
def test_an_unexpected_newcomer_is_left_out(clustering):
    conversation = Conversation(
        LocalGrid(toy_app(), 3), {}, 1, Training(ClientRegistry({0: 1, 1: 2}))
    )
    found = clustering.find(conversation)
    conversation.nodes[2] = 3
    assert clustering.place([2], found, conversation).of_client == found.of_client
    assert list(conversation.registry.failures) == [2]
    assert isinstance(found, Clusters)


def comparisons(score=0.5, count=10, pair=(3, 1)):
    """Return a test's answer with what a client says of its models."""
    test = MetricRecord({protocol.NUM_EXAMPLES: 20, "accuracy": 0.5, "rmse": 2.0})
    said = MetricRecord(
        {protocol.NUM_EXAMPLES: count, protocol.SCORE: score, "local": [*map(float, pair)]}
    )
    return RecordDict({protocol.METRICS: test, protocol.VALIDATION: said})


@pytest.mark.parametrize(
    "wrong",
    [
        {"pair": (-1, 3)},
        {"pair": (1.5, 3)},
        {"pair": (8, 3)},
        {"pair": (1e300, 0)},
        {"pair": (math.nan, 0)},
        {"pair": (1, 2, 3)},
        {"count": 0.5},
        {"count": 0},
        {"score": 1.5},
        {"score": -0.5},
    ],
)
def test_a_comparison_that_cannot_be_is_refused(wrong):
    *_, found = read_tests(comparisons(), OF_CLASSES)
    assert found["local"] == [3, 1]
    with pytest.raises(ValueError, match=r'its comparison with "local" is|it compared models on'):
        read_tests(comparisons(**wrong), OF_CLASSES)


def test_a_loss_that_would_corrupt_a_mean_is_left_out():
    assert read_update(0, 0, trained(loss=3e38), WEIGHT, WEIGHT).loss == 3e38
    assert read_update(0, 0, trained(loss=1e308), WEIGHT, WEIGHT).loss is None


def test_of_numbers_a_comparison_has_a_mean_of_any_sign_and_a_variance():
    *_, found = read_tests(comparisons(score=7.0, pair=(-0.5, 2.5)), OF_A_NUMBER)
    assert found["local"] == [-0.5, 2.5]
    for pair in ((0.5, -1e-9), (3e38, 1.0), (0.0, math.inf)):
        with pytest.raises(ValueError, match="which is impossible"):
            read_tests(comparisons(score=7.0, pair=pair), OF_A_NUMBER)


@pytest.mark.parametrize(("largest", "is_fine"), [(5e4, True), (2e12, False), (np.nan, False)])
def test_what_is_beside_the_model_may_grow_from_0_to_any_sensible_number(largest, is_fine):
    name = f"{protocol.BESIDE}.w"
    content = RecordDict(
        {
            protocol.ARRAYS: protocol.to_record({name: np.array([largest], np.float32)}),
            protocol.METRICS: MetricRecord({protocol.NUM_EXAMPLES: 1}),
        }
    )
    first = {name: np.zeros(1, np.float32)}
    with (
        nullcontext() if is_fine else pytest.raises(ValueError, match=r"beside-the-model\.w holds")
    ):
        read_update(0, 0, content, first, first)
