"""The devices that are registered at the SuperLink: each has a key and a name.

The SuperLink checks at each request that a node has the key with which it was registered, and sends
the server that key and its name. So a device cannot use another's name.
"""

from __future__ import annotations

import base64
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable
from unicodedata import normalize

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import load_pem_public_key, ssh_key_fingerprint

from fl_app.devices.tls import context_to_superlink
from fl_app.report.text_table import TextTable
from fl_app.results.layout import SUMMARY
from fl_app.results.reading import read_summary
from fl_core.flower.basics import NodeStatus
from fl_core.flower.calls import FlowerError
from fl_core.flower.messages import ListNodesRequest, NodeInfo
from fl_core.flower.server import ControlHttpClient
from strategies.rounds.client_registry import Refusal

_SHORT = 19  # of a fingerprint: "SHA256:" and 72 bits

_log = logging.getLogger(__name__)


class Registration(NamedTuple):
    """How a node was registered."""

    key: str  # its fingerprint
    name: str  # in Unicode's form NFC; empty: registered without a name
    at: datetime
    node: int = 0  # its id
    is_online: bool = False
    seen: datetime | None = None  # when it was connected last, if it is not; None: never

    @classmethod
    def of(cls, node: NodeInfo) -> Registration:
        """Read the SuperLink's information on a node."""
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

    @property
    def short_key(self) -> str:
        """Return the beginning of its key."""
        return short(self.key)


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
    """Return the beginning of a fingerprint, with an ellipsis."""
    return f"{key[:_SHORT]}…"


def refused_names(grid: KnowsRegistrations, names: Mapping[int, str]) -> dict[int, Refusal]:
    """Return which nodes may not use the names that they send, and why.

    A name must be the one with which the node's key was registered. If two keys were registered
    with one name, only the first may use it.
    """
    registrations = grid.registrations()
    first: dict[str, Registration] = {}
    for one in sorted(registrations.values(), key=lambda one: (one.at, one.key)):
        first.setdefault(one.name, one)
    refusals = {}
    for node, name in names.items():
        if (registered := registrations.get(node)) is None:
            continue
        key = f"key {registered.short_key}"
        if not registered.name:
            reason = (
                "its key was registered without --name: make a new key, and register that with "
                f"--name {name}"
            )
            refusals[node] = Refusal(key, reason)
        elif registered.name != name:
            reason = f"its name is {name}, but its key is registered as {registered.name}"
            refusals[node] = Refusal(registered.name, reason)
        elif first[name] != registered:
            other = first[name].short_key
            reason = f"its key was registered as {name} after key {other}: revoke one of the two"
            refusals[node] = Refusal(key, reason)
    return refusals


def registered_name(grid: KnowsRegistrations, node: int) -> str:
    """Return the name with which a node was registered; empty if there is none."""
    registered = grid.registrations().get(node)
    return registered.name if registered else ""


@contextmanager
def control_client(superlink: str, certificates: Path) -> Iterator[ControlHttpClient]:
    """Yield a client of the Control API of the SuperLink at HOST:PORT, with ca.crt of a folder."""
    context_to_superlink(certificates)  # which says what is wrong with ca.crt
    root = (certificates / "ca.crt").read_bytes()
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


def refused_devices(devices: Iterable[Registration]) -> list[str]:
    """Return a sentence for each name that Flower accepts and a run refuses."""
    count = Counter(device.name for device in devices)
    nameless = count.pop("", 0)
    sentences = [
        f"{number} keys are registered as {name}: a run accepts the first only, so revoke the "
        "other by its key."
        for name, number in sorted(count.items())
        if number > 1
    ]
    if nameless:
        sentences.append(
            f"{nameless} without a name: no run accepts them. Revoke each by its key, make a new "
            "key and register it with --name."
        )
    return sentences


def find_device(devices: Iterable[Registration], called: str) -> Registration:
    """Return the device with a name, or with a key that begins so."""
    devices = list(devices)
    found = [device for device in devices if called and device.name == called]
    beginning = called.rstrip("…")
    if not found and beginning.startswith("SHA256:") and beginning != "SHA256:":
        found = [device for device in devices if device.key.startswith(beginning)]
    if not found:
        raise ValueError(f"no device is called {called}: `fedkin devices` lists them.")
    if len(found) > 1:
        keys = ", ".join(device.short_key for device in found)
        raise ValueError(f"{len(found)} devices have the name {called}: choose one by key, {keys}.")
    return found[0]


def last_clusters(folder: Path) -> tuple[str, dict[str, int]]:
    """Return a caption on the last run on devices, and each device's cluster at its end.

    The last run is the one that wrote results below `folder`/results last. Its first strategy
    counts, since devices store its models. Without such a run, both are empty.
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
        cluster = clusters.get(device.name, "") if device.name not in named else ""
        named.add(device.name)
        if device.is_online:
            connected = "yes"
        else:
            connected = f"last {device.seen:%Y-%m-%d %H:%M} UTC" if device.seen else "never"
        name = device.name or "(none)"
        rows.append([name, device.short_key, connected, str(cluster), str(device.node)])
    columns = ["name", "key", "connected", "cluster", "node"]
    return TextTable(f"{len(devices)} devices", columns, rows)
