"""Which clients' updates sums of the same updates tell, alone or by two: by hand."""

import itertools

import numpy as np
import pytest

from strategies.secure.repeated_sums import told_by


@pytest.mark.parametrize(
    ("told", "sums"),
    [
        ("", ["abcdef"]),
        ("", ["abcdef", "abcdef"]),
        ("", ["abc", "def"]),
        ("a", ["abcdef", "bcdef"]),
        ("ab", ["abcdef", "cdef"]),
        ("", ["abcdef", "def"]),  # a + b + c
        ("", ["abcdef", "abc", "def", "abd", "cef"]),  # c − d, which is no sum
        ("d", ["abcdefg", "abc", "efg"]),
        ("c ab de", ["abcde", "abc", "cde"]),  # c: the last two less the first
        ("ab cd ef g", ["abcd", "cdef", "abef", "abg"]),  # a + b: by half of the first three
    ],
)
def test_by_hand(told, sums):
    assert told_by([frozenset(one) for one in sums]) == {frozenset(own) for own in told.split()}


@pytest.mark.parametrize("seed", range(60))
def test_it_is_what_solving_for_each_client_says(seed):
    """A sum is told if no other updates give the same sums and another value of it."""
    rng = np.random.default_rng(seed)
    drawn = rng.random((rng.integers(2, 5), 7)) < 0.6
    sums = [frozenset(np.flatnonzero(row).tolist()) for row in drawn if row.sum() >= 3]
    if not sums:
        return
    rows = np.array([[c in one for c in range(7)] for one in sums], float)
    told = set()
    for number in (1, 2):
        for clients in itertools.combinations(np.flatnonzero(rows.any(axis=0)).tolist(), number):
            one = np.zeros(7)
            one[list(clients)] = 1
            if np.allclose(np.linalg.lstsq(rows.T, one, rcond=None)[0] @ rows, one):
                told.add(frozenset(clients))
    # Where both of a pair are told, so is their sum.
    assert {frozenset(own) for own in told_by(sums)} <= told
    single = {own for own in told if len(own) == 1}
    assert {own for own in told_by(sums) if len(own) == 1} == single
    pairs = {own for own in told if not any(one <= own for one in single)}
    assert pairs <= told_by(sums)
