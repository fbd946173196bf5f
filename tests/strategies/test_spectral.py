"""RCC-PFL's Procedure 1, message by message, and what is ours beside it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from strategies import SpectralClustering, make_strategy
from strategies.clusterings import at_server, outliers, spectral
from strategies.clusterings.agglomeration import canonical_labels
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import TASKS, fail, run, toy_app, with_arrays, with_metrics

SIZES = st.integers(2, 20)


def random_scores(seed, count):
    return np.random.default_rng(seed).random((count, count))


@settings(max_examples=60)
@given(st.integers(0, 10**6), SIZES, st.data())
def test_it_is_scipys_average_linkage_of_the_mean_relevance(seed, count, data):
    number = data.draw(st.integers(1, count))
    scores = random_scores(seed, count)
    distances = np.array([[1 - (scores[i, j] + scores[j, i]) / 2 for j in range(count)]
                          for i in range(count)])  # fmt: skip
    np.fill_diagonal(distances, 0)
    expected = fcluster(linkage(squareform(distances), "average"), number, "maxclust")
    found = SpectralClustering(number).group(scores, np.full(count, -1))
    assert found.labels.tolist() == canonical_labels(expected).tolist()
    assert (found.compared.tolist(), found.outliers) == (list(range(count)), {})


def sizes(labels):
    return np.bincount(labels).tolist()


def test_a_client_that_is_like_no_other_is_one_of_the_clusters():
    """40, 40 and 19 clients and one alone, the last two tasks nearer to each other."""
    tasks = np.repeat([0, 1, 2, 3], [40, 40, 19, 1])
    of_tasks = np.full((4, 4), 0.3)
    of_tasks[1, 2] = of_tasks[2, 1] = 0.45
    of_tasks[3] = of_tasks[:, 3] = 0.1
    np.fill_diagonal(of_tasks, 0.8)
    scores, none = of_tasks[np.ix_(tasks, tasks)], np.full(100, -1)
    assert sizes(SpectralClustering(3).group(scores, none).labels) == [40, 59, 1]
    separate = SpectralClustering(3, outliers="separate").group(scores, none)
    assert sizes(separate.labels) == [40, 40, 19, 1]


@pytest.mark.parametrize("place", ["clients", "server"])
def test_by_default_no_client_is_filtered_on_the_way(place, monkeypatch):
    """Client 7 shares an axis that no other has, client 2 says 0 of all: neither is judged."""

    def refuse(*_):
        raise AssertionError

    for name in ("strangers", "trusted_clients", "number_beside_few", "near_clusters"):
        for module in (outliers, spectral, at_server):
            monkeypatch.setattr(module, name, refuse, raising=False)
    tasks = [0, 0, 0, 0, 1, 1, 1, 3, 0]
    liar = {("query.relevance", 2): with_metrics(relevances=[0.0] * 9)}
    strategy = make_strategy("rcc-pfl", 3, num_eigenvectors=2, relevance_at=place)
    grid = LocalGrid(toy_app(tasks, liar), 9)
    run(strategy, grid)
    assert strategy.clusters.compared == tuple(range(9))
    assert (strategy.clusters.outliers, dict(strategy.failures)) == ({}, {})
    assert strategy.clusters.count == 3
    kinds = [message.metadata.message_type for message in grid.sent]
    assert kinds.count("query.relevance") == (0 if place == "server" else 9)


@pytest.mark.parametrize(
    ("query", "corrupt", "reason"),
    [
        ("relevance", with_metrics(relevances=[1 + 1e-7] * 7), None),
        ("relevance", with_metrics(relevances=[1 + 1e-5] * 7), "not all numbers in [0, 1]"),
        ("relevance", with_metrics(relevances=[-1e-7] * 7), "not all numbers in [0, 1]"),
        ("spectrum", with_arrays(lambda a: a["eigenvectors"].__imul__(1 + 1e-4)), None),
        ("spectrum", with_arrays(lambda a: a["eigenvectors"].__imul__(1 + 2e-3)), "orthonormal"),
    ],
)
def test_rounding_is_forgiven_and_nothing_else(query, corrupt, reason, caplog):
    strategy = make_strategy("rcc-pfl", 3, num_eigenvectors=3)
    run(strategy, LocalGrid(toy_app(TASKS, {(f"query.{query}", 1): corrupt}), len(TASKS)))
    assert list(strategy.failures) == ([1] if reason else [])
    assert (reason or "") in caplog.text


def test_newcomers_are_compared_with_those_that_answered_to_the_end():
    strategy = make_strategy("rcc-pfl", 3, num_eigenvectors=3)
    grid = Visits(toy_app(TASKS, {("query.relevance", 4): fail}), len(TASKS), {6: [0]})
    run(strategy, grid)
    assert strategy.clusters.of_client[6] == strategy.clusters.of_client[3]
    assert list(strategy.failures) == [4]


def test_as_many_eigenvectors_as_are_usual_with_the_relevance_unless_a_number_is_given():
    assert SpectralClustering(2).num_shared == 20
    assert SpectralClustering(2, relevance="missed-energy").num_shared == 5
    assert SpectralClustering(2, 7, relevance="missed-energy").num_shared == 7
