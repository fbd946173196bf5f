"""How sure a grouping is: numbers by hand, and what must not matter."""

import re

import numpy as np
import pytest

from strategies.clusterings.certainty import NO_CLUSTER, certainty, pair_shares, why_no_structure


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
    """Client 0 is alone where client 1 is away; 2 and 3 are always together."""
    found = certainty(FOUND, DRAWN)
    assert found.of_client.tolist() == [0.5, 0.5, 1.0, 1.0]
    assert found.votes[1].tolist() == [0.5, 0.25, 0.25]
    assert found.votes[0].tolist() == [0.5, 0.0, 0.5]
    assert [tuple(one) for one in found.doubts(FOUND)] == [(0, 0, NO_CLUSTER, 0.5), (1, 0, 1, 0.25)]


def test_a_client_lands_where_it_is_with_the_larger_share():
    """Of cluster 0's two others client 0 is with one, of cluster 1's three two."""
    found = certainty(labels(0, 0, 0, 1, 1, 1), [labels(0, 0, 1, 0, 0, 1)])
    assert found.votes[0].tolist() == [0, 1, 0]
    assert certainty(labels(0, 0, 0, 1, 1), [labels(0, 0, 1, 0, 1)]).of_client[0] == 1  # a tie


# Clients that cannot be distinguished


def scores(count, highest=0.5, lowest=0.5):
    """All `lowest` but for one pair."""
    found = np.full((count, count), lowest)
    found[0, 1] = found[1, 0] = highest
    np.fill_diagonal(found, 1)
    return found


@pytest.mark.parametrize(
    ("found", "similarity", "said"),
    [
        (labels(0), scores(2)[:1, :1], "only one client was compared"),
        (labels(0, 1), scores(2, 0.1), "two clients have one score"),
        (labels(0, 1, 2), scores(2), "two clients have one score"),  # the third was not compared
        (labels(0, 0, 1), scores(3), r"the scores of all clients are the same \(0.500\)"),
        (labels(0, 0, 1), scores(3, 1, 1), r"the same \(1.000\)"),
        (labels(0, 0, 1), scores(3, 0.5009), "the same"),
        (labels(0, 0, 0), scores(3, 0.6), "all clients are in one cluster"),
        (labels(0, 1, 2), scores(3, 0.6), "each client is a separate cluster"),
        (labels(0, 0, 1), scores(3, 0.5011), "^$"),
        (labels(0, 0, 1), scores(3, 0.6), "^$"),
    ],
)
def test_why_there_is_no_structure_by_hand(found, similarity, said):
    assert re.search(said, why_no_structure(found, similarity))


def test_nine_of_ten_resamples_are_no_doubt_and_eight_are():
    away = labels(0, 1, 2, 2)  # clients 0 and 1 are each alone
    assert certainty(FOUND, [FOUND] * 9 + [away]).doubts(FOUND) == []
    doubts = certainty(FOUND, [FOUND] * 8 + [away] * 2).doubts(FOUND)
    assert [one.client for one in doubts] == [0, 1]
