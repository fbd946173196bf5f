"""Who is in, by name: nodes that use a name which is not theirs, and whose it is."""

import pytest
from flwr.app import ConfigRecord, RecordDict

from fl_core.messages import protocol
from strategies.rounds.client_registry import Refusal, Roster


def called(name):
    return RecordDict({protocol.CONFIG: ConfigRecord({protocol.NAME: name})})


def join(roster, names, refused=None):
    """Let nodes in, by the names that they give; `refused` is what is said of them."""
    roster.refused = lambda given: refused or {}
    roster.look([*roster.nodes.values(), *names])
    answers = {node: called(name) for node, name in names.items()}
    return roster.admit(roster.recognise(answers, {}, twice_is_an_error=False))


LOOK_ALIKES = [" berlin", "berlin ", "ber  lin", "ber\u3164lin", "berlin\ufe0f", "ber\u2060lin", ""]


@pytest.mark.parametrize("name", [*LOOK_ALIKES, "x" * 101])
def test_a_name_that_looks_like_another_is_none(name, caplog):
    roster = Roster(by_name=True)
    join(roster, {7: name})
    assert roster.nodes == {}
    assert "node 7 is left out, it gave no name that can be used" in caplog.text


def test_why_a_node_never_said_who_it_is_is_known_until_it_does():
    roster = Roster(by_name=True)
    roster.look([7, 8])
    roster.recognise({8: called("")}, {7: "its disk\nis full"}, twice_is_an_error=False)
    assert roster.unknown == {7: "its disk is full", 8: "it gave no name that can be used"}
    again = roster.for_another_training()
    join(again, {7: "berlin"})
    assert list(again.unknown) == list(roster.unknown) == [8]


def test_a_client_that_fails_at_a_later_roll_call_is_not_unknown():
    roster = Roster(by_name=True)
    join(roster, {7: "berlin"})
    roster.recognise({}, {7: "its disk is full"}, twice_is_an_error=False)
    assert roster.unknown == {}


def test_who_has_an_index_is_never_unknown():
    roster = Roster()
    roster.recognise({}, {7: "its disk is full"}, twice_is_an_error=False)
    assert roster.unknown == {}


@pytest.mark.parametrize("name", ["Sankt Gallen", "Z\u00fcrich", "Zu\u0308rich", "\u6771\u4eac"])
def test_a_name_is_what_people_read(name):
    roster = Roster(by_name=True)
    join(roster, {7: name})
    assert roster.names == {0: name.replace("u\u0308", "\u00fc")}


def test_a_refusal_leaves_the_owner_of_the_name_in():
    """Another key may be registered with its name, too: Flower does not mind."""
    roster = Roster(by_name=True)
    join(roster, {7: "berlin"})
    join(roster, {8: "berlin"}, {8: Refusal("berlin", "that name belongs to another key")})
    assert roster.nodes == {0: 7}
    assert roster.failures == {}


def test_who_uses_anothers_name_is_out():
    roster = Roster(by_name=True)
    join(roster, {7: "berlin"})
    join(roster, {7: "lyon"}, {7: Refusal("berlin", "its key is that of berlin")})
    assert roster.nodes == {}
    assert roster.failures == {0: "its key is that of berlin"}


def test_a_node_that_gives_another_name_is_its_former_client_no_more():
    roster = Roster(by_name=True)
    join(roster, {7: "berlin", 8: "rome"})
    join(roster, {7: "paris"})
    assert roster.nodes == {1: 8, 2: 7}
    assert roster.failures == {0: "its node says now that it is paris"}
