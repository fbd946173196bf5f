"""Sums of the same updates over different clients, which together tell what one of them sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fl_core.wire.masking import FEWEST

_NEAR_ONE = 1 - 1e-6


def told_by(sums: Sequence[frozenset[int]]) -> set[frozenset[int]]:
    """Return the clients whose update sums tell, and the pairs of which they tell the sum.

    That of two is none that a cluster may have either: each of them knows its own. Clients that
    are in the same sums are one column of a matrix with a row for each sum. One or two columns are
    told if some combination of the rows is 1 there and 0 elsewhere: if the projection onto the
    rows leaves that vector as it is.

    Parameters
    ----------
    sums : sequence of sets of int
        The clients of each sum; what a client sent is the same in all of them.
    """
    clients = sorted(frozenset().union(*sums))
    if not clients:
        return set()
    within = np.array([[client in one for client in clients] for one in sums], np.float64)
    columns, place_of = np.unique(within, axis=1, return_inverse=True)
    who = [
        frozenset(np.array(clients)[place_of.ravel() == place].tolist())
        for place in range(columns.shape[1])
    ]
    onto = np.linalg.pinv(columns) @ columns
    few = [place for place, own in enumerate(who) if len(own) < FEWEST]
    told = {who[place] for place in few if onto[place, place] > _NEAR_ONE}
    alone = [place for place in few if len(who[place]) == 1]
    for one, other in combinations(alone, 2):
        if (onto[one, one] + onto[other, other]) / 2 + onto[one, other] > _NEAR_ONE:
            told.add(who[one] | who[other])
    return told
