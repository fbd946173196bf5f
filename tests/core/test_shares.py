"""Secrets are combined as by Flower, from any shares."""

import pytest
from flwr.common.secure_aggregation.crypto import shamir
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.secret_shares import combine_shares

INDICES = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))


def outcome(combine, shares):
    """Return the secret, or that there is none."""
    try:
        return combine(shares)
    except ValueError:
        return None


@settings(max_examples=30)  # Flower takes its time
@given(st.data(), st.binary(max_size=20), st.integers(2, 4))
def test_fewer_shares_than_the_threshold_and_more_give_what_they_give_with_flower(
    data, secret, threshold
):
    made = shamir.create_shares(secret, threshold, 6)
    taken = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=6, unique=True))
    found = outcome(combine_shares, taken)
    assert found == outcome(shamir.combine_shares, taken)
    assert len(taken) < threshold or found == secret


def padded(index, blocks):
    """Return a single share of a polynomial, with the right padding."""
    return index.to_bytes(4, "little") + b"".join(blocks) + bytes([16] * 16)


VALUES = st.lists(st.binary(min_size=16, max_size=16), max_size=2)


@settings(max_examples=50)
@given(INDICES, VALUES, st.lists(st.tuples(INDICES, st.binary(max_size=60)), max_size=3))
def test_shares_of_no_polynomial_and_of_any_length_give_what_they_give_with_flower(
    index, blocks, others
):
    shares = [padded(index, blocks), *(i.to_bytes(4, "little") + tail for i, tail in others)]
    assert outcome(combine_shares, shares) == outcome(shamir.combine_shares, shares)
    same = [padded(i, blocks) for i in dict.fromkeys([index, *(i for i, _ in others)])]
    assert outcome(combine_shares, same) == outcome(shamir.combine_shares, same) == b"".join(blocks)


@pytest.mark.parametrize("last", [bytes(16), bytes([17] * 16), bytes([*range(14), 1, 2]), b""])
def test_a_wrong_padding_or_length_and_a_repeated_index_are_no_secret(last):
    share = bytes([1, 0, 0, 0]) + last
    for shares in ([share], [padded(1, []), padded(1, [])], [padded(1, []), share]):
        assert outcome(combine_shares, shares) is outcome(shamir.combine_shares, shares) is None
