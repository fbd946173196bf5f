"""Clusters by relevance when a few clients lie, or are outliers."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from benchmarks.harness import gram_of
from clients.signatures.spectrum import leading_spectrum, relevance
from fl_core.relevance import USUAL_EIGENVECTORS, Spectra
from strategies import SpectralClustering
from strategies.clusterings.agglomeration import agglomerate, average_relevance
from strategies.clusterings.outliers import (
    near_clusters,
    outliers_by_vectors,
    strangers,
    trusted_clients,
)
from strategies.clusterings.relevance_groups import (
    CONTRADICTORY,
    SHARES_NOTHING,
    UNRELATED,
    group_by_eigenpairs,
    group_by_relevance,
)
from tests.same_images import conversation

TASKS = np.repeat([0, 1, 2], 8)


def scores_of(tasks, seed=0, within=0.8, between=0.3):
    """Return r of honest clients: nearly mutual, like real ones."""
    return with_noise(np.where(np.equal.outer(tasks, tasks), within, between), seed)


def with_noise(mutual, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 0.05, mutual.shape)
    noise = rng.normal(0, 0.02, mutual.shape)
    found = np.clip(mutual + (common + common.T) / 2 + noise, 0, 1)
    np.fill_diagonal(found, 1)
    return found


def honest_index(tasks, labels, liars):
    honest = np.setdiff1d(np.arange(len(tasks)), liars)
    return adjusted_rand_score(np.asarray(tasks)[honest], labels[honest])


@pytest.mark.parametrize("number", [3, 2, 1, "elbow"])
def test_without_an_outlier_client_it_is_plain_agglomeration(number):
    scores = scores_of(TASKS)
    found = group_by_relevance(scores, number)
    plain = agglomerate(average_relevance(scores), number)
    assert found.labels.tolist() == plain.labels.tolist()
    np.testing.assert_array_equal(found.merges, plain.merges)
    assert found.outliers == {}
    assert found.compared.tolist() == list(range(24))


@pytest.mark.parametrize("number", [3, "elbow"])
@pytest.mark.parametrize("said", [0.0, 1.0, "random"])
def test_false_scores_do_not_count_and_true_eigenvectors_do(number, said):
    scores, liars = scores_of(TASKS), [0, 1, 9, 17]
    rng = np.random.default_rng(1)
    scores[liars] = rng.random((4, 24)) if said == "random" else said
    found = group_by_relevance(scores, number)
    assert adjusted_rand_score(TASKS, found.labels) == 1  # the liars', too: others know better
    assert found.outliers == dict.fromkeys(liars, CONTRADICTORY)
    assert found.compared.tolist() == [c for c in range(24) if c not in liars]


@pytest.mark.parametrize("number", [3, "elbow"])
@pytest.mark.parametrize("liars", [[4], [4, 11], [0, 4, 11, 20, 21]])
def test_who_is_relevant_to_no_client_stays_alone_and_is_not_counted(number, liars):
    scores = scores_of(TASKS)
    scores[liars] = scores[:, liars] = 0.005
    plain = agglomerate(average_relevance(scores), 3)
    assert honest_index(TASKS, plain.labels, liars) < 0.7  # what it is about
    found = group_by_relevance(scores, number)
    assert honest_index(TASKS, found.labels, liars) == 1
    assert [np.sum(found.labels == found.labels[liar]) for liar in liars] == [1] * len(liars)
    assert found.outliers == dict.fromkeys(liars, UNRELATED)


def test_a_task_of_one_client_is_counted():
    tasks = np.repeat([0, 1, 2], [12, 12, 1])
    found = group_by_relevance(scores_of(tasks), 3)
    assert adjusted_rand_score(tasks, found.labels) == 1
    assert found.outliers == {}


def test_few_clients_are_all_trusted_and_so_are_all_if_half_lie():
    few = scores_of(np.repeat([0, 1], [4, 3]))
    few[2] = 0
    assert trusted_clients(few).tolist() == list(range(7))
    enough = scores_of(np.repeat([0, 1], 4))
    enough[2] = 0
    assert trusted_clients(enough).tolist() == [0, 1, 3, 4, 5, 6, 7]
    many = scores_of(TASKS)
    many[:12] = np.random.default_rng(0).random((12, 24))
    assert trusted_clients(many).tolist() == list(range(24))


def honest_spectra(clients, seed, images=(10, 200), dimension=40):
    """Return spectra of clients that all draw from one distribution, some of them little."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(dimension, dimension)) * 0.8 ** np.arange(dimension)[:, None]
    sizes = np.geomspace(*images, clients).astype(int)
    rows = [(rng.normal(size=(size, dimension)) + 1) @ mixed for size in sizes]
    return [leading_spectrum(one.astype(np.float32), 20) for one in rows]


def said_by(spectra, formula):
    k = USUAL_EIGENVECTORS[formula]
    vectors = [one.eigenvectors[:, :k] for one in spectra]
    return np.array([relevance(formula, s.whole, vectors) for s in spectra])


