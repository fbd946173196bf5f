"""Every strategy by its name, parts with parts, on real images.

Every aggregation of the papers with every local objective, each time with the next clustering; one
clustering with the aggregations that survive attackers. In strategies/test_rounds.py there are all
pairs of clusterings and aggregations, without images.
"""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from fl_app.config.run_config import parse_config
from fl_app.config.strategy_factory import Setting, build_strategy
from fl_core.objectives.known import OBJECTIVES
from fl_core.objectives.plain import Plain
from fl_core.partitions.federation import simulate_federation
from strategies.catalogue import (
    AGGREGATIONS,
    CLUSTERINGS,
    ROBUST,
    SYSTEMS,
    system_of,
)
from strategies.checks import beside_conflict
from tests.app_runs import (
    DEFAULTS,
    LARGE_STEPS,
    models_of,
    of_strategy,
    run,
    untrained_encoder,
    whole_space,
    without_seconds,
)
from tests.samples import sampled

PLAIN = [name for name, system in SYSTEMS.items() if system.objective is Plain]
# With norms, which this model has not, in app/run/test_local_objectives.py.
OBJECTIVES_HERE = [name for name in OBJECTIVES if name != "private-norms"]
PAPERS = [name for name, part in AGGREGATIONS.items() if part not in ROBUST]
PAIRS = [
    pair
    for pair in itertools.product(PAPERS, OBJECTIVES_HERE)
    if not beside_conflict(*system_of("+".join(("single", *pair))).parts)
]


def goes(clustering, pair):
    return not beside_conflict(*system_of("+".join((clustering, *pair))).parts)


def triples():
    """Yield each pair with a clustering that it goes with, in turn, then the other clusterings."""
    turns, left = itertools.cycle(CLUSTERINGS), set(CLUSTERINGS)
    for pair in PAIRS:
        clustering = next(one for one in turns if goes(one, pair))
        left.discard(clustering)
        yield "+".join((clustering, *pair))
    for clustering in sorted(left):  # "soft" goes with none: its objectives train several models
        for pair in itertools.islice((one for one in PAIRS if goes(clustering, one)), 1):
            yield "+".join((clustering, *pair))


TRIPLES = list(triples())
SURVIVING = [f"spectral+{part.name}" for part in ROBUST]
PRESETS = ("fedprox", "ditto", "fedper", "fedrep")
MODEL = (784 * 10 + 10) * 4  # bytes of the logistic regression


@pytest.fixture(scope="module", autouse=True)
def plane_without_umap():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strategies.clusterings.flt.embed_signatures", whole_space)
        yield


@pytest.fixture(scope="module")
def every_strategy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("all")
    options = {"clients": 9, "strategy": "all", "num_server_rounds": 3, "fraction_train": 0.7}
    options |= LARGE_STEPS | untrained_encoder(folder)
    return folder / "out", run(folder / "out", **options), options


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAIN)
def test_a_strategy_runs_by_its_name(every_strategy, name):
    folder, summary, _ = every_strategy
    one = of_strategy(summary, name)
    assert one["rounds"] == 3
    assert one["failures"] == []
    assert min(one["accuracy-per-client"]) > 0.1
    assert one["accuracy"] > 0.4
    models = models_of(folder, name)
    assert all(np.isfinite(array).all() for model in models.values() for array in model.values())
    if name == "flt-graph":
        assert list(models) == [f"client-{client}" for client in range(9)]
    else:
        assert {f"cluster-{cluster}" for cluster in one["clusters"]} <= set(models)


@pytest.mark.slow
@pytest.mark.faults  # in strategies/test_rounds.py, too, without images
def test_no_strategy_depends_on_the_order_of_replies(every_strategy, tmp_path):
    _, summary, options = every_strategy
    shuffle = random.Random(0).shuffle  # noqa: S311 - any order will do

    def in_any_order(replies):
        shuffle(replies)
        return replies

    shuffled = run(tmp_path / "shuffled", order=in_any_order, **options)
    for name in PLAIN:
        one, other = of_strategy(summary, name), of_strategy(shuffled, name)
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert without_seconds(summary) == without_seconds(shuffled)


@pytest.mark.slow
def test_strategies_that_look_at_images_before_training_find_the_tasks(every_strategy):
    _, summary, _ = every_strategy
    names = ("rcc-pfl", "mt-hfl", "pacfl", "optimum")
    assert {of_strategy(summary, name)["ari"] for name in names} == {1}


