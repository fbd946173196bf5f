"""A device's name is the one with which its key was registered at the SuperLink.

The SuperLink checks at each request that a node has the key with which it was registered, and sends
the server that key and its name. So a device cannot use another's name.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable
from unicodedata import normalize

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_public_key, ssh_key_fingerprint

from fl_core.flower.basics import NodeStatus
from fl_core.flower.messages import NodeInfo
from strategies.rounds.client_registry import Refusal

_SHORT = 19  # of a fingerprint: "SHA256:" and 72 bits


class Registration(NamedTuple):
    """How a node was registered.

    Attributes
    ----------
    key : str
        The fingerprint of its key.
    name : str
        In Unicode's form NFC; empty: it was registered without one.
    at : datetime
    node : int
        Flower's number for it.
    is_online : bool
        Whether it is connected.
    seen : datetime, optional
        When it was connected last, if it is not; None: never.
    """

    key: str
    name: str
    at: datetime
    node: int = 0
    is_online: bool = False
    seen: datetime | None = None

    @classmethod
    def of(cls, node: NodeInfo) -> Registration:
        """Return what the SuperLink says of a node."""
        is_online = node.status == NodeStatus.ONLINE
        left = node.last_deactivated_at
        return cls(
            key=fingerprint(node.public_key),
            name=normalize("NFC", node.name),
            at=datetime.fromisoformat(node.registered_at),
            node=node.node_id,
            is_online=is_online,
            seen=datetime.fromisoformat(left) if left and not is_online else None,
        )


@runtime_checkable
class KnowsRegistrations(Protocol):
    """A grid whose nodes are registered with keys and names."""

    def registrations(self) -> Mapping[int, Registration]:
        """Return those of all nodes that were connected in this run, by node; none without TLS."""


def fingerprint(public_key: bytes) -> str:
    """Return the fingerprint of a key in PEM, as `ssh-keygen -l -f berlin.pub` shows it."""
    key = load_pem_public_key(public_key)
    digest = ssh_key_fingerprint(key, hashes.SHA256())  # type: ignore[arg-type]
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def short(key: str) -> str:
    """Return the beginning of a fingerprint, which no two keys of a federation share.

    Examples
    --------
    >>> short("SHA256:abcdefghijklmnop")
    'SHA256:abcdefghijkl…'
    """
    return f"{key[:_SHORT]}…"


def refused_names(grid: KnowsRegistrations, given: Mapping[int, str]) -> dict[int, Refusal]:
    """Return which nodes may not use the names that they give, and why.

    A name must be the one with which the node's key was registered. Of two keys that were
    registered with one name, the first has it.
    """
    registrations = grid.registrations()
    first: dict[str, Registration] = {}
    for one in sorted(registrations.values(), key=lambda one: (one.at, one.key)):
        first.setdefault(one.name, one)
    refusals = {}
    for node, name in given.items():
        if (own := registrations.get(node)) is None:
            continue
        if not own.name:
            reason = (
                "its key was registered without --name: make it a new key, and register that with "
                f"--name {name}"
            )
            refusals[node] = Refusal(f"key {short(own.key)}", reason)
        elif own.name != name:
            reason = f"it says that it is {name}, but its key is registered as {own.name}"
            refusals[node] = Refusal(own.name, reason)
        elif (owner := first[name]) != own:
            reason = f"its key was registered as {name} after key {short(owner.key)}: revoke one"
            refusals[node] = Refusal(f"key {short(own.key)}", reason)
    return refusals