@pytest.mark.parametrize("formula", ["paper", "missed-energy"])
@pytest.mark.parametrize("clients", [25, 100])
@pytest.mark.parametrize("number", [1, 2, "elbow"])
def test_of_honest_clients_of_one_task_none_is_an_outlier(formula, clients, number):
    # With few images, clients are found less relevant than they find others.
    spectra = honest_spectra(clients, seed=clients)
    scores = said_by(spectra, formula)
    vectors = [one.eigenvectors for one in spectra]
    kinds = outliers_by_vectors(vectors, np.random.default_rng(0))
    assert group_by_relevance(scores, number, kinds=kinds).outliers == {}
    pairs = Spectra.of(vectors, [one.eigenvalues for one in spectra])
    assert group_by_eigenpairs(pairs, formula, USUAL_EIGENVECTORS[formula], number).outliers == {}


@pytest.mark.parametrize(("level", "spread"), [(0, 0.1), (0.9, 0.1), (0.5, 0.01)])
def test_scores_that_hardly_differ_are_not_trusted(level, spread):
    scores, rng = scores_of(TASKS), np.random.default_rng(0)
    scores[[3, 12]] = level + spread * rng.random((2, 24))
    assert np.setdiff1d(np.arange(24), trusted_clients(scores)).tolist() == [3, 12]


@pytest.mark.parametrize("formula", ["paper", "missed-energy"])
@pytest.mark.parametrize("false", ["null space", "random"])
def test_false_eigenvectors_are_detected_with_any_scores(formula, false):
    rng = np.random.default_rng(0)
    spectra = honest_spectra(12, 0, images=(100, 200), dimension=320)
    gram = np.mean([gram_of(one) for one in spectra], axis=0)
    liars = [2, 7]
    for liar in liars:
        basis = np.linalg.qr(rng.normal(size=(320, 20)))[0]
        if false == "null space":
            basis = np.linalg.qr(np.linalg.eigh(gram)[1][:, :60] @ rng.normal(size=(60, 20)))[0]
        spectra[liar] = replace(spectra[liar], eigenvectors=basis.astype(np.float32))
    vectors = [one.eigenvectors[:, : USUAL_EIGENVECTORS[formula]] for one in spectra]
    kinds = outliers_by_vectors(vectors, rng)
    assert np.flatnonzero(kinds >= 0).tolist() == liars
    found = group_by_relevance(said_by(spectra, formula), 1, kinds=kinds)
    assert found.outliers == dict.fromkeys(liars, SHARES_NOTHING)
    assert np.delete(found.labels, liars).tolist() == [0] * 10


def test_strangers_that_are_like_each_other_share_a_cluster():
    scores, kinds = scores_of(TASKS), np.full(24, -1)
    kinds[[4, 11, 20]] = 0, 1, 0
    found = group_by_relevance(scores, 3, kinds=kinds)
    assert found.labels[4] == found.labels[20] != found.labels[11]
    assert found.labels.max() == 4
    assert honest_index(TASKS, found.labels, [4, 11, 20]) == 1
    assert found.outliers == dict.fromkeys([4, 11, 20], SHARES_NOTHING)


def in_dimensions(pairs, dimension=12):
    """Return the eigenpairs of clients with these two axes as eigenvectors."""
    axes = np.eye(dimension, dtype=np.float32)
    return Spectra.of([axes[:, list(pair)] for pair in pairs], [np.array([4.0, 1.0])] * len(pairs))


def test_strangers_are_numbered_with_those_that_are_like_them():
    usual = [(0, 1), (0, 2)] * 4
    spectra = in_dimensions([*usual, (8, 9), (10, 11), (8, 9)])
    found = strangers(spectra, 2, np.random.default_rng(0))
    assert found.tolist() == [-1] * 8 + [0, 1, 0]


@pytest.mark.parametrize("others", [[(2, 3)] * 4, [(2, 3)] * 3, [(2, 3), (4, 5), (6, 7), (8, 9)]])
def test_a_task_that_shares_nothing_with_the_others_is_no_stranger(others):
    spectra = in_dimensions([(0, 1)] * 4 + others)
    assert (strangers(spectra, 2, np.random.default_rng(0)) == -1).all()


@pytest.mark.parametrize(("count", "found"), [(4, [0] * 4), (5, [-1] * 5)])
def test_a_quarter_that_is_similar_is_a_task(count, found):
    """Among 20 clients, four are less than a quarter."""
    axes = np.eye(12, dtype=np.float32)
    bases = [axes[:, :3]] * (20 - count) + [axes[:, 6:9]] * count
    assert outliers_by_vectors(bases, np.random.default_rng(0))[-count:].tolist() == found


