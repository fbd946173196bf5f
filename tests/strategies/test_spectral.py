"""How much rounding the server forgives in what clients answer before they are clustered."""

import pytest

from strategies import SpectralClustering, make_strategy
from tests.local_grid import LocalGrid, Visits
from tests.toy_app import TASKS, fail, run, toy_app, with_arrays, with_metrics


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
