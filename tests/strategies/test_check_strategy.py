"""All strategies of the catalogue pass the check of user-defined ones, which detects faults."""

from dataclasses import dataclass, field
from functools import partial

import pytest

from clients.signatures.autoencoder import build_autoencoder
from fl_app.testing import TASKS, check_strategy, initial_model
from strategies import (
    Aggregation,
    ClusteredStrategy,
    Clustering,
    ClusterMean,
    Clusters,
    GraphMean,
    LossClustering,
    SingleCluster,
    make_strategy,
)
from strategies.catalogue import ROBUST, SYSTEMS, parameters
from strategies.clusterings.first_update import OnceByTraining

pytestmark = pytest.mark.usefixtures("plane_without_umap")


def arrays_of(network):
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


GIVEN = {
    "num_clusters": 3,
    "warm_up_rounds": 1,
    "encoder": arrays_of(build_autoencoder(1, 0)),
    "fine_tune": "never",
    "draw_model": lambda number: arrays_of(initial_model(number)),
    "labels": dict(enumerate(TASKS)),
    "sizes": [2, 2, 1],
    "common_layers": ("hidden",),
    "norm_layers": "norm",
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_strategy_of_the_catalogue_passes(name, monkeypatch):
    taken = {field for part in SYSTEMS[name].parts for field in parameters(part)}
    given = {key: GIVEN[key] for key in GIVEN.keys() & taken - SYSTEMS[name].options.keys()}
    strategy, grouped = make_strategy(name, fraction_train=0.8, **given), []
    if isinstance(strategy.clustering, OnceByTraining):
        usual = type(strategy.clustering).group
        monkeypatch.setattr(
            type(strategy.clustering),
            "group",
            lambda *given: [usual(*given), grouped.append(given[1])][0],
        )
    check_strategy(strategy)
    assert bool(grouped) == isinstance(strategy.clustering, OnceByTraining)


@pytest.mark.parametrize("kind", ROBUST)
def test_robust_aggregations_pass(kind):
    check_strategy(ClusteredStrategy(SingleCluster(), kind()))


@pytest.mark.parametrize("combining", [ClusterMean, GraphMean])
def test_a_warm_start_of_ifca_passes(combining):
    clustering = LossClustering(2, GIVEN["draw_model"], initial_models="warm")
    check_strategy(ClusteredStrategy(clustering, combining(), fraction_train=0.7))


def test_secure_sums_pass():
    check_strategy(make_strategy("single", secure_aggregation=True))


@dataclass
class Momentum(Aggregation):
    """FedAvgM; what it remembers is in a field that checkpoints and new starts know, or is not."""

    moved: dict = field(default_factory=dict, init=False)
    is_remembered: bool = True

    def __call__(self, state):
        (before,), (mean,) = state.models, ClusterMean()(state)
        last = self.moved if self.is_remembered else self.__dict__.setdefault("hidden", {})
        for name, array in before.items():
            if array.dtype.kind == "f":
                last[name] = mean[name] - array + last.get(name, 0) / 2
        return [{n: before[n] + last[n] if n in last else mean[n] for n in mean}]


@dataclass
class Changed(Aggregation):
    """The mean, changed by a fault."""

    change: object

    def __call__(self, state):
        return self.change(state, ClusterMean()(state))


def in_place(state, models):
    state.models[0]["output.bias"][:] = 0
    return models


@dataclass
class FirstToAnswer(Clustering):
    """A fault: the clusters depend on the order of nodes."""

    def find(self, conversation):
        first = min(conversation.nodes, key=conversation.nodes.get)
        return Clusters({client: int(client != first) for client in conversation.nodes})


SINGLE = partial(ClusteredStrategy, SingleCluster())


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        (SINGLE(Momentum()), None),
        (SINGLE(Momentum(is_remembered=False)), "are others when the strategy starts again"),
        (SINGLE(Changed(in_place)), "read-only"),
        (SINGLE(Changed(lambda state, models: models * 2)), "a list of 1 models is expected"),
        (
            SINGLE(Changed(lambda _, models: [{n: a[:1] for n, a in models[0].items()}])),
            "Changed.__call__",
        ),
        (ClusteredStrategy(FirstToAnswer()), "the clusters are others when the strategy starts"),
    ],
)
def test_faults_are_detected(strategy, problem):
    if problem is None:
        check_strategy(strategy)
        return
    with pytest.raises((AssertionError, RuntimeError), match=problem):
        check_strategy(strategy)
