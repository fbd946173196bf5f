import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.aggregations.aggregation import ClusterMean, GraphMean
from strategies.catalogue import ROBUST
from strategies.rounds.means import cluster_models, mean_held_models, mean_model
from strategies.rounds.round_state import Clusters, Round, Update


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


@pytest.mark.parametrize("aggregation", [ClusterMean(), *(kind() for kind in ROBUST)])
def test_a_cluster_of_which_no_client_answers_retains_its_model_itself(aggregation):
    """Or it would be written again in every round, for each of them."""
    models = [model(1, 1), model(2, 2)]
    assert combine(aggregation, models, [update(0, 0, (9, 9))])[1] is models[1]


def test_integer_buffers_retain_their_type_and_scalars_their_shape():
    models = [{"n": np.array(v, np.int64), "w": np.array(v, np.float16)} for v in (3, 4, 4)]
    found = mean_model(models, [1, 1, 1])
    assert found["n"].dtype == np.int64
    assert found["n"].shape == ()
    assert found["n"] == 4
    assert found["w"].dtype == np.float16


@pytest.mark.parametrize(
    ("votes", "found"), [((1, 0, 0), False), ((1, 1, 0), True), ((1, 0), False), ((1, 1), True)]
)
def test_a_truth_value_is_that_of_most_and_of_as_many_false(votes, found):
    masks = [{"mask": np.array([vote], bool)} for vote in votes]
    assert mean_model(masks, [1] * len(votes))["mask"].tolist() == [found]


def test_sums_are_in_float64():
    # In float32, 1e8 + 1 is 1e8.
    found = mean_model([model(1e8), model(1), model(-1e8)], [1, 1, 1])
    assert found["w"][0] == pytest.approx(1 / 3)


@pytest.mark.parametrize("weights", [[0, 0], [1, -1], [float("nan"), 1], [float("inf"), 1]])
def test_weights_without_a_positive_sum(weights):
    with pytest.raises(ValueError, match="positive sum of weights"):
        mean_model([model(1), model(2)], weights)


# GraphMean: a model for each client.


def chain(count):
    """Clients in a row, each linked with the next."""
    linked = {i: frozenset(j for j in (i - 1, i, i + 1) if 0 <= j < count) for i in range(count)}
    return Clusters(dict.fromkeys(range(count), 0), neighbours=linked)


def test_by_hand_graph_means_over_a_chain():
    # Weights 10, 20, 30: (1·10 + 4·20)/30 = 3; (1·10 + 4·20 + 9·30)/60 = 6; (4·20 + 9·30)/50 = 7.
    updates = [update(0, 0, (1,), 10), update(1, 0, (4,), 20), update(2, 0, (9,), 30)]
    models = [model(0)] * 3
    weighted = combine(GraphMean(), models, updates, clusters=chain(3))
    assert [m["w"].tolist() for m in weighted] == [[3], [6], [7]]
    plain = combine(GraphMean(weighted=False), models, updates, clusters=chain(3))
    assert [m["w"].tolist() for m in plain] == [[2.5], [np.float32(14 / 3)], [6.5]]


def test_by_hand_in_a_graph_absent_clients_get_what_their_neighbours_trained():
    # Clients 1, 3 and 4 are away. Client 1 lies between the others: (1·10 + 9·30)/40 = 7. Client 3
    # has client 2 alone, and client 4 has none: it stays at 60.
    updates = [update(0, 0, (1,), 10), update(2, 0, (9,), 30)]
    models = [model(7), model(50), model(8), model(40), model(60)]
    found = combine(GraphMean(), models, updates, clusters=chain(5))
    assert [m["w"].tolist() for m in found] == [[1], [7], [9], [9], [60]]


def test_graph_means_are_of_what_was_trained_not_of_means_made_before():
    # The fault: models overwritten in place, so that client 1 averages client 0's mean. In a chain
    # of 8, 0, 0, 0: means 4, 8/3, 0, 0; in place, the second would be 4/3.
    updates = [update(i, 0, (v,)) for i, v in enumerate((8, 0, 0, 0))]
    found = combine(GraphMean(), [model(0)] * 4, updates, clusters=chain(4))
    assert [m["w"].tolist() for m in found] == [[4], [np.float32(8 / 3)], [0], [0]]
    assert [u.arrays["w"].tolist() for u in updates] == [[8], [0], [0], [0]]
    order = [3, 1, 0, 2]
    again = combine(GraphMean(), [model(0)] * 4, [updates[i] for i in order], clusters=chain(4))
    assert [m["w"].tolist() for m in again] == [m["w"].tolist() for m in found]


@settings(max_examples=60)
@given(st.data(), st.integers(1, 8), st.booleans())
def test_on_cliques_graph_means_are_cluster_means_with_absent_clients(data, count, weighted):
    labels = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    there = data.draw(st.sets(st.integers(0, count - 1), min_size=1))
    rng = np.random.default_rng(count)
    updates = [
        Update(i, labels[i], {"w": rng.normal(size=5).astype(np.float32)}, i + 1)
        for i in sorted(there)
    ]
    before = [model(*[cluster] * 5) for cluster in range(4)]
    clusters = Clusters(dict(enumerate(labels)), 4)
    models = [before[cluster] for cluster in labels]
    graph = combine(GraphMean(weighted), models, updates, clusters=clusters)
    means = combine(ClusterMean(weighted), before, updates, clusters=clusters)
    for client, cluster in enumerate(labels):
        assert np.array_equal(graph[client]["w"], means[cluster]["w"])


# Models when clusters change.


def test_by_hand_new_clusters_start_from_the_mean_of_what_their_clients_hold():
    held = {0: model(2), 1: model(4), 2: model(9)}
    found = mean_held_models(held, [[0, 1], [2, 7], [8]], model(5))  # 7 and 8 are newcomers
    assert [m["w"].tolist() for m in found] == [[3], [9], [5]]
    assert found[1] is held[2]
    assert held[0]["w"].tolist() == [2]


def test_clients_that_hold_the_same_model_retain_it_bit_by_bit():
    shared = model(0.1, 1 / 3)
    (found,) = mean_held_models(dict.fromkeys(range(7), shared), [range(7)], model(0, 0))
    assert found is shared


def test_by_hand_where_every_client_has_a_model_a_clusters_model_is_their_mean():
    models = [model(2), model(4), model(9)]
    clusters = Clusters({0: 0, 1: 2, 2: 0}, 3)
    found = cluster_models(Round(1, clusters, models, per_client=True))
    assert [m["w"].tolist() for m in found] == [[5.5], [2], [4]]  # cluster 1 is empty
    assert cluster_models(Round(1, clusters, models)) == models
