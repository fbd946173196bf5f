"""Who is in, by name: nodes that use the name of another."""

import pytest
from flwr.app import ConfigRecord, RecordDict

from fl_core.messages import protocol
from strategies.rounds.client_registry import ClientRegistry, Refusal


def called(name):
    return RecordDict({protocol.CONFIG: ConfigRecord({protocol.NAME: name})})


def join(registry, names, refused=None):
    """Let nodes in, by the names that they give; `refused` is what is said of them."""
    registry.refused = lambda given: refused or {}
    registry.update_connected([*registry.nodes.values(), *names])
    answers = {node: called(name) for node, name in names.items()}
    return registry.admit(registry.identify_clients(answers, {}, is_start=False))


LOOK_ALIKES = [" berlin", "berlin ", "ber  lin", "ber\u3164lin", "berlin\ufe0f", "ber\u2060lin", ""]


@pytest.mark.parametrize("name", [*LOOK_ALIKES, "x" * 101])
def test_a_name_that_looks_like_another_is_none(name, caplog):
    registry = ClientRegistry(by_name=True)
    join(registry, {7: name})
    assert registry.nodes == {}
    assert "node 7 is left out, it gave no name that can be used" in caplog.text


def test_why_a_node_never_said_who_it_is_is_known_until_it_does():
    registry = ClientRegistry(by_name=True)
    registry.update_connected([7, 8])
    registry.identify_clients({8: called("")}, {7: "its disk\nis full"}, is_start=False)
    assert registry.unknown == {7: "its disk is full", 8: "it gave no name that can be used"}
    again = registry.copy()
    join(again, {7: "berlin"})
    assert list(again.unknown) == list(registry.unknown) == [8]


def test_two_unknown_nodes_with_one_registered_name_are_both_named():
    registry = ClientRegistry(by_name=True, registered_name={7: "berlin", 8: "berlin"}.get)
    registry.identify_clients({}, {7: "disk full", 8: "no data"}, is_start=False)
    assert registry.unknown_by_name == {
        "berlin (node 7)": "disk full",
        "berlin (node 8)": "no data",
    }


def test_a_client_that_fails_at_a_later_roll_call_is_not_unknown():
    registry = ClientRegistry(by_name=True)
    join(registry, {7: "berlin"})
    registry.identify_clients({}, {7: "its disk is full"}, is_start=False)
    assert registry.unknown == {}


@pytest.mark.parametrize("name", ["Sankt Gallen", "Z\u00fcrich", "Zu\u0308rich", "\u6771\u4eac"])
def test_a_name_is_what_people_read(name):
    registry = ClientRegistry(by_name=True)
    join(registry, {7: name})
    assert registry.names == {0: name.replace("u\u0308", "\u00fc")}


def test_a_refusal_leaves_the_owner_of_the_name_in():
    """Another key may be registered with its name, too: Flower does not mind."""
    registry = ClientRegistry(by_name=True)
    join(registry, {7: "berlin"})
    join(registry, {8: "berlin"}, {8: Refusal("berlin", "that name belongs to another key")})
    assert registry.nodes == {0: 7}
    assert registry.failures == {}


def test_who_uses_anothers_name_is_out():
    registry = ClientRegistry(by_name=True)
    join(registry, {7: "berlin"})
    join(registry, {7: "lyon"}, {7: Refusal("berlin", "its key is that of berlin")})
    assert registry.nodes == {}
    assert registry.failures == {0: "its key is that of berlin"}


def test_a_node_that_gives_another_name_is_its_former_client_no_more():
    registry = ClientRegistry(by_name=True)
    join(registry, {7: "berlin", 8: "rome"})
    join(registry, {7: "paris"})
    assert registry.nodes == {1: 8, 2: 7}
    assert registry.failures == {0: "its node says now that it is paris"}
