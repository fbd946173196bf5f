"""The devices that are registered at the SuperLink, by name: who they are, and to revoke one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from fl_app.devices.gate.gate_command import superlink_tls
from fl_app.devices.names import NAMES_FILE, changed_names, fingerprint, key_in, read_names, short
from fl_core.flower.basics import NodeStatus
from fl_core.flower.calls import FlowerError
from fl_core.flower.messages import ListNodesRequest, NodeInfo, UnregisterNodeRequest
from fl_core.flower.server import ControlHttpClient

_log = logging.getLogger(__name__)


class RegisteredDevice(NamedTuple):
    """A device that is registered, or has been.

    Attributes
    ----------
    name : str
        With which it was registered, or which it said first; empty: nobody knows one.
    key : str
        The fingerprint of its key.
    node : int, optional
        Flower's number for it; None: its key is not registered any more, but its name is taken.
    is_online : bool
        Whether it is connected.
    seen : datetime, optional
        When it was connected last, if it is not; None: never, or nobody knows.
    """

    name: str
    key: str
    node: int | None
    is_online: bool = False
    seen: datetime | None = None


class ClustersOfRun(NamedTuple):
    """Where the devices belonged at the end of a run.

    Attributes
    ----------
    summary : Path
        The run's summary.json.
    strategy : str
    seed : int
    of_name : mapping
        From device name to its cluster, of those that had one.
    """

    summary: Path
    strategy: str
    seed: int
    of_name: Mapping[str, int]


@contextmanager
def control_client(superlink: str, certificates: Path) -> Iterator[ControlHttpClient]:
    """Yield a client of the SuperLink's Control API, which must be on a machine of ours.

    Parameters
    ----------
    superlink : str
        HOST:PORT.
    certificates : Path
        The folder with ca.crt.

    Raises
    ------
    ValueError
        If there is no ca.crt, or it is no certificate.
    RuntimeError
        If the SuperLink does not answer, or fails.
    """
    superlink_tls(certificates)  # which says in a sentence what is wrong with ca.crt
    root = (certificates / "ca.crt").read_bytes()
    try:
        with ControlHttpClient.from_server_address(superlink, False, root, ()) as client:
            yield client
    except httpx.HTTPStatusError as error:
        said = FlowerError.from_json(error.response.text)
        raise RuntimeError(
            f"the SuperLink at {superlink} answers {said or error.response.status_code}."
        ) from error
    except httpx.TransportError as error:
        raise RuntimeError(
            f"the SuperLink at {superlink} does not answer ({error}): run this on its machine, and "
            "name its address with --superlink and the folder of its ca.crt with --certificates."
        ) from error


def find_devices(client: ControlHttpClient, folder: Path) -> list[RegisteredDevice]:
    """Return all devices, by name; `folder` is where the SuperLink was started.

    Raises
    ------
    ValueError, OSError
        If the file of names is damaged or cannot be read.
    """
    nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return known_devices(nodes, read_names(folder / NAMES_FILE))


def known_devices(nodes: Iterable[NodeInfo], names: Mapping[str, str]) -> list[RegisteredDevice]:
    """Return the devices with these nodes, and those of which there is but a name, by name.

    `names` are from name to its key's fingerprint. Nodes that were unregistered are left out.
    """
    name_of = {key: name for name, key in names.items()}
    devices = []
    for node in nodes:
        if node.status != NodeStatus.UNREGISTERED:
            key = fingerprint(node.public_key)
            is_online = node.status == NodeStatus.ONLINE
            left = node.last_deactivated_at
            seen = datetime.fromisoformat(left) if left and not is_online else None
            name = node.name or name_of.get(key, "")
            devices.append(RegisteredDevice(name, key, node.node_id, is_online, seen))
    registered = {device.key for device in devices}
    devices += [
        RegisteredDevice(name, key, None) for name, key in names.items() if key not in registered
    ]
    return sorted(devices, key=lambda device: (not device.name, device.name, device.key))


def revoke(client: ControlHttpClient, folder: Path, called: str) -> RegisteredDevice:
    """Unregister a device and free its name; return the device as it was.

    Parameters
    ----------
    client : ControlHttpClient
    folder : Path
        Where the SuperLink was started.
    called : str
        The device's name, or the beginning of its key's fingerprint, "SHA256:" and more.

    Raises
    ------
    ValueError
        If no device is called so, or several are; or the file of names is damaged.
    OSError
        If the file of names cannot be read or written.
    """
    device = one_device(find_devices(client, folder), called)
    if device.node is not None:
        # First: whatever happens to the file, the device is shut out.
        client.UnregisterNode(UnregisterNodeRequest(node_id=device.node))
    if not (folder / NAMES_FILE).exists():
        return device
    with changed_names(folder / NAMES_FILE) as names:
        for name in [name for name, entry in names.items() if key_in(entry) == device.key]:
            del names[name]
    return device


def one_device(devices: Iterable[RegisteredDevice], called: str) -> RegisteredDevice:
    """Return the device with a name, or with a key that begins so.

    Raises
    ------
    ValueError
        If there is none, or more than one.
    """
    devices = list(devices)
    found = [device for device in devices if called and device.name == called]
    beginning = called.rstrip("…")
    if not found and beginning.startswith("SHA256:") and beginning != "SHA256:":
        found = [device for device in devices if device.key.startswith(beginning)]
    if not found:
        raise ValueError(f"no device is called {called}: `fedkin devices` lists them.")
    if len(found) > 1:
        keys = ", ".join(short(device.key) for device in found)
        raise ValueError(f"{len(found)} devices are called {called}: name one by its key, {keys}.")
    return found[0]


def last_clusters(folder: Path) -> ClustersOfRun | None:
    """Return the clusters that the last run on devices found, if one is there.

    It is the last to have written results below `folder`/results; its first strategy counts, whose
    models the devices keep.
    """
    summaries = sorted((folder / "results").glob("*/summary.json"), key=_written, reverse=True)
    for path in summaries:
        try:
            runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            if runs and "models-not-kept" in runs[0]:  # which a simulation has not
                return _clusters_of(path, runs[0])
        except (OSError, ValueError, TypeError, KeyError):
            # Devices must be listed, and can be revoked, whatever lies there.
            _log.warning("%s is passed over: it is no summary of a run", path)
    return None


def _clusters_of(summary: Path, run: Mapping[str, Any]) -> ClustersOfRun:
    pairs = zip(run["names"], run["clusters"], strict=True)
    of_name = {name: cluster for name, cluster in pairs if cluster >= 0}
    return ClustersOfRun(summary, run["strategy"], run["seed"], of_name)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns
