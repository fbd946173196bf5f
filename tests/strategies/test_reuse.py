"""What comes to the same is trained once; app/run/test_reuse.py compares whole runs."""

from dataclasses import dataclass

import numpy as np
import pytest

from fl_core.models.checkpoint import load_checkpoint, save_checkpoint
from strategies import (
    Aggregation,
    ClusterMean,
    Clusters,
    GivenClusters,
    Local,
    SignatureClustering,
    SingleCluster,
)
from strategies.engine.training import Training
from strategies.objectives import Prox
from strategies.reuse import ReusingStrategy, Trainings, depends_on
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import TASKS, fail, in_rounds, run, toy_app, weights

LABELS = dict(enumerate(TASKS))


def train(finished, clustering=None, *, grid=None, spoil=None, rounds=3, **options):
    """Train, and return the strategy, its models' first weights and in which rounds one trained."""
    trained = []

    def note(message, context, answer):
        trained.append(message.metadata.group_id)
        return answer

    app = toy_app(TASKS, {("train", 0): note, **(spoil or {})})
    strategy = ReusingStrategy(
        clustering or GivenClusters(LABELS), **{"finished": finished, "label": "one", **options}
    )
    result = run(strategy, grid(app) if grid else LocalGrid(app, len(TASKS)), rounds)
    return strategy, weights(result), [int(number) for number in trained]


def test_the_second_takes_everything_over_but_its_pre_round():
    finished, heard = Trainings(), []
    first, wanted, trained = train(finished)
    assert trained == [1, 2, 3]
    first.training.pre_round_traffic.up += 7  # as if finding the clusters had cost that
    for report in first.reports:
        report.bytes += 7
    again, found, trained = train(
        finished, label="other", on_round=lambda report: heard.append(report.round)
    )
    assert (found, trained, heard) == (wanted, [], [1, 2, 3])
    assert (first.training.same_as, again.training.same_as) == ("", "one")
    assert [one.tested for one in again.reports] == [one.tested for one in first.reports]
    assert [one.bytes for one in again.reports] == [one.bytes - 7 for one in first.reports]
    assert again.training.bytes == first.training.bytes - 7
    assert again.training.train_traffic == first.training.train_traffic
    assert again.training.seconds.train == first.training.seconds.train
    assert len(finished.by_hash) == 1


@dataclass
class Later(GivenClusters):
    """Clusters that might change after all."""

    def after_training(self, state):
        return state.clusters


