"""What user-defined clusterings and aggregations do wrong is said by their names."""

import sys
from dataclasses import dataclass
from importlib import import_module

import numpy as np
import pytest
from flwr.app import RecordDict

from fl_core.messages import protocol
from fl_core.user_code import is_shutdown
from strategies import Aggregation, ClusteredStrategy, Clustering, ClusterMean, Clusters
from tests.local_grid import LocalGrid
from tests.toy_app import CorruptedApp, fail, run, toy_app

MODEL = protocol.to_record({"w": np.zeros(2, np.float32), "steps": np.array(0)})
MODELS = protocol.pack_models([MODEL])


@dataclass
class Found(Clustering):
    """One with `find`, or what comes after training, given by a test."""

    finds: object = None
    sees: object = None

    def find(self, conversation):
        clusters = Clusters(dict.fromkeys(conversation.nodes, 0))
        return clusters if self.finds is None else self.finds(clusters)

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
        (lambda _: Clusters({}), r"Found\.find returned Clusters of a dict, but a dict of clients"),
        (lambda _: Clusters([0, 0, 0]), "returned Clusters of a list, but a dict of clients"),
        (
            lambda _: Clusters({0: 0, 1: 2, 2: 1}, num_clusters=2),
            "client 1 into cluster 2, .* 0 to 1",
        ),
        (lambda _: Clusters({0: 0, 7: 1, 9: 1}), "put unknown clients .*: 7, 9"),
        (lambda _: Clusters({0: 0, 1: 0.5, 2: 0}), r"client 1 into cluster 0\.5, but clusters are"),
        (lambda _: Clusters({0: 0, 1: -1, 2: 0}), "client 1 into cluster -1, but clusters are"),
        (lambda _: {}["x"], r"Found\.find fails: KeyError: 'x' \(test_validation\.py, line \d+\)"),
        (ends, r"Found\.find fails: SystemExit: bye \(test_validation\.py, line \d+\)"),
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
        (lambda models: [{**models[0], "w": [0, 0]}], "but its w is a list, but a NumPy array is"),
        (
            lambda models: [{n: a.astype(np.float64) for n, a in models[0].items()}],
            r"but its w is float64 of shape \(2,\), but float32 of shape \(2,\) is expected",
        ),
        (lambda models: [{**models[0], "w": models[0]["w"][:1]}], r"float32 of shape \(1,\), but"),
        (
            lambda models: [{**models[0], "w": models[0]["w"] * np.nan}],
            "but its w holds NaN or inf",
        ),
        (lambda models: models[5], r"Made\.__call__ fails: IndexError: list index out of range"),
    ],
)
def test_what_an_aggregation_makes_wrongly(change, said):
    with pytest.raises(RuntimeError, match=said):
        training(Found(), Made(change))


def test_who_fails_while_a_clustering_asks_may_be_among_its_clients(caplog):
    @dataclass
    class Asks(Found):
        def find(self, conversation):
            clients = list(conversation.nodes)
            sent = RecordDict({protocol.ARRAYS: MODELS})
            conversation.query(protocol.LOSSES, protocol.metrics_of, sent)
            return Clusters(dict.fromkeys(clients, 0))

    app = CorruptedApp(toy_app([0] * 3), {(protocol.query(protocol.LOSSES), 1): fail})
    strategy = ClusteredStrategy(Asks(), ClusterMean())
    run(strategy, LocalGrid(app, 3), 2, MODEL)
    assert "client 1 is left out, its losses failed: " in caplog.text
    assert strategy.clusters.of_client.keys() == {0, 1, 2}


def test_a_stop_of_flower_s_passes():
    """Ctrl-C at a SuperLink calls sys.exit in anything that the ServerApp does just then."""

    file = import_module("flwr.supercore.exit.exit").__file__
    code = compile("def stopped(_): raise SystemExit(0)", file, "exec")
    theirs = {}
    exec(code, theirs)  # noqa: S102 - theirs sets a timer that ends this process
    with pytest.raises(SystemExit) as info:
        training(Found(theirs["stopped"]))
    assert is_shutdown(info.value)