@pytest.mark.slow
def test_strategies_that_look_at_the_first_training_find_the_tasks_of_right_labels(every_strategy):
    _, summary, _ = every_strategy
    assert {of_strategy(summary, name)["ari"] for name in ("fedclust", "fedgroup")} == {1}


def test_the_triples_hold_every_pair_of_parts_that_they_should():
    parts = {tuple(triple.split("+")) for triple in TRIPLES}
    assert {clustering for clustering, *_ in parts} == set(CLUSTERINGS) - {"soft"}
    assert {tuple(pair) for _, *pair in parts} == set(PAIRS)


@pytest.fixture(scope="module")
def every_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    options = LARGE_STEPS | untrained_encoder(folder) | {"model": "mlp-32", "evaluate_every": 2}
    options |= {"head_epochs": 1, "pfedme_weight": 1.0}
    summary = run(folder / "out", strategy=",".join([*TRIPLES, *SURVIVING, *PRESETS]), **options)
    return folder / "out", summary


@pytest.mark.slow
@pytest.mark.faults  # every pair of a clustering and an aggregation is in strategies/test_rounds.py
@pytest.mark.parametrize("name", [*TRIPLES, *SURVIVING])
def test_parts_run_together(every_pair, name):
    folder, summary = every_pair
    clustering, aggregation, *local = name.split("+")
    one, models = of_strategy(summary, name), models_of(folder, name)
    assert np.isfinite(one["accuracy-per-client"]).all()
    assert one["accuracy"] > 0.4
    assert one["failures"] == []
    if aggregation == "graph" or {*local} - {"plain", "prox", "scaffold"}:
        assert list(models) == [f"client-{client}" for client in range(6)]
    elif clustering not in ("loss", "model", "all-models"):  # which allow empty clusters
        assert set(models) == {f"cluster-{cluster}" for cluster in one["clusters"]}


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_one_model_for_all_with_its_objective(every_pair, name):
    _, summary = every_pair
    found = of_strategy(summary, name)
    assert found["failures"] == []
    assert set(found["clusters"]) == {0}
    assert found["accuracy"] > 0.3


@pytest.mark.parametrize(
    "name", [n for n, s in SYSTEMS.items() if s.weighted == s.aggregation.weighted]
)
def test_a_name_is_its_parts(name):
    system = SYSTEMS[name]
    words = "+".join(part.name for part in system.parts)
    assert system_of(words) == replace(system, paper="", options={})
    if system.objective is Plain:
        assert system_of(words.removesuffix("+plain")) == replace(system, paper="", options={})


def test_a_strategy_sends_the_same_whatever_ran_before_it(tmp_path):
    """What a client keeps from one strategy of a run is nothing to the next."""
    options = untrained_encoder(tmp_path) | LARGE_STEPS
    summary = run(tmp_path / "out", strategy="single,flt,single+mean", **options)
    before, _, after = summary["runs"]
    for key in ("bytes", "accuracy-per-client", "clusters"):
        assert before[key] == after[key]


