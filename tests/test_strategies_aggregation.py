import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.aggregation import ClusterMean, mean_model
from strategies.rounds import Clusters, Round, Update


def model(*values):
    return {"w": np.array(values, np.float32)}


def update(client, cluster, values, n=1):
    return Update(client, cluster, model(*values), n)


def combine(aggregation, models, updates, number=1, clusters=None, examples=None):
    of_client = {u.client: u.cluster for u in updates}
    clusters = clusters or Clusters(dict(sorted(of_client.items())), len(models))
    examples = examples or {u.client: u.num_examples for u in updates}
    per_client = aggregation.per_client
    return aggregation(Round(number, clusters, models, updates, examples, (), per_client))


def test_by_hand_plain_and_weighted_means():
    models = [model(0, 0), model(5, 5)]
    updates = [update(0, 0, (1, 2), 10), update(2, 0, (3, 6), 30), update(1, 1, (7, 7), 5)]
    plain = combine(ClusterMean(), models, updates)
    assert [m["w"].tolist() for m in plain] == [[2, 4], [7, 7]]
    weighted = combine(ClusterMean(weighted=True), models, updates)
    assert [m["w"].tolist() for m in weighted] == [[2.5, 5], [7, 7]]


def test_an_empty_cluster_keeps_its_model():
    models = [model(1, 1), model(2, 2)]
    kept = combine(ClusterMean(), models, [update(0, 0, (9, 9))])
    assert kept[1]["w"].tolist() == [2, 2]
    assert kept[1] is not models[1]


def test_models_and_updates_are_left_as_they_were():
    models, updates = [model(1, 1)], [update(0, 0, (3, 4)), update(1, 0, (5, 6))]
    combine(ClusterMean(), models, updates)
    assert models[0]["w"].tolist() == [1, 1]
    assert [u.arrays["w"].tolist() for u in updates] == [[3, 4], [5, 6]]


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(6)), st.booleans())
def test_the_order_of_replies_changes_no_bit(order, weighted):
    rng = np.random.default_rng(0)
    updates = [
        Update(i, i % 2, {"w": rng.normal(size=50).astype(np.float32)}, i + 1) for i in range(6)
    ]
    models = [{"w": np.zeros(50, np.float32)}] * 2
    mean = ClusterMean(weighted)
    expected = combine(mean, models, updates)
    shuffled = combine(mean, models, [updates[i] for i in order])
    for a, b in zip(expected, shuffled, strict=True):
        assert np.array_equal(a["w"], b["w"])


def test_relabelled_clusters_give_relabelled_models():
    updates = [update(0, 0, (1,)), update(1, 1, (5,)), update(2, 0, (3,))]
    swapped = [Update(u.client, 1 - u.cluster, u.arrays, 1) for u in updates]
    models = [model(0), model(0)]
    first, second = combine(ClusterMean(), models, updates), combine(ClusterMean(), models, swapped)
    assert [m["w"].tolist() for m in first] == [m["w"].tolist() for m in reversed(second)]


def test_scaling_all_weights_changes_nothing():
    models = [model(1, 2), model(3, 4), model(5, 9)]
    first, second = mean_model(models, [1, 2, 3]), mean_model(models, [10, 20, 30])
    assert np.allclose(first["w"], second["w"], rtol=1e-7)


def test_integer_buffers_keep_their_type_and_scalars_their_shape():
    models = [{"n": np.array(v, np.int64), "w": np.array(v, np.float16)} for v in (3, 4, 4)]
    found = mean_model(models, [1, 1, 1])
    assert found["n"].dtype == np.int64
    assert found["n"].shape == ()
    assert found["n"] == 4
    assert found["w"].dtype == np.float16


def test_sums_are_in_float64():
    # In float32, 1e8 + 1 is 1e8.
    found = mean_model([model(1e8), model(1), model(-1e8)], [1, 1, 1])
    assert found["w"][0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [float("nan"), 1]])
def test_weights_without_a_positive_sum(weights):
    with pytest.raises(ValueError, match="positive sum of weights"):
        mean_model([model(1), model(2)], weights)


def test_one_client_in_one_cluster_gets_its_own_model_back():
    values = (0.1, 0.2, 0.3)
    (found,) = combine(ClusterMean(weighted=True), [model(0, 0, 0)], [update(0, 0, values, 17)])
    assert np.array_equal(found["w"], model(*values)["w"])
