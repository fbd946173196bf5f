"""Clients of whom a comparison says little: numbers by hand, and what must not matter."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clients.pre_round.uninformative import MOST_OF_ONE_COLUMN, why_uninformative

SAME = "all its samples are the same"


def rows(*numbers):
    return np.array(numbers, np.float32)


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (rows([3, 1], [4, 1], [-4, 1]), ""),  # 41 of 44 squares, 0.932
        (rows([3, 1], [5, 1], [-5, 1]), "column 0"),  # 59 of 62, 0.952
        (rows([1, -3], [0, 9]), "column 1"),
        (rows([7], [8]), "column 0"),  # there is one only
        (rows([2, 1], [2, 1]), SAME),
        (rows([2, 1]), ""),  # one sample is what it is
        (rows([0, 0], [0, 0]), SAME),
        (rows([0, 0]), ""),  # whose spectrum is refused anyway
    ],
)
def test_what_is_said_by_hand(features, said):
    found = why_uninformative(features)
    assert said in found
    assert bool(said) == bool(found)


def test_a_column_has_its_name_if_all_have_one():
    features = rows([3, 1], [5, 1], [-5, 1])
    assert why_uninformative(features, ("a\tb", "c")).startswith("column a\\tb of its features")
    assert why_uninformative(features, ("a",)).startswith("column 0 of its features")


some_rows = arrays.arrays(
    np.float32,
    st.tuples(st.integers(2, 6), st.integers(1, 6)),
    elements=st.floats(-8, 8, width=16),
)


@given(some_rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_columns_and_the_scale_do_not_matter(features, random):
    rows, columns = (random.sample(range(size), size) for size in features.shape)
    moved = why_uninformative(4 * features[np.ix_(rows, columns)])
    assert (SAME in moved) == (SAME in why_uninformative(features))
    assert bool(moved) == bool(why_uninformative(features))


@given(some_rows)
def test_a_column_is_named_only_if_the_others_hold_next_to_nothing(features):
    found = why_uninformative(features)
    squares = np.square(features.astype(np.float64)).sum(axis=0)
    if "column" in found:
        own = int(found.split()[1])
        assert np.delete(squares, own).sum() <= (1 - MOST_OF_ONE_COLUMN) * squares.sum()
    elif not found:
        assert (squares <= MOST_OF_ONE_COLUMN * squares.sum()).all()
