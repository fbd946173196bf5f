"""`outliers=separate`: clusters by relevance when a few clients lie, or are outliers."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from benchmarks.harness import gram_of
from clients.signatures.spectrum import leading_spectrum, relevance
from fl_core.relevance import USUAL_EIGENVECTORS, Spectra
from strategies.clusterings import at_server
from strategies.clusterings.agglomeration import half_way
from strategies.clusterings.at_server import group_by_eigenpairs
from strategies.clusterings.outliers import (
    CONTRADICTORY,
    SHARES_NOTHING,
    UNRELATED,
    group_without_outliers,
    near_clusters,
    strangers,
    trusted_clients,
)
from strategies.clusterings.relevance_groups import group_by_relevance

TASKS = np.repeat([0, 1, 2], 8)
BOTH_FORMULAS = pytest.mark.parametrize("formula", ["paper", "missed-energy"])


def scores_of(tasks, within=0.8, between=0.3):
    """Return r of honest clients: nearly mutual, like real ones."""
    mutual = np.where(np.equal.outer(tasks, tasks), within, between)
    rng = np.random.default_rng(0)
    common = rng.normal(0, 0.05, mutual.shape)
    noise = rng.normal(0, 0.02, mutual.shape)
    found = np.clip(mutual + (common + common.T) / 2 + noise, 0, 1)
    np.fill_diagonal(found, 1)
    return found


def grouped(scores, number, kinds=None):
    kinds = np.full(len(scores), -1) if kinds is None else kinds
    return group_without_outliers(scores, kinds, number)


def kinds_of(bases):
    return strangers(Spectra.of_vectors(bases), np.random.default_rng(0)).tolist()


def index_of_honest(tasks, labels, liars):
    honest = np.setdiff1d(np.arange(len(tasks)), liars)
    return adjusted_rand_score(np.asarray(tasks)[honest], labels[honest])


@pytest.mark.parametrize("number", [3, 1, "elbow", "auto"])
@pytest.mark.parametrize("tasks", [TASKS, np.repeat([0, 1, 2], [12, 12, 1])])
def test_without_an_outlier_client_it_is_procedure_1(number, tasks):
    """So a task of one client is counted, too."""
    scores = scores_of(tasks)
    found, plain = grouped(scores, number), group_by_relevance(scores, number)
    assert found.labels.tolist() == plain.labels.tolist()
    np.testing.assert_array_equal(found.merges, plain.merges)
    assert (found.outliers, found.compared.tolist()) == ({}, list(range(len(tasks))))


@pytest.mark.parametrize("number", [3, "elbow"])
@pytest.mark.parametrize("said", [0.0, 1.0, "random"])
def test_false_scores_do_not_count_and_true_eigenvectors_do(number, said):
    scores, liars = scores_of(TASKS), [0, 1, 9, 17]
    rng = np.random.default_rng(1)
    scores[liars] = rng.random((4, 24)) if said == "random" else said
    found = grouped(scores, number)
    assert adjusted_rand_score(TASKS, found.labels) == 1  # the liars', too: others know better
    assert found.outliers == dict.fromkeys(liars, CONTRADICTORY)
    assert found.compared.tolist() == [c for c in range(24) if c not in liars]


@pytest.mark.parametrize("number", [3, "elbow"])
@pytest.mark.parametrize("liars", [[4], [4, 11], [0, 4, 11, 20, 21]])
def test_who_is_relevant_to_no_client_stays_alone_and_is_not_counted(number, liars):
    scores = scores_of(TASKS)
    scores[liars] = scores[:, liars] = 0.005
    kept = group_by_relevance(scores, 3)
    assert index_of_honest(TASKS, kept.labels, liars) < 0.7  # what it is about
    found = grouped(scores, number)
    assert index_of_honest(TASKS, found.labels, liars) == 1
    assert [np.sum(found.labels == found.labels[liar]) for liar in liars] == [1] * len(liars)
    assert found.outliers == dict.fromkeys(liars, UNRELATED)


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


@pytest.mark.parametrize(("level", "spread"), [(0, 0.1), (0.9, 0.1), (0.5, 0.01)])
def test_scores_that_hardly_differ_are_not_trusted(level, spread):
    scores, rng = scores_of(TASKS), np.random.default_rng(0)
    scores[[3, 12]] = level + spread * rng.random((2, 24))
    assert np.setdiff1d(np.arange(24), trusted_clients(scores)).tolist() == [3, 12]


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


@BOTH_FORMULAS
@pytest.mark.parametrize("clients", [25, 100])
def test_of_honest_clients_of_one_task_none_is_an_outlier(formula, clients):
    """With few images, clients are found less relevant than they find others."""
    spectra = honest_spectra(clients, seed=clients)
    pairs = Spectra.of([one.eigenvectors for one in spectra], [one.eigenvalues for one in spectra])
    kinds = strangers(pairs, np.random.default_rng(0))
    assert (kinds == -1).all()
    assert grouped(said_by(spectra, formula), 2).outliers == {}


@BOTH_FORMULAS
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
    kinds = np.array(kinds_of(vectors))
    assert np.flatnonzero(kinds >= 0).tolist() == liars
    found = grouped(said_by(spectra, formula), 1, kinds)
    assert found.outliers == dict.fromkeys(liars, SHARES_NOTHING)
    assert np.delete(found.labels, liars).tolist() == [0] * 10


def test_strangers_come_after_those_that_stay_alone():
    scores, kinds = scores_of(TASKS), np.full(24, -1)
    scores[4] = scores[:, 4] = 0.005
    kinds[11] = 0
    found = grouped(scores, 3, kinds)
    assert found.outliers == {4: UNRELATED, 11: SHARES_NOTHING}
    assert [np.sum(found.labels == found.labels[one]) for one in (4, 11)] == [1, 1]
    assert index_of_honest(TASKS, found.labels, [4, 11]) == 1


def axes(pairs, dimension=12):
    """Return bases that are axes."""
    every = np.eye(dimension, dtype=np.float32)
    return [every[:, list(pair)] for pair in pairs]


USUAL = [(0, 1), (0, 2)]  # what an eigenvector captures is shared by all: axis 0


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        # Strangers are numbered with those that are like them; sharing one direction is enough.
        ([*USUAL * 4, (8, 9), (10, 11), (8, 9), (7, 0)], [-1] * 8 + [0, 1, 0, -1]),
        # A task that shares nothing with the others is no stranger.
        ([(0, 1)] * 4 + [(2, 3)] * 4, [-1] * 8),
        ([(0, 1)] * 4 + [(2, 3)] * 3, [-1] * 7),
        ([(0, 1)] * 4 + [(2, 3), (4, 5), (6, 7), (8, 9)], [-1] * 8),
        # A quarter that is similar is a task: among 20 clients, four are less.
        ([(0, 1, 2)] * 16 + [(6, 7, 8)] * 4, [-1] * 16 + [0] * 4),
        ([(0, 1, 2)] * 15 + [(6, 7, 8)] * 5, [-1] * 20),
        # Of many clients they are found by a sample.
        ([*USUAL * 150, (8, 9)], [-1] * 300 + [0]),
    ],
)
def test_by_hand_strangers_share_no_direction_with_most(pairs, found):
    assert kinds_of(axes(pairs)) == found


@pytest.mark.parametrize("score", [0.54, 0.56])
def test_who_is_less_than_half_way_to_a_cluster_joins_none(score):
    """Within clusters 0.8, between them 0.3: half-way is 0.55, also to the third, of one client."""
    cut = np.array([0, 0, 0, 1, 1, 2])
    similarity = np.where(np.equal.outer(cut, cut), 0.8, 0.3)
    np.fill_diagonal(similarity, 1)
    np.testing.assert_allclose(half_way(similarity, cut), 0.55)
    opinions = np.full((6, 2), 0.1)
    opinions[cut == 1, 0] = score
    opinions[5, 1] = score
    joined = near_clusters(opinions, similarity, cut)
    assert joined.tolist() == ([1, 2] if score > 0.55 else [-1, -1])


@pytest.mark.parametrize(("usual", "found"), [(4, [-1] * 4), (5, [0, 1, 2, 3])])
def test_if_exactly_half_are_strangers_no_client_is_one(usual, found):
    """Usual clients share axis 0; each of four others shares 0.15 with one of them alone."""
    every = np.eye(16, dtype=np.float32)
    bases = axes([(0, 1 + client) for client in range(usual)], 16)
    for client in range(4):
        direction = np.sqrt(0.15) * every[:, 1 + client] + np.sqrt(0.85) * every[:, 10 + client]
        bases.append(direction[:, None].astype(np.float32))
    assert kinds_of(bases) == [-1] * usual + found


@pytest.mark.parametrize(
    ("count", "akin", "separate"), [(4, 1, True), (4, 2, False), (3, 1, True), (2, 1, False)]
)
def test_strangers_that_agree_stay_separate_unless_half_of_them_share_a_task(count, akin, separate):
    """26 clients share axis 0 and have four of their task; the others share four at least."""
    pairs = [(0, *range(1 + 4 * (c % 3), 5 + 4 * (c % 3))) for c in range(26)]
    pairs += [(20, 21, 22, 23, 1) if c < akin else (20, 21, 22, 23, 24) for c in range(count)]
    assert kinds_of(axes(pairs, 32)) == [-1] * 26 + [0 if separate else -1] * count


@BOTH_FORMULAS
@pytest.mark.parametrize("landmarks", [None, 6])
def test_strangers_are_separated_before_clusters_are_counted(formula, landmarks, monkeypatch):
    if landmarks:
        monkeypatch.setattr(at_server, "MOST_EXACT", landmarks)
        monkeypatch.setattr(at_server, "LANDMARKS", landmarks)
    bases = axes([*USUAL * 6, (8, 9), (8, 9), (10, 11)])
    spectra = Spectra.of(bases, [np.array([4.0, 1.0])] * len(bases))
    rng = np.random.default_rng(0)
    found = group_by_eigenpairs(spectra, 2, 2, formula=formula, separate=True, rng=rng)
    assert found.labels.tolist() == [0, 1] * 6 + [2, 2, 3]
    assert found.outliers == dict.fromkeys((12, 13, 14), SHARES_NOTHING)
    assert len(found.compared) == (landmarks or 12)
    assert set(found.compared) <= set(range(12))


@pytest.mark.parametrize("number", [3, "elbow"])
def test_of_many_clients_a_separate_few_are_not_counted(number):
    tasks = np.repeat([0, 1, 2], 80)
    scores = scores_of(tasks)
    for few in ([7], [100, 101]):  # alone, and two that are similar
        scores[few] = scores[:, few] = 0.15
        scores[np.ix_(few, few)] = 0.9
    honest = np.setdiff1d(np.arange(240), [7, 100, 101])
    kept = group_by_relevance(scores, 3).labels
    assert adjusted_rand_score(tasks[honest], kept[honest]) < 0.7
    found = grouped(scores, number)
    assert adjusted_rand_score(tasks[honest], found.labels[honest]) == 1
    assert len(set(found.labels.tolist())) == 5
