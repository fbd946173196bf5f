"""How sure a grouping is: numbers by hand, and what must not matter."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import squareform

import strategies.clusterings.grouping
from fl_core.relevance import PAPER
from strategies.clusterings.certainty import (
    APART,
    SAME_SCORES,
    candidates,
    certainty,
    pair_shares,
    why_untold,
)
from strategies.clusterings.grouping import gaps, merge_heights
from strategies.clusterings.how_many import evidence
from strategies.clusterings.relevance_groups import (
    MOST_WEIGHED,
    group_by_relevance,
    heard_anew,
    num_resamples,
)
from strategies.clusterings.spectral import with_resamples
from strategies.engine.rounds import Clusters


def labels(*numbers):
    return np.array(numbers)


# Four clients in two clusters; in four resamples client 1 is once with the others' cluster, and
# once alone.
FOUND = labels(0, 0, 1, 1)
DRAWN = [labels(0, 0, 1, 1), labels(5, 5, 2, 2), labels(0, 1, 1, 1), labels(0, 1, 2, 2)]


def test_the_shares_of_pairs_by_hand():
    assert pair_shares(DRAWN).tolist() == [
        [1.0, 0.5, 0.0, 0.0],
        [0.5, 1.0, 0.25, 0.25],
        [0.0, 0.25, 1.0, 1.0],
        [0.0, 0.25, 1.0, 1.0],
    ]


def test_certainty_by_hand():
    """Client 0 is alone where client 1 is away; 2 and 3 always meet each other."""
    found = certainty(FOUND, DRAWN)
    assert found.of_client.tolist() == [0.5, 0.5, 1.0, 1.0]
    assert found.votes[1].tolist() == [0.5, 0.25, 0.25]
    assert found.votes[0].tolist() == [0.5, 0.0, 0.5]
    assert [tuple(one) for one in found.doubts(FOUND)] == [(0, 0, APART, 0.5), (1, 0, 1, 0.25)]


def test_a_client_lands_where_it_meets_the_larger_share():
    """Of cluster 0's two others client 0 meets one, of cluster 1's three two."""
    found = certainty(labels(0, 0, 0, 1, 1, 1), [labels(0, 0, 1, 0, 0, 1)])
    assert found.votes[0].tolist() == [0, 1, 0]
    assert certainty(labels(0, 0, 0, 1, 1), [labels(0, 0, 1, 0, 1)]).of_client[0] == 1  # a tie


def test_clusters_that_become_one_are_no_doubt_about_anybody():
    assert certainty(FOUND, [labels(0, 0, 0, 0)]).of_client.tolist() == [1, 1, 1, 1]


def test_a_cluster_of_one_is_sure_while_it_stays_alone():
    found = certainty(labels(0, 0, 1), [labels(0, 0, 1), labels(0, 1, 1)])
    assert found.of_client.tolist() == [0.5, 0.5, 0.5]
    assert found.votes[2].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(("found", "drawn"), [((0,), (0,)), ((0, 0, 0), (4, 4, 4))])
def test_one_client_and_one_cluster_are_sure(found, drawn):
    sure = certainty(np.array(found), [np.array(drawn)])
    assert sure.of_client.tolist() == [1.0] * len(found)
    assert not sure.doubts(np.array(found))


def test_of_one_cluster_those_that_a_resample_parts_from_most_others_are_in_doubt():
    """Client 0 meets one of four others, client 2 two: half of them, and that is enough."""
    found = certainty(labels(0, 0, 0, 0, 0), [labels(0, 0, 1, 1, 1), labels(0, 0, 0, 0, 0)])
    assert found.of_client.tolist() == [0.5, 0.5, 1, 1, 1]
    assert found.votes[0].tolist() == [0.5, 0.5]
    assert [tuple(one) for one in found.doubts(labels(0, 0, 0, 0, 0))] == [
        (0, 0, APART, 0.5),
        (1, 0, APART, 0.5),
    ]


def test_names_of_clusters_and_the_order_of_clients_do_not_matter():
    rng = np.random.default_rng(0)
    found = rng.integers(0, 3, 12)
    found[:3] = 0, 1, 2
    drawn = [rng.integers(0, 4, 12) for _ in range(20)]
    sure = certainty(found, drawn).of_client
    renamed = [rng.permutation(4)[one] for one in drawn]
    np.testing.assert_array_equal(certainty(found, renamed).of_client, sure)
    order = rng.permutation(12)
    moved = certainty(found[order], [one[order] for one in drawn])
    np.testing.assert_array_equal(moved.of_client, sure[order])
    shares = pair_shares(drawn)
    np.testing.assert_array_equal(
        pair_shares([one[order] for one in drawn]), shares[np.ix_(order, order)]
    )
    np.testing.assert_array_equal(shares, shares.T)


def test_what_speaks_for_each_number():
    """Two tight pairs, far apart: merges at 0.1, 0.2 and 0.9."""
    distances = np.array(
        [[0, 0.1, 0.9, 0.9], [0.1, 0, 0.9, 0.9], [0.9, 0.9, 0, 0.2], [0.9, 0.9, 0.2, 0]]
    )
    groups = group_by_relevance(1 - distances, "elbow")
    np.testing.assert_allclose(merge_heights(groups.merges), [0.1, 0.2, 0.9])
    np.testing.assert_allclose(gaps(groups.merges), [0.7, 0.1])
    found = candidates(gaps(groups.merges), [2, 2, 3, 2])
    assert [(one.num_clusters, one.resamples) for one in found] == [(2, 0.75), (3, 0.25)]
    assert groups.by_rule == 2
    assert group_by_relevance(1 - distances, "silhouette").by_rule == 2
    one = group_by_relevance(np.ones((1, 1)), 1)
    assert one.by_rule == 1
    assert candidates(gaps(one.merges), []) == []


def two_opinions():
    """Return scores of four clients: 0 and 1 disagree about each other, all else is mutual."""
    scores = np.full((4, 4), 0.1)
    np.fill_diagonal(scores, 1)
    scores[2, 3] = scores[3, 2] = 0.9
    scores[0, 1], scores[1, 0] = 0.8, 0.2
    return scores


def test_of_the_two_opinions_on_a_pair_two_are_drawn():
    scores = two_opinions()
    groups = group_by_relevance(scores, 2)
    rng = np.random.default_rng(0)
    heard = [heard_anew(scores, groups, 2, "average", rng) for _ in range(400)]
    of_pair = np.array([one.similarity[0, 1] for one in heard])
    values, counts = np.unique(of_pair.round(9), return_counts=True)
    assert values.tolist() == [0.2, 0.5, 0.8]
    assert 70 < counts[0] < 130
    assert 160 < counts[1] < 240
    assert {one.similarity[2, 3] for one in heard} == {0.9}


def test_where_both_always_say_the_same_nothing_can_be_drawn():
    scores = two_opinions()
    scores[1, 0] = 0.8
    assert group_by_relevance(scores, 2, resamples=5).resampled == ()
    assert group_by_relevance(np.ones((1, 1)), 1, resamples=5).resampled == ()
    assert group_by_relevance(np.ones((2, 2)), 2, resamples=5).resampled == ()  # two alike


def test_one_seed_draws_the_same():
    def drawn(seed):
        rng = np.random.default_rng(seed)
        groups = group_by_relevance(two_opinions(), 2, resamples=20, rng=rng)
        return [one.merges.tolist() for one in groups.resampled]

    assert drawn(1) == drawn(1) != drawn(2)


def test_who_is_not_believed_is_not_heard_in_a_resample():
    """Client 9 says the same of everybody; what the others say of it counts."""
    rng = np.random.default_rng(0)
    tasks = np.repeat([0, 1], 5)
    scores = np.where(tasks[:, None] == tasks, 0.8, 0.2) + rng.uniform(-0.05, 0.05, (10, 10))
    np.fill_diagonal(scores, 1)
    scores[9] = 0.0
    groups = group_by_relevance(scores, 2, resamples=10)
    assert list(groups.odd) == [9]
    for one in groups.resampled:
        assert 9 not in one.compared
        assert one.labels.tolist() == groups.labels.tolist() == tasks.tolist()


def test_each_resample_chooses_its_number_once(monkeypatch):
    """By silhouettes that takes long: a clustering for every number of clusters."""
    counted, best = [], strategies.clusterings.grouping.best_silhouette

    def count(distances, merges):
        counted.append(best(distances, merges))
        return counted[-1]

    monkeypatch.setattr(strategies.clusterings.grouping, "best_silhouette", count)
    groups = group_by_relevance(two_opinions(), "silhouette", resamples=5)
    clusters = Clusters(dict(enumerate(groups.labels.tolist())))
    found = with_resamples(clusters, groups.resampled, "opinions")
    assert len(counted) == 6
    assert found.resamples.numbers == tuple(counted[1:])


def test_where_a_number_is_asked_for_resamples_say_what_auto_would_choose():
    groups = group_by_relevance(two_opinions(), 3, resamples=5)
    rng = np.random.default_rng(0)
    for one in groups.resampled:
        drawn = heard_anew(two_opinions(), groups, 3, "average", rng)
        assert one.labels.tolist() == drawn.labels.tolist()
        assert one.by_rule == evidence(drawn.similarity, drawn.merges, PAPER).number
        assert not one.similarity.size  # a hundred of thousands of clients would fill memory
    many = group_by_relevance(np.eye(MOST_WEIGHED + 1), 3)
    clusters = Clusters(dict(enumerate(many.labels.tolist())))
    assert many.by_rule == 0
    assert with_resamples(clusters, [many], "opinions").resamples.numbers == ()


def test_so_many_clients_are_resampled_at_the_server_that_it_takes_seconds():
    for rule, most in (("elbow", 1000), (3, 1000), ("silhouette", 300), ("auto", 300)):
        assert num_resamples(most, rule) == 100
        assert num_resamples(most + 1, rule) == 0


# Nothing told apart


def scores(count, highest=0.5, lowest=0.5):
    """All `lowest` but for one pair."""
    found = np.full((count, count), lowest)
    found[0, 1] = found[1, 0] = highest
    np.fill_diagonal(found, 1)
    return found


@pytest.mark.parametrize(
    ("own", "similarity", "said"),
    [
        (labels(0), scores(2)[:1, :1], "one client was compared with nobody"),
        (labels(0, 1), scores(2, 0.1), "two clients have one score"),
        (labels(0, 1, 2), scores(2), "two clients have one score"),  # the third was not compared
        (labels(0, 0, 1), scores(3), r"the scores of all clients are the same \(0.500\)"),
        (labels(0, 0, 1), scores(3, 1, 1), r"the same \(1.000\)"),
        (labels(0, 0, 1), scores(3, 0.5009), "the same"),
        (labels(0, 0, 0), scores(3, 0.6), "all clients are in one cluster"),
        (labels(0, 1, 2), scores(3, 0.6), "each client is a cluster of its own"),
        (labels(0, 0, 1), scores(3, 0.5011), "^$"),
        (labels(0, 0, 1), scores(3, 0.6), "^$"),
    ],
)
def test_nothing_is_told_apart_by_hand(own, similarity, said):
    assert re.search(said, why_untold(own, similarity))


clients_scores = st.integers(3, 8).flatmap(
    lambda count: st.lists(
        st.floats(0, 1), min_size=count * (count - 1) // 2, max_size=count * (count - 1) // 2
    ).map(lambda known: squareform(known) + np.eye(count))
)


@given(clients_scores, st.randoms(use_true_random=False), st.data())
def test_the_order_of_clients_does_not_matter(similarity, random, data):
    own = np.array(
        data.draw(st.lists(st.integers(0, 3), min_size=len(similarity), max_size=len(similarity)))
    )
    order = random.sample(range(len(similarity)), len(similarity))
    moved = why_untold(own[order], similarity[np.ix_(order, order)])
    assert bool(moved) == bool(why_untold(own, similarity))


@given(clients_scores, st.floats(0, 1))
def test_scores_that_differ_are_told_apart_and_others_are_not(similarity, level):
    """Whatever they are; what a client is to itself does not count."""
    others = ~np.eye(len(similarity), dtype=bool)
    own = np.arange(len(similarity)) % 2
    differ = np.ptp(similarity[others]) >= SAME_SCORES
    assert (why_untold(own, similarity) == "") == differ
    shrunk = level + (similarity - 0.5) * SAME_SCORES * 0.99
    np.fill_diagonal(shrunk, 1)
    assert "the same" in why_untold(own, shrunk)


def test_nine_of_ten_resamples_are_no_doubt_and_eight_are():
    away = labels(0, 1, 2, 2)  # clients 0 and 1 are each alone
    assert certainty(FOUND, [FOUND] * 9 + [away]).doubts(FOUND) == []
    doubts = certainty(FOUND, [FOUND] * 8 + [away] * 2).doubts(FOUND)
    assert [one.client for one in doubts] == [0, 1]