@pytest.mark.parametrize("score", [0.54, 0.56])
def test_who_is_less_than_half_way_to_a_cluster_joins_none(score):
    """Within clusters 0.8, between them 0.3: half-way is 0.55, also to the third, of one client."""
    cut = np.array([0, 0, 0, 1, 1, 2])
    similarity = np.where(np.equal.outer(cut, cut), 0.8, 0.3)
    np.fill_diagonal(similarity, 1)
    opinions = np.full((6, 2), 0.1)
    opinions[cut == 1, 0] = score
    opinions[5, 1] = score
    joined = near_clusters(opinions, similarity, cut)
    assert joined.tolist() == ([1, 2] if score > 0.55 else [-1, -1])


@pytest.mark.parametrize(("usual", "found"), [(4, [-1] * 4), (5, [0, 1, 2, 3])])
def test_if_exactly_half_are_strangers_no_client_is_one(usual, found):
    """Usual clients share axis 0; each of four others shares 0.15 with one of them alone."""
    axes = np.eye(16, dtype=np.float32)
    bases = [axes[:, [0, 1 + client]] for client in range(usual)]
    for client in range(4):
        direction = np.sqrt(0.15) * axes[:, 1 + client] + np.sqrt(0.85) * axes[:, 10 + client]
        bases.append(direction[:, None].astype(np.float32))
    kinds = outliers_by_vectors(bases, np.random.default_rng(0))
    assert kinds.tolist() == [-1] * usual + found


@pytest.mark.parametrize(
    ("count", "akin", "separate"), [(4, 1, True), (4, 2, False), (3, 1, True), (2, 1, False)]
)
def test_strangers_that_agree_stay_separate_unless_half_of_them_share_a_task(count, akin, separate):
    """26 clients share axis 0 and have four of their task; the others share four at least."""
    axes = np.eye(32, dtype=np.float32)
    pairs = [(0, *range(1 + 4 * (c % 3), 5 + 4 * (c % 3))) for c in range(26)]
    pairs += [(20, 21, 22, 23, 1) if c < akin else (20, 21, 22, 23, 24) for c in range(count)]
    bases = [axes[:, list(one)] for one in pairs]
    found = outliers_by_vectors(bases, np.random.default_rng(0))
    assert found.tolist() == [-1] * 26 + [0 if separate else -1] * count


def test_by_eigenvectors_a_stranger_shares_no_direction():
    axes = np.eye(12, dtype=np.float32)
    pairs = [(0, 1), (0, 2)] * 4 + [(8, 9), (10, 11), (8, 9), (7, 0)]
    found = outliers_by_vectors([axes[:, list(pair)] for pair in pairs], np.random.default_rng(0))
    assert found.tolist() == [-1] * 8 + [0, 1, 0, -1]


def test_of_many_clients_strangers_are_found_by_a_sample():
    spectra = in_dimensions([(0, 1), (0, 2)] * 150 + [(8, 9)])
    found = strangers(spectra, 2, np.random.default_rng(0))
    assert np.flatnonzero(found >= 0).tolist() == [300]


@pytest.mark.parametrize("formula", ["paper", "missed-energy"])
@pytest.mark.parametrize("compared", [None, 6])
def test_strangers_are_separated_before_clusters_are_counted(formula, compared):
    # What an eigenvector captures is shared by all: axis 0.
    usual = [(0, 1), (0, 2)] * 6
    spectra = in_dimensions([*usual, (8, 9), (8, 9), (10, 11)])
    found = group_by_eigenpairs(
        spectra, formula, 2, 2, num_compared=compared, rng=np.random.default_rng(0)
    )
    assert found.labels.tolist() == [0, 1] * 6 + [2, 2, 3]
    assert found.outliers == dict.fromkeys((12, 13, 14), SHARES_NOTHING)
    assert set(found.compared) <= set(range(12))


@pytest.mark.parametrize("place", ["clients", "server"])
def test_the_strategy_names_outliers(place, monkeypatch, caplog):
    module = "strategies.clusterings.spectral.group_by_" + (
        "relevance" if place == "clients" else "eigenpairs"
    )

    def with_outlier(*arguments, **options):
        given = group_by_relevance(scores_of(np.repeat([0, 1], 3)), 2)
        given.outliers[4] = UNRELATED
        return given

    monkeypatch.setattr(module, with_outlier)
    clustering = SpectralClustering(2, num_eigenvectors=2, relevance_at=place)
    assert clustering.find(conversation(6)).outliers == {4: UNRELATED}
    assert f"outliers: {UNRELATED}: 4" in caplog.text


@pytest.mark.parametrize("number", [3, "elbow"])
def test_of_many_clients_a_separate_few_are_not_counted(number):
    tasks = np.repeat([0, 1, 2], 80)
    scores = scores_of(tasks)
    for few in ([7], [100, 101]):  # alone, and two that are similar
        scores[few] = scores[:, few] = 0.15
        scores[np.ix_(few, few)] = 0.9
    honest = np.setdiff1d(np.arange(240), [7, 100, 101])
    plain = agglomerate(average_relevance(scores), 3).labels
    assert adjusted_rand_score(tasks[honest], plain[honest]) < 0.7
    found = group_by_relevance(scores, number)
    assert adjusted_rand_score(tasks[honest], found.labels[honest]) == 1
    assert len(set(found.labels.tolist())) == 5
