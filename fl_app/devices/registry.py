"""The devices that are registered at the SuperLink: each has a key and a name.

The SuperLink checks a node's key at each request, and sends the server that key and its name.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable
from unicodedata import normalize

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_public_key, ssh_key_fingerprint

from fl_app.devices.tls import context_trusting, parse_address
from fl_app.report.text_table import TextTable
from fl_app.results.layout import SUMMARY
from fl_app.results.reading import read_summary
from fl_core.flower.basics import NodeStatus
from fl_core.flower.calls import FlowerError
from fl_core.flower.messages import ListNodesRequest, NodeInfo
from fl_core.flower.server import ControlHttpClient
from strategies.rounds.client_registry import Refusal

_log = logging.getLogger(__name__)


class Registration(NamedTuple):
    """How a node was registered."""

    key: str  # its fingerprint
    name: str  # in Unicode's form NFC; empty: registered without a name
    at: datetime
    node: int = 0  # its id
    connected: str = ""  # yes, or when it was connected last

    @classmethod
    def of(cls, node: NodeInfo) -> Registration:
        """Read the SuperLink's information on a node."""
        connected = "never"
        if node.status == NodeStatus.ONLINE:
            connected = "yes"
        elif left := node.last_deactivated_at:
            connected = f"last {datetime.fromisoformat(left):%Y-%m-%d %H:%M} UTC"
        key, name = fingerprint(node.public_key), normalize("NFC", node.name)
        return cls(key, name, datetime.fromisoformat(node.registered_at), node.node_id, connected)


Registrations = Mapping[int, Registration]
"""By the id of the node."""


@runtime_checkable
class KnowsRegistrations(Protocol):
    """A grid whose nodes are registered with keys and names."""

    def registrations(self) -> Registrations:
        """Return those of all nodes that were connected in this run; none without TLS."""


def fingerprint(public_key: bytes) -> str:
    """Return the fingerprint of a key in PEM, as `ssh-keygen -l -f berlin.pub` shows it."""
    key = load_pem_public_key(public_key)
    digest = ssh_key_fingerprint(key, hashes.SHA256())  # type: ignore[arg-type]
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def short(key: str) -> str:
    """Return the beginning of a fingerprint: "SHA256:" and 72 bits."""
    return f"{key[:19]}…"


def refused_names(registrations: Registrations, names: Mapping[int, str]) -> dict[int, Refusal]:
    """Return which nodes may not use the names that they send, and why.

    A name must be the one with which the node's key was registered. If two keys were registered
    with one name, only the first may use it.
    """
    first: dict[str, Registration] = {}
    for one in sorted(registrations.values(), key=lambda one: (one.at, one.key)):
        first.setdefault(one.name, one)
    refusals = {}
    for node, name in names.items():
        if (registered := registrations.get(node)) is None:
            continue
        called, reason = f"key {short(registered.key)}", ""
        if not registered.name:
            reason = (
                "its key was registered without --name: make a new key, and register that with "
                f"--name {name or 'NAME'}"
            )
        elif registered.name != name:
            called = registered.name
            reason = f"its name is {name}, but its key is registered as {called}"
        elif first[name] != registered:
            other = short(first[name].key)
            reason = f"its key was registered as {name} after key {other}: revoke one of the two"
        if reason:
            refusals[node] = Refusal(called, reason)
    return refusals


def registered_name(registrations: Registrations, node: int) -> str:
    """Return the name with which a node was registered; empty if there is none."""
    return registrations[node].name if node in registrations else ""


@contextmanager
def control_client(superlink: str, certificates: Path) -> Iterator[ControlHttpClient]:
    """Yield a client of the Control API of the SuperLink at HOST:PORT, with ca.crt of a folder."""
    parse_address(superlink, "--superlink")
    authority = certificates / "ca.crt"
    context_trusting(authority)  # which says what is wrong with it
    root = authority.read_bytes()
    try:
        with ControlHttpClient.from_server_address(superlink, False, root, ()) as client:
            yield client
    except httpx.HTTPStatusError as error:
        answer = FlowerError.from_json(error.response.text)
        raise RuntimeError(
            f"the SuperLink at {superlink} answers {answer or error.response.status_code}."
        ) from error
    except httpx.TransportError as error:
        raise RuntimeError(
            f"the SuperLink at {superlink} does not answer ({error}): run this on its machine, and "
            "name its address with --superlink and the folder of its ca.crt with --certificates."
        ) from error


def list_devices(client: ControlHttpClient) -> list[Registration]:
    """Return the registered devices by name; of one name, by time of registration."""
    nodes = client.ListNodes(ListNodesRequest()).nodes_info
    known = [Registration.of(one) for one in nodes if one.status != NodeStatus.UNREGISTERED]
    return sorted(known, key=lambda device: (not device.name, device.name, device.at))


def find_device(devices: Iterable[Registration], called: str) -> Registration:
    """Return the device with a name, or with a key that begins so."""
    key = called.rstrip("…")
    found = [device for device in devices if called and device.name == called] or [
        device for device in devices if len(key) > len("SHA256:") and device.key.startswith(key)
    ]
    if not found:
        raise ValueError(f"no device is called {called}: `fedkin devices` lists them.")
    if len(found) > 1:
        keys = ", ".join(short(device.key) for device in found)
        raise ValueError(f"{len(found)} devices have the name {called}: choose one by key, {keys}.")
    return found[0]


def last_clusters(folder: Path) -> tuple[str, dict[str, int]]:
    """Return a caption on the last run below `folder`/results, and each device's cluster in it.

    The run's first strategy counts. Without a run on devices, both are empty.
    """
    summaries = (folder / "results").glob(f"*/{SUMMARY}")
    for path in sorted(summaries, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            run = read_summary(path.parent).runs[0]
        except ValueError as error:
            _log.warning("%s", error)
            continue
        if run.models_not_stored is not None:  # a simulation has none
            of_name = {run.names[client]: cluster for client, cluster in run.of_client.items()}
            return f"clusters: {run.strategy}, seed {run.seed}, {path}", of_name
    return "", {}


def device_table(devices: list[Registration], clusters: Mapping[str, int]) -> TextTable:
    """Return one row per device; a cluster is that of the first key with its name."""
    rows, named = [], set()
    for device in devices:
        cluster = str(clusters.get(device.name, "")) if device.name not in named else ""
        named.add(device.name)
        name, key = device.name or "(none)", short(device.key)
        rows.append([name, key, device.connected, cluster, str(device.node)])
    columns = ["name", "key", "connected", "cluster", "node"]
    return TextTable(f"{len(devices)} devices", columns, rows)