@pytest.mark.slow
@pytest.mark.faults
def test_the_mean_is_weighted_as_the_paper_does_or_as_told(tmp_path):
    """MT-HFL on a model of one layer shares nothing: it is RCC-PFL with a weighted mean."""
    accuracies = {}
    for weighted in ("paper", "true", "false"):
        options = {"strategy": "rcc-pfl,mt-hfl", "weighted_mean": weighted, **LARGE_STEPS}
        summary = run(tmp_path / weighted, **options)
        for name in ("rcc-pfl", "mt-hfl"):
            one = of_strategy(summary, name)
            accuracies[name, weighted] = one["accuracy-per-client"]
            assert one["bytes"]["between-servers-up"] == 0
    plain, weighted = accuracies["rcc-pfl", "false"], accuracies["rcc-pfl", "true"]
    assert plain != weighted
    assert accuracies["rcc-pfl", "paper"] == accuracies["mt-hfl", "false"] == plain
    assert accuracies["mt-hfl", "paper"] == accuracies["mt-hfl", "true"] == weighted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "common"),
    sampled(
        [
            ({"model": "mlp-32"}, {"hidden"}),
            ({"model": "cnn", "learning_rate": 0.02}, {"conv1", "conv2"}),
            ({"model": "mlp-32", "common_layers": "output"}, {"output"}),
            ({"model": "mlp-32", "local_rounds": 2, "num_server_rounds": 2}, {"hidden"}),
            ({"model": "mlp-32", "local_rounds": 2, "num_server_rounds": 3}, set()),
        ],
        2,
    ),
)
def test_common_layers_are_equal_after_an_exchange_and_others_are_not(tmp_path, options, common):
    summary = run(tmp_path, strategy="mt-hfl", **(LARGE_STEPS | options))
    models = list(models_of(tmp_path, "mt-hfl").values())
    assert len(models) == 3
    for one, other in itertools.combinations(models, 2):
        equal = {name for name in one if np.array_equal(one[name], other[name])}
        assert equal == {name for name in one if name.split(".")[0] in common}
    exchanges = options.get("num_server_rounds", 2) // options.get("local_rounds", 1)
    shared = sum(a.nbytes for n, a in models[0].items() if n.split(".")[0] in (common or "hidden"))
    if common:
        sent = summary["runs"][0]["bytes"]
        assert sent["between-servers-up"] == exchanges * 3 * shared == sent["between-servers-down"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"strategy": "own+lps-gps", "model": "mlp", "common_layers": "hidden,hidde"},
            'common-layers names "hidde", but the model\'s layers are hidden, output',
        ),
        *(
            (
                {"strategy": name, "num_clusters": word},
                f"{name} needs a number of clusters, and num-clusters is {word}",
            )
            for name, word in (
                ("fedsem", "silhouette"),
                ("ifca", "elbow"),
                ("ifca-pfl", "auto"),
            )
        ),
        (
            {"strategy": "single,rcc-pfl", "newcomers": 4, "newcomer_round": 2},
            "num-clusters is 3, but there are 2 clients at the start",
        ),
        ({"newcomers": 6, "newcomer_round": 2}, "newcomers is 6, but there are 6 clients"),
        ({"drift_clients": 3, "drift_round": 2, "num_tasks": 2}, "drift-clients is 3, but 2 of"),
        ({"attack": "sign-flip", "malicious": 0.95}, "malicious is 0.95, but of 6 clients"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent_or_written(tmp_path, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rule", ["auto", "elbow", "silhouette"])
def test_the_number_of_clusters_can_be_chosen_from_the_images(tmp_path, rule):
    summary = run(tmp_path, clients=10, strategy="rcc-pfl", num_clusters=rule, num_server_rounds=1)
    assert summary["runs"][0]["ari"] == 1


def test_ifcas_models_are_different_from_the_start_and_from_seed_to_seed():
    config = parse_config({**DEFAULTS, "num-tasks": 3})
    federation = simulate_federation(config.federation_settings(6, 0))
    draws = []
    for seed in (0, 1):
        strategy = build_strategy("ifca", Setting(config, federation.dataset, seed, federation), {})
        draws += [strategy.clustering.draw_model(number)["output.weight"] for number in range(3)]
    for one, other in itertools.combinations(draws, 2):
        assert np.abs(one - other).max() > 0.01


def test_ifca_sends_every_model_to_every_client_once_a_round(tmp_path):
    summary = run(tmp_path, strategy="ifca", num_server_rounds=3)
    sent = summary["runs"][0]["bytes"]
    down = sent["pre-round-down"] + sent["train-down"]
    assert 3 * 6 * 3 * MODEL < down < 1.02 * 3 * 6 * 3 * MODEL
    assert 3 * 6 * MODEL < sent["train-up"] < 1.02 * 3 * 6 * MODEL


def test_an_encoder_of_ones_own_is_what_flt_compares_images_by(tmp_path, monkeypatch):
    monkeypatch.setenv("FL_CACHE_DIR", str(tmp_path / "cache"))
    found = []
    for seed in (0, 1):
        options = untrained_encoder(tmp_path, seed) | {"strategy": "flt", "num_server_rounds": 1}
        summary = run(tmp_path / str(seed), clients=12, **options)
        assert summary["runs"][0]["ari"] == 1
        with np.load(tmp_path / f"{seed}/similarity-flt-seed-0.npz") as saved:
            found.append(saved["similarity"])
    assert not np.array_equal(*found)
    assert not list((tmp_path / "cache").glob("autoencoder*"))
    encoder = (16 * 9 + 16 + 4 * 16 * 9 + 4 + 196 * 128 + 128) * 4
    assert 12 * encoder < summary["runs"][0]["bytes"]["pre-round-down"] < 1.05 * 12 * encoder
