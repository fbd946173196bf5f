"""Updates as vectors: whose lean towards another cluster."""

import numpy as np
import pytest

from strategies.engine.rounds import Update
from strategies.engine.updates import leanings

FROM = {0: (0, 0), 1: (8, 0), 2: (0, 9)}


def update(client, cluster, *trained):
    arrays, received = ({"w": np.array(w, np.float32)} for w in (trained, FROM[cluster]))
    return Update(client, cluster, arrays, 1, received)


def test_by_hand_who_leans_towards_another_cluster():
    # Client 2 moves by (0.6, 0.8). The others of its cluster are at (−1, 0), those of the other one
    # at (9, 0): the cosine with (10, 0) is 0.6. Client 3 moves by (1, 0), away from (−0.5, 0.3).
    updates = [update(0, 0, -1, 0), update(1, 0, -1, 0), update(2, 0, 0.6, 0.8)]
    updates += [update(3, 1, 9, 0), update(4, 1, 9, 0)]
    found = leanings(updates)
    assert found[2] == pytest.approx(0.6)
    way = np.array([-1.4 / 3 - 9, 0.8 / 3])
    assert found[3] == pytest.approx(way[0] / np.linalg.norm(way))
    assert max(found[client] for client in (0, 1, 4)) < -0.9
    # A third cluster that has arrived at (−1, 10), so straight up: the larger cosine counts.
    assert leanings([*updates, update(5, 2, -1, 10)])[2] == pytest.approx(0.8)


def test_without_company_or_another_cluster_nobody_is_judged():
    apart = [update(0, 0, 1, 1), update(1, 1, 7, 0), update(2, 1, 7, 1)]
    assert leanings(apart).keys() == {1, 2}
    assert leanings(apart[1:]) == leanings(apart[:2]) == leanings([]) == {}


def test_a_client_that_does_not_move_does_not_lean():
    assert leanings([update(0, 0, 0, 0), update(1, 0, 1, 0), update(2, 1, 8, 0)])[0] == 0