class Unnamed(Aggregation):
    """Nothing says what its factor is."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, state):
        return state.models


# Somebody's own, which says the same of itself.
NAMESAKE = type("ClusterMean", (ClusterMean,), {"__module__": "elsewhere"})


@pytest.mark.parametrize(
    "other",
    [
        {"clustering": SingleCluster()},
        {"clustering": GivenClusters(LABELS, later={9: LABELS})},
        {"clustering": Later(LABELS)},
        {"aggregation": ClusterMean(weighted=True)},
        {"aggregation": Unnamed(2)},
        {"aggregation": NAMESAKE()},
        {"local": Prox(0.5)},
        {"seed": 1},
        {"fraction_train": 0.9},
        {"fraction_evaluate": 0.5},
        {"evaluate_every": 2},
        {"rounds": 4},
        {"finished": None},
    ],
    ids="-".join,
)
def test_what_differs_in_anything_that_counts_is_trained(other):
    finished = Trainings()
    train(finished, fraction_train=1.0)
    strategy, _, trained = train(**{"finished": finished, **other})
    assert trained
    assert strategy.training.same_as == ""


@dataclass(frozen=True)
class ByNeighbours(ClusterMean):
    """Looks at more than who is with whom."""

    def __call__(self, state):
        return super().__call__(state) if state.clusters.neighbours else list(state.models)


def test_an_aggregation_of_ones_own_may_look_at_anything_and_is_trained():
    finished = Trainings()
    for _ in range(2):
        strategy, _, trained = train(finished, aggregation=ByNeighbours())
        assert trained
        assert strategy.training.same_as == ""


class AllFirst(SingleCluster):
    """All train in round 1, whatever share of them is drawn."""

    def wants_all(self, number):
        return number == 1


def test_who_lets_others_train_shares_nothing_with_who_does_not():
    finished = Trainings()
    train(finished, SingleCluster(), fraction_train=0.4)
    strategy, *_ = train(finished, AllFirst(), fraction_train=0.4)
    assert strategy.training.same_as == ""


def test_an_aggregation_of_which_nothing_is_known_is_like_no_other():
    """Not even like itself: when it is gone, another may have its address."""
    finished, aggregation = Trainings(), Unnamed(1)
    train(finished, aggregation=aggregation)
    assert train(finished, aggregation=aggregation)[2] == [1, 2, 3]
    assert finished.by_hash == {}


def test_a_training_in_which_a_client_failed_is_no_other_s():
    finished = Trainings()
    train(finished, spoil={("train", 2): in_rounds(2, spoil=fail)})
    train(finished, spoil={("evaluate", 2): in_rounds(3, spoil=fail)})
    assert finished.by_hash == {}


def test_a_training_that_newcomers_joined_is_no_other_s():
    finished = Trainings()
    late = 6
    strategy, *_ = train(finished, grid=lambda app: Visits(app, len(TASKS), {late: {2, 3}}))
    assert late in strategy.clusters.of_client
    assert finished.by_hash == {}


def test_a_resumed_training_is_shared_and_so_is_what_it_took_over(tmp_path):
    finished = Trainings()
    first, wanted, _ = train(finished)
    other, *_ = train(finished, label="other")
    for number, strategy in enumerate((first, other)):
        save_checkpoint(tmp_path / str(number), strategy.checkpoint())
    resumed = ReusingStrategy(GivenClusters(LABELS), finished=Trainings(), label="again")
    resumed.resume(load_checkpoint(tmp_path / "0"))
    run(resumed, LocalGrid(toy_app(TASKS), len(TASKS)), 3)
    assert train(resumed.finished)[1:] == (wanted, [])
    assert load_checkpoint(tmp_path / "1")["same-as"] == "one"
    # What was taken over stays the other's when its run goes on.
    again = ReusingStrategy(GivenClusters(LABELS), finished=finished, label="other")
    again.resume(load_checkpoint(tmp_path / "1"))
    run(again, LocalGrid(toy_app(TASKS), len(TASKS)), 3)
    assert train(finished, label="third")[0].training.same_as == "one"


def test_models_of_one_s_own_are_shared():
    """`local` gives each client a cluster; so does this clustering, by other numbers' order."""
    finished = Trainings()
    own = {client: client for client in range(len(TASKS))}
    train(finished, GivenClusters(own))
    alone = Local(fraction_train=1.0)
    strategy, found, trained = train(finished, alone.clustering)
    assert (strategy.training.same_as, trained) == ("one", [])
    assert len(found) == len(TASKS)


class Restless(SignatureClustering):
    """It might ask again after all."""

    def before_training(self, state, conversation):
        return state.clusters


def test_flt_shares_only_where_nothing_makes_it_ask_again():
    assert SignatureClustering({}, data_stay=True).stays
    for asks in ({"data_stay": False}, {"watch_updates": 0.15}, {"refresh_every": 2}):
        assert not SignatureClustering({}, **{"data_stay": True, **asks}).stays, asks
    assert not Restless({}, data_stay=True).stays


def begun(*models, private=None, of_client=None, near=None):
    training = Training(private=private or {}, per_client=near is not None)
    clusters = Clusters(of_client or {0: 0, 1: 1})
    training.begin({}, Clusters(clusters.of_client, len(models), models=models, neighbours=near))
    return training


def test_the_hash_sees_models_clusters_and_settings():
    one, other = ({"w": np.array([value], np.float32)} for value in (1, 2))
    hashes = {
        depends_on(training, settings)
        for training, settings in [
            (begun(one, other), []),
            (begun(other, one), []),
            (begun(one, one), []),
            (begun({"v": one["w"]}, other), []),
            (begun({"w": one["w"].view(np.int32)}, other), []),
            (begun({"w": one["w"][None]}, other), []),
            (begun(one, other, private=one), []),
            (begun(one, other, of_client={0: 0, 2: 1}), []),
            (begun(one, other), [0.5]),
            (begun(one, other), ["0.5"]),
            (begun(one, other, near={0: {0}, 1: {1}}), []),
            (begun(one, other, near={0: {0, 1}, 1: {1}}), []),
        ]
    }
    assert len(hashes) == 12
    for unknown in (lambda: 1, {"of": object()}, np.arange(2000)):
        assert depends_on(begun(one, other), [unknown]) == ""
    copies = begun({"w": one["w"].copy()}, other, of_client={1: 1, 0: 0})
    assert depends_on(copies, []) == depends_on(begun(one, other), [])
