"""Who spoils secure sums: chances worked by hand, and whole searches with sums made up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.secure.spoilers import (
    OFTEN_SHORT,
    OFTEN_SPOILT,
    Fault,
    Outcome,
    Spoilers,
    chances_of_honesty,
)


def outcomes(*parts, spoilt):
    """Return the sums over parts, of which those at the places `spoilt` are not right."""
    return [made(part, place in spoilt) for place, part in enumerate(parts)]


def made(part, is_spoilt):
    return Outcome(frozenset(part), Fault.GARBAGE if is_spoilt else Fault.NONE)


FOUR_PARTS = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))


def test_an_honest_client_is_in_a_spoilt_sum_by_the_share_of_its_places():
    # Of eleven honest clients two are in the spoilt part.
    found = chances_of_honesty([outcomes(*FOUR_PARTS, spoilt={0})])
    assert [found[client] for client in (0, 1, 2)] == pytest.approx([2 / 11] * 3)
    assert [found[client] for client in range(3, 12)] == [1] * 9
    # Of ten, four are in two spoilt parts.
    found = chances_of_honesty([outcomes(*FOUR_PARTS, spoilt={0, 3})])
    assert found[9] == pytest.approx(4 / 10)


def test_several_rounds_multiply_and_a_right_sum_speaks_for_a_client():
    again = ((0, 3, 6), (1, 4, 9), (2, 7, 10), (5, 8, 11))
    rounds = [outcomes(*FOUR_PARTS, spoilt={0}), outcomes(*again, spoilt={0})]
    found = chances_of_honesty(rounds)
    assert found[0] == pytest.approx((2 / 11) ** 2)
    once = 1 - (9 / 11) ** 2  # in one spoilt sum or more of two
    assert [found[client] for client in (1, 2, 3, 6)] == pytest.approx([once] * 4)


def test_a_spoilt_sum_over_all_says_nothing_of_anybody():
    assert set(chances_of_honesty([outcomes(range(12), spoilt={0})]).values()) == {1}


def test_a_sum_that_a_known_spoiler_was_in_says_nothing_of_the_others():
    rounds = [outcomes(*FOUR_PARTS, spoilt={0, 1})]
    found = chances_of_honesty(rounds, known={0})
    assert not found.keys() & {0, 1, 2}
    assert found[3] == pytest.approx(2 / 8)  # of nine clients in three parts, one spoilt
    assert chances_of_honesty(rounds, known={0, 3}) == {}


@given(st.permutations(range(12)), st.sets(st.integers(0, 3)))
def test_what_clients_are_called_changes_nothing(names, spoilt):
    renamed = [[names[client] for client in part] for part in FOUR_PARTS]
    found = chances_of_honesty([outcomes(*renamed, spoilt=spoilt)])
    before = chances_of_honesty([outcomes(*FOUR_PARTS, spoilt=spoilt)])
    assert found == {names[client]: chance for client, chance in sorted(before.items())}


def search(clients, spoils, rounds, seed=0):
    """Return what sums tell in so many rounds; `spoils` says who does, by client and round."""
    spoilers = Spoilers(np.random.default_rng(seed))
    sizes, when = [], {}
    for number in range(1, rounds + 1):
        parts = spoilers.parts_of(0, [c for c in range(clients) if c not in spoilers.left_out])
        assert sorted(client for part in parts for client in part) == [
            client for client in range(clients) if client not in spoilers.left_out
        ]
        sizes.append([len(part) for part in parts])
        found = [made(part, any(spoils(client, number) for client in part)) for part in parts]
        spoilers.learn(0, found, [1.0] * [one.fault for one in found].count(Fault.NONE))
        for client in spoilers.left_out:
            when.setdefault(client, number)
    return sizes, when, spoilers


def test_parts_are_summed_first_and_then_the_whole_while_nobody_spoils():
    for clients, first in (
        (5, [5]),
        (6, [3, 3]),
        (8, [4, 4]),
        (12, [3] * 4),
        (31, [7, 6, 6, 6, 6]),
    ):
        sizes, when, _ = search(clients, lambda client, number: False, 3)
        assert sizes == [first, [clients], [clients]]
        assert not when


def test_who_always_spoils_is_left_out_and_then_the_whole_is_summed_again():
    # (2/11)⁵ × 12 is below a hundredth, and (2/11)⁴ × 12 is not.
    sizes, when, spoilers = search(12, lambda client, number: client == 7, 7)
    assert when == {7: 5}
    assert sizes == [[3] * 4] * 5 + [[11]] * 2
    assert spoilers.left_out == {7: OFTEN_SPOILT}
    assert not spoilers.searches(0)


def test_two_who_always_spoil_are_both_found():
    for seed in range(5):
        _, when, _ = search(12, lambda client, number: client in (2, 7), 10, seed)
        assert sorted(when) == [2, 7]


def test_who_spoils_now_and_then_costs_its_part_and_is_found_later():
    sizes, when, _ = search(12, lambda client, number: client == 7 and number % 2 == 0, 16)
    assert list(when) == [7]
    assert sizes[1] == [12]  # the first round was right
    assert set(map(tuple, sizes[2 : when[7]])) == {(3,) * 4}


def test_who_has_spoilt_once_is_not_accused_and_its_cluster_stays_in_parts():
    sizes, when, spoilers = search(12, lambda client, number: client == 7 and number == 2, 20)
    assert not when
    assert sizes[2:] == [[3] * 4] * 18
    assert spoilers.searches(0)


def test_of_fewer_than_six_nobody_is_searched_for():
    sizes, when, spoilers = search(5, lambda client, number: client == 1, 20)
    assert sizes == [[5]] * 20
    assert not when
    assert spoilers.searches(0)


def test_clusters_are_searched_apart():
    spoilers = Spoilers(np.random.default_rng(0))
    for cluster in (0, 1):
        whole = [made(range(12), cluster == 0)]
        spoilers.learn(cluster, whole, [1.0])
    assert [len(spoilers.parts_of(cluster, range(12))) for cluster in (0, 1)] == [4, 1]


def test_nobody_is_left_out_by_chance_in_most_searches():
    """At each look less than one search in a hundred accuses an honest client."""
    accused = [
        sorted(search(12, lambda client, number: client in (0, 1), 10, seed)[1].keys() - {0, 1})
        for seed in range(40)
    ]
    assert sum(map(bool, accused)) <= 1


def test_a_place_in_a_part_does_not_say_in_whose_company_one_is():
    """Client 1 would be second just when 0 is there, too, and could have 0 left out."""
    for seed in range(5):
        spoilers = Spoilers(np.random.default_rng(seed))
        spoilers.learn(0, [made(range(12), is_spoilt=True)], [])
        while not spoilers.left_out:
            parts = spoilers.parts_of(0, range(12))
            found = [made(part, part[1] == 1) for part in parts]
            spoilers.learn(0, found, [1.0])
        assert list(spoilers.left_out) == [1]


FINE, LONG, SHORT = Fault.NONE, Fault.LONG, Fault.SHORT


def test_an_update_that_is_far_too_long_is_found_among_the_others():
    spoilers = Spoilers(np.random.default_rng(0))
    assert spoilers.faults(0, [1.0, 2.0, 1.5, 3.0]) == [FINE] * 4
    assert spoilers.faults(0, [1.0, 2.0, 1.5, 9.0]) == [FINE, FINE, FINE, LONG]
    assert spoilers.faults(0, [1.0, None, 1.5, 9.0]) == [SHORT, Fault.GARBAGE, FINE, LONG]
    assert spoilers.faults(0, [0.0, 0.0, 1.0]) == [FINE] * 3  # nobody knows what is usual


def test_where_as_many_are_long_as_short_either_may_be_at_fault():
    spoilers = Spoilers(np.random.default_rng(0))
    assert spoilers.faults(0, [1.0, 4.1]) == [SHORT, LONG]
    assert spoilers.faults(0, [1.0, 50.0, 1.5, 60.0]) == [SHORT, LONG, SHORT, LONG]
    assert spoilers.faults(0, [1.0, 1.0, 1.0, 0.1]) == [FINE] * 4  # who is short harms nobody


def test_more_than_half_of_the_parts_say_what_is_usual():
    """It is a limit, and docs/robustness.md says so."""
    spoilers = Spoilers(np.random.default_rng(0))
    assert spoilers.faults(0, [50.0, 1.0, 50.0]) == [FINE] * 3
    assert LONG not in spoilers.faults(0, [50.0, 1.0, 50.0, 1.0, 50.0])
    found = spoilers.faults(0, [50.0, 1.0, 50.0, 1.0, 1.0])
    assert [fault is LONG for fault in found] == [True, False, True, False, False]


@pytest.mark.parametrize("length", [0.01, 100.0])
@pytest.mark.parametrize(("clients", "liars"), [(8, {3}), (12, {2, 7})])
def test_whoever_makes_others_look_wrong_is_found_itself(clients, liars, length):
    """Half of the parts may be theirs: by their lengths alone nobody can tell in one round."""
    for seed in range(5):
        spoilers = Spoilers(np.random.default_rng(seed))
        for _ in range(60):
            parts = spoilers.parts_of(0, [c for c in range(clients) if c not in spoilers.left_out])
            lengths = [length if liars & set(part) else 1.0 for part in parts]
            faults = spoilers.faults(0, lengths)
            found = [Outcome(frozenset(p), f) for p, f in zip(parts, faults, strict=True)]
            counted = [x for x, f in zip(lengths, faults, strict=True) if f is not LONG]
            spoilers.learn(0, found, counted or lengths)
        assert spoilers.left_out.keys() <= liars
        assert set(spoilers.left_out.values()) <= {OFTEN_SPOILT if length > 1 else OFTEN_SHORT}


def test_what_a_known_spoiler_made_look_wrong_says_nothing_of_others():
    parts = [Outcome(frozenset(part), SHORT if 0 in part else LONG) for part in FOUR_PARTS]
    both = frozenset({Fault.GARBAGE, LONG})
    # If 0 is at fault, all nine in long ones are among eleven honest clients.
    assert chances_of_honesty([parts], both)[3] == pytest.approx(9 / 11)
    assert chances_of_honesty([parts], both, known={0}) == {}
    # If there is a spoiler in each long one, all three beside 0 may be honest.
    assert chances_of_honesty([parts], frozenset({SHORT}))[0] == pytest.approx(3 / 9)
    assert chances_of_honesty([parts], frozenset({SHORT}), known={3}) == {}


def test_a_sum_over_all_is_compared_with_earlier_rounds():
    spoilers = Spoilers(np.random.default_rng(0))
    assert spoilers.faults(0, [100.0]) == [FINE]
    for length in (3.0, 2.0, 1.0):
        spoilers.learn(0, [made(range(12), is_spoilt=False)], [length])
    assert spoilers.faults(0, [8.0]) == [FINE]
    assert spoilers.faults(0, [8.1]) == [LONG]
    assert spoilers.faults(1, [8.1]) == [FINE]  # another cluster's


def test_what_is_told_already_is_no_reason_to_read_no_more():
    """Of two sums that told 0's update, a third tells nothing new; nor does one of who is out."""
    spoilers = Spoilers(np.random.default_rng(0))
    everybody, without = frozenset(range(6)), frozenset(range(1, 6))
    assert spoilers.hides(0, everybody)
    spoilers.note(0, everybody)
    assert not spoilers.hides(0, without)
    assert spoilers.hides(1, without)  # another cluster's
    assert not spoilers.hides(0, frozenset({3, 4, 5}), beside=[frozenset({1, 2})])
    spoilers.note(0, without)
    assert spoilers.hides(0, without)
    spoilers.move(0)
    assert spoilers.hides(0, without)
    spoilers.note(0, everybody)
    spoilers.blame(0, "garbage")
    assert spoilers.hides(0, without)


def test_sums_alone_make_nothing_usual_that_is_longer_but_of_too_few_to_search():
    """Means of 1, 3 and 9, each within four times the median before, leave it at 1."""
    for clients, usual in ((6, [1.0, 1.0, 1.0]), (5, [1.0, 2.0, 3.0])):
        spoilers = Spoilers(np.random.default_rng(0))
        for length, then in zip((1.0, 3.0, 9.0), usual, strict=True):
            spoilers.learn(0, [made(range(clients), is_spoilt=False)], [length])
            assert spoilers.usual(0) == then


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=8), st.floats(0.01, 100))
def test_the_scale_of_updates_does_not_matter(lengths, scale):
    spoilers = Spoilers(np.random.default_rng(0))
    rounded = [float(np.round(length, 2)) for length in lengths]
    usual = [np.median(rounded[:i] + rounded[i + 1 :]) for i in range(len(rounded))]
    near = [4 * u - x for u, x in zip(usual, rounded, strict=True)]
    near += [u - 4 * x for u, x in zip(usual, rounded, strict=True)]
    if min(map(abs, near)) > 1e-6:
        assert spoilers.faults(0, rounded) == spoilers.faults(0, [scale * x for x in rounded])
