"""Who is at fault for shares that do not fit: worked by hand."""

import numpy as np
import pytest

from fl_core import masking
from strategies.secure_aggregation import ClusterSum


def sum_of(count):
    members = list(range(count))
    keys = np.zeros((count, 2, masking.PUBLIC_KEY_BYTES), np.uint8)
    return ClusterSum(0, members, [str(m) for m in members], keys, dict.fromkeys(members, keys[0]))


@pytest.mark.parametrize(
    ("count", "unfit", "named"),
    [
        (5, [], []),
        # Either side of a pair may be at fault, and two that agree must not outvote a third.
        (5, [(1, 0)], []),
        (3, [(2, 0), (0, 2), (1, 2), (2, 1)], []),
        (12, [(2, holder) for holder in (0, 1, 3, 4, 5)], []),
        (3, [(1, 0), (1, 1), (1, 2)], [1]),
        # More than half of the others do not lie.
        (12, [(2, holder) for holder in (0, 1, 3, 4, 5, 6)], [2]),
        (12, [(owner, 2) for owner in (0, 1, 3, 4, 5, 6)], [2]),
        (5, [(2, 0), (1, 2), (2, 3)], [2]),
        (5, [(2, 0), (0, 2), (2, 3)], []),
    ],
)
def test_who_is_at_fault(count, unfit, named):
    assert sorted(sum_of(count).at_fault(unfit)) == named
