"""MT-HFL: a server for each cluster (LPS), and one above them (GPS) for the common layers."""

import numpy as np
import pytest

from fl_core.messages import protocol
from fl_core.models.build import build_model
from strategies import Clusters, LpsGps, Round, make_strategy
from strategies.aggregations.lps_gps import common_layers
from tests.local_grid import LocalGrid
from tests.toy_app import in_rounds, run, toy_app

TWO_LAYERS = protocol.to_record(
    {
        "conv.w": np.zeros(2, np.float32),
        "head.w": np.zeros(2, np.float32),
        "steps": np.array(0, np.int64),
    }
)
TASKS = [0, 1, 0]


def after(rounds, *, layers=("conv",), tasks=TASKS, weighted_mean=True, corrupt=None, **options):
    """Return the models, and the strategy: LPS 0 has clients 0 and 2, LPS 1 has client 1."""
    options |= {"num_eigenvectors": 3, "weighted_mean": weighted_mean}
    strategy = make_strategy("mt-hfl", 2, common_layers=layers, **options)
    result = run(strategy, LocalGrid(toy_app(tasks, corrupt), len(tasks)), rounds, TWO_LAYERS)
    return [protocol.to_arrays(model) for model in protocol.unpack_models(result.arrays)], strategy


def values(models, name):
    return [model[name].tolist() for model in models]


def test_by_hand_common_layers_are_averaged_with_the_samples_of_each_lps():
    # With 10 and 30 images, LPS 0 moves to (1·10 + 3·30)/40 = 2.5; LPS 1, with 20, to (2, 2).
    # GPS: (2.5·40 + 2·20)/60 = 7/3 and (0·40 + 2·20)/60 = 2/3.
    models, strategy = after(1)
    assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
    assert values(models, "head.w") == [[2.5, 0], [2, 2]]
    assert np.allclose(values(models, "conv.w"), [[7 / 3, 2 / 3]] * 2)
    assert [int(model["steps"]) for model in models] == [1, 1]


@pytest.mark.parametrize("weighted", [True, False])
def test_all_layers_common_is_one_model_for_any_weights(weighted):
    models, _ = after(1, layers=("conv", "head"), weighted_mean=weighted)
    mean = 7 / 3 if weighted else 2  # (10 + 2·20 + 3·30)/60, or (1 + 2 + 3)/3
    assert np.allclose(values(models, "head.w"), [[mean, 2 / 3]] * 2)


def test_by_hand_lpss_exchange_after_every_so_many_local_rounds():
    # Local: 2.5 and 2 a round. After two: 5 and 4, together (5·40 + 4·20)/60 = 14/3; then not.
    first, _ = after(1, local_rounds=2)
    assert values(first, "conv.w") == [[2.5, 0], [2, 2]]
    second, _ = after(2, local_rounds=2)
    assert np.allclose(values(second, "conv.w"), [[14 / 3, 4 / 3]] * 2)
    third, _ = after(3, local_rounds=2)
    assert np.allclose(values(third, "conv.w"), [[14 / 3 + 2.5, 4 / 3], [14 / 3 + 2, 4 / 3 + 2]])
    assert values(third, "head.w") == [[7.5, 0], [6, 6]]


@pytest.mark.parametrize("local_rounds", [1, 2])
def test_by_hand_an_lps_without_an_update_shares_what_it_has(local_rounds):
    # Client 1 fails in round 2. LPS 0 is 2.5 above the last exchange, at 7/3: 7/3 + 2.5·40/60 = 4.
    # Without an exchange after round 1: (5·40 + 2·20)/60 = 4. Who never trained weighs nothing.
    for failing, expected in (({2}, 4), ({1, 2}, 5)):
        corrupt = {("train", 1): in_rounds(*failing)}
        models, strategy = after(2, local_rounds=local_rounds, corrupt=corrupt)
        assert strategy.clusters.of_client == {0: 0, 1: 1, 2: 0}
        assert [value[0] for value in values(models, "conv.w")] == pytest.approx([expected] * 2)


def test_a_layer_that_is_not_there():
    with pytest.raises(
        ValueError, match='names "con", but the model\'s layers are conv, head, ste'
    ):
        after(1, layers=("con",))


def state(models, *, examples, clusters, updates=(), number=1):
    return Round(number, clusters, models, updates, examples)


def test_a_name_stands_for_what_is_below_it_and_not_for_longer_names():
    models = [
        {"conv1.w": np.array([v]), "conv10.w": np.array([v]), "bias": np.array([v])}
        for v in (0.0, 4.0)
    ]
    clusters = Clusters({0: 0, 1: 1})
    found = LpsGps(("conv1", "bias"))(state(models, examples={0: 1, 1: 3}, clusters=clusters))
    assert [[float(model[n][0]) for n in model] for model in found] == [[3, 0, 3], [3, 4, 3]]
    assert [list(model) for model in found] == [list(model) for model in models]


@pytest.mark.parametrize(
    ("expected", "model", "common"),
    [
        ("paper", "cnn", ("conv1", "conv2")),
        ("paper", "mlp", ("hidden",)),
        ("paper", "logistic-regression", ()),
        ("output", "mlp", ("output",)),
    ],
)
def test_the_layers_that_clusters_share(expected, model, common):
    side = (3, 32, 32) if model == "cnn" else (1, 28, 28)
    assert common_layers(expected, build_model(model, side, 10, seed=0)) == common


def test_by_hand_where_clients_count_equally_their_samples_do_not_count_at_the_gps():
    # LPS 0: clients 0 and 1, with 10 and 20 images, (1 + 2)/2; LPS 1: client 2, with 30, at (3, 3).
    # GPS: (2·(1.5, 0) + 1·(3, 3))/3; by images, 30 each, it would be (2.25, 1.5).
    models, strategy = after(1, tasks=[0, 0, 1], weighted_mean=False)
    assert strategy.clusters.of_client == {0: 0, 1: 0, 2: 1}
    assert np.allclose(values(models, "conv.w"), [[2, 1]] * 2)
