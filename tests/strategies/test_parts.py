"""What clusterings and aggregations of one's own do wrong is said by their names."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from fl_core.wire import protocol
from strategies import Aggregation, ClusteredStrategy, Clustering, ClusterMean, Clusters
from tests.local_grid import LocalGrid
from tests.toy_app import run, toy_app

MODEL = protocol.to_record({"w": np.zeros(2, np.float32), "steps": np.array(0)})


@dataclass
class Found(Clustering):
    """One whose `find`, or what comes after training, is a test's."""

    finds: object = None
    sees: object = None

    def find(self, conversation):
        everybody = Clusters(dict.fromkeys(conversation.nodes, 0))
        return everybody if self.finds is None else self.finds(everybody)

    def after_training(self, state):
        return state.clusters if self.sees is None else self.sees(state)


@dataclass(frozen=True)
class Made(Aggregation):
    """The mean, as a test changes it."""

    change: object = None

    def __call__(self, state):
        return self.change(ClusterMean()(state))


def training(clustering, aggregation=None, clients=3):
    strategy = ClusteredStrategy(clustering, aggregation or ClusterMean())
    return run(strategy, LocalGrid(toy_app([0] * clients), clients), 2, MODEL)


def ends(_):
    sys.exit("bye")


@pytest.mark.parametrize(
    ("finds", "said"),
    [
        (lambda _: dict.fromkeys(range(3), 0), r"Found\.find returned a dict, but Clusters"),
        (lambda _: Clusters({}), r"Found\.find returned Clusters without any client"),
        (lambda _: Clusters({0: 0, 7: 1, 9: 1}), "put clients that there are not .*: 7, 9"),
        (lambda _: Clusters({0: 0, 1: 0.5, 2: 0}), r"client 1 into cluster 0\.5, but clusters are"),
        (lambda _: Clusters({0: 0, 1: -1, 2: 0}), "client 1 into cluster -1, but clusters are"),
        (lambda _: {}["x"], r"Found\.find fails: KeyError: 'x' \(test_parts\.py, line \d+\)"),
        (ends, r"Found\.find fails: SystemExit: bye \(test_parts\.py, line \d+\)"),
    ],
)
def test_what_a_clustering_finds_wrongly(finds, said):
    with pytest.raises(RuntimeError, match=said):
        training(Found(finds))


def test_what_a_clustering_sees_wrongly():
    with pytest.raises(RuntimeError, match=r"Found\.after_training returned a str, but Clusters"):
        training(Found(sees=lambda state: "all"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: None, r"Made\.__call__ returned None, but a list of 1 models"),
        (lambda models: models * 2, r"returned a list of 2, but a list of 1 models"),
        (lambda models: [list(models[0].values())], "a list as model 0, but a dict of w, steps"),
        (lambda models: [{"w": models[0]["w"]}], "a dict as model 0, but a dict of w, steps"),
        (lambda models: [{**models[0], "w": [0, 0]}], "whose w is a list, but a NumPy array is"),
        (
            lambda models: [{n: a.astype(np.float64) for n, a in models[0].items()}],
            r"whose w is float64 of shape \(2,\), but float32 of shape \(2,\) is expected",
        ),
        (lambda models: [{**models[0], "w": models[0]["w"][:1]}], r"float32 of shape \(1,\), but"),
        (lambda models: [{**models[0], "w": models[0]["w"] * np.nan}], "whose w holds NaN or inf"),
        (lambda models: models[5], r"Made\.__call__ fails: IndexError: list index out of range"),
    ],
)
def test_what_an_aggregation_makes_wrongly(change, said):
    with pytest.raises(RuntimeError, match=said):
        training(Found(), Made(change))


def test_those_that_do_nothing_wrong_are_let_alone():
    clusters = Clusters({0: np.int64(0), 1: np.int64(1)}, num_clusters=3)
    found = training(Found(lambda _: clusters), Made(list))
    assert len(protocol.unpack_models(found.arrays)) == 3
