"""How many groups there are, one among them: numbers by hand, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from fl_core.relevance import MISSED_ENERGY, PAPER, relative_scores
from strategies.clusterings import number as module
from strategies.clusterings.agglomeration import agglomerate, agglomerate_distances, cut_dendrogram
from strategies.clusterings.number import evidence, second_eigenvalue, silhouettes
from strategies.clusterings.relevance_groups import group_by_relevance

FORMULAS = (PAPER, MISSED_ENERGY)


def blocks(tasks, within=0.8, between=0.3, noise=0.0, seed=0):
    drawn = np.random.default_rng(seed).normal(0, noise, (len(tasks), len(tasks)))
    found = np.where(np.equal.outer(tasks, tasks), within, between) + (drawn + drawn.T) / 2
    np.fill_diagonal(found, 1)
    return np.clip(found, 0, 1)


def number(similarity, formula=PAPER):
    return evidence(similarity, agglomerate(similarity, 1).merges, formula).number


@pytest.mark.parametrize("size", [2, 5, 40])
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_by_hand_the_eigenvalue_of_groups_of_one_size_does_not_depend_on_their_size(size, groups):
    """(w − b)/(w + (M − 1) b), but for what the diagonal adds: the row's mean in place of w.

    With m clients in each of M groups the row's mean d is ((m − 1) w + (M − 1) m b)/(mM − 1). An
    eigenvector that is constant in each group, with sum 0, has ((m − 1) w + d − m b) / (mM d).
    """
    tasks, w, b = np.repeat(np.arange(groups), size), 0.8, 0.3
    count = groups * size
    d = ((size - 1) * w + (groups - 1) * size * b) / (count - 1)
    expected = ((size - 1) * w + d - size * b) / (count * d)
    found = second_eigenvalue(blocks(tasks, w, b))
    assert found == pytest.approx(expected)
    assert abs(found - (w - b) / (w + (groups - 1) * b)) < 1 / count


@pytest.mark.parametrize("count", [3, 10, 100])
def test_of_clients_that_are_all_similar_it_is_nought_for_any_number_of_them(count):
    """An off-diagonal value alone, with itself on the diagonal, has rank one."""
    assert second_eigenvalue(blocks(np.zeros(count, int))) == pytest.approx(0, abs=1e-12)
    assert number(blocks(np.zeros(count, int))) == 1


def test_of_many_clients_the_eigenvalue_is_found_by_iterations(monkeypatch):
    similarity = blocks(np.arange(60) % 3, noise=0.1)
    exact = second_eigenvalue(similarity)
    monkeypatch.setattr(module, "_MOST_EXACT", 10)
    assert second_eigenvalue(similarity) == pytest.approx(exact, abs=1e-3)
    assert second_eigenvalue(similarity) == second_eigenvalue(similarity)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_few_clients_and_equal_scores_are_one_group(count, formula, value):
    similarity = np.full((count, count), value)
    np.fill_diagonal(similarity, 1)
    assert number(similarity, formula) == 1
    assert group_by_relevance(similarity, "auto", formula=formula).labels.tolist() == [0] * count


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize(
    "sizes", [(5, 5), (3, 9), (4, 4, 4), (2, 6, 10), (3, 3, 3, 3, 3), (20, 30, 50)]
)
def test_clear_groups_of_any_sizes_are_found(sizes, formula):
    tasks = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    found = group_by_relevance(blocks(tasks, noise=0.03), "auto", formula=formula)
    assert (np.equal.outer(found.labels, found.labels) == np.equal.outer(tasks, tasks)).all()


@pytest.mark.parametrize("count", [6, 25, 100])
@pytest.mark.parametrize("seed", range(5))
def test_chance_stretched_to_the_whole_scale_makes_no_groups(count, seed):
    """Missed energies of clients that are all similar, which differ by chance alone."""
    missed = np.exp(np.random.default_rng(seed).normal(-2, 0.05, (count, count)))
    np.fill_diagonal(missed, 0)
    found = group_by_relevance(relative_scores(missed), "auto", formula=MISSED_ENERGY)
    assert not found.labels.any()


def random_similarity(seed, count, decimals):
    found = np.random.default_rng(seed).random((count, count)).round(decimals)
    found = (found + found.T) / 2
    np.fill_diagonal(found, 1)
    return found


CHAIN = np.abs(np.subtract.outer(*[np.cumsum(np.linspace(1, 1.5, 40))] * 2))
ALIKE = 1 - blocks(np.zeros(40), 0.7, 0, noise=0.05)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 12), st.sampled_from([1, 9]))
def test_silhouettes_of_all_cuts_are_those_of_scikit_learn(seed, count, decimals):
    distances = 1 - random_similarity(seed, count, decimals)
    compare_with_scikit_learn(distances, agglomerate(1 - distances, 1).merges)


@pytest.mark.parametrize("distances", [CHAIN, ALIKE], ids=["a chain", "all similar"])
def test_where_one_cluster_takes_in_one_client_after_another_they_are_so_too(distances):
    compare_with_scikit_learn(distances, agglomerate_distances(distances, 1, "single").merges)


def compare_with_scikit_learn(distances, merges):
    expected = [
        silhouette_score(distances, cut_dendrogram(merges, clusters), metric="precomputed")
        for clusters in range(2, len(distances))
    ]
    np.testing.assert_allclose(silhouettes(distances, merges), expected, atol=1e-12)
