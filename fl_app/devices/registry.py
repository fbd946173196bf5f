"""The devices that are registered at the SuperLink, by name."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from fl_app.devices.names import Registration, short
from fl_app.devices.tls import superlink_tls
from fl_app.results.layout import SUMMARY
from fl_core.flower.basics import NodeStatus
from fl_core.flower.calls import FlowerError
from fl_core.flower.messages import ListNodesRequest
from fl_core.flower.server import ControlHttpClient

_log = logging.getLogger(__name__)


@contextmanager
def control_client(superlink: str, certificates: Path) -> Iterator[ControlHttpClient]:
    """Yield a client of the SuperLink's Control API, for devices to be listed or unregistered.

    Parameters
    ----------
    superlink : str
        HOST:PORT.
    certificates : Path
        The folder with ca.crt.
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


def list_devices(client: ControlHttpClient) -> list[Registration]:
    """Return the devices that are registered, by name; of one name, the first registered first."""
    nodes = client.ListNodes(ListNodesRequest()).nodes_info
    known = [Registration.of(one) for one in nodes if one.status != NodeStatus.UNREGISTERED]
    return sorted(known, key=lambda device: (not device.name, device.name, device.at))


def refused_devices(devices: Iterable[Registration]) -> list[str]:
    """Return a sentence for each name that a run refuses, since Flower accepts any."""
    count = Counter(device.name for device in devices)
    nameless = count.pop("", 0)
    sentences = [
        f"{number} keys are registered as {name}: a run takes the first, so revoke the other by "
        "its key."
        for name, number in sorted(count.items())
        if number > 1
    ]
    if nameless:
        sentences.append(
            f"{nameless} without a name: no run takes them, so revoke each by its key, make it a "
            "new one and register that with --name."
        )
    return sentences


def one_device(devices: Iterable[Registration], called: str) -> Registration:
    """Return the device with a name, or with a key that begins so."""
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


def last_clusters(folder: Path) -> tuple[str, dict[str, int]]:
    """Return in words which run on devices was the last, and each device's cluster at its end.

    It is the last to have written results below `folder`/results; its first strategy counts, whose
    models the devices keep. Where there is no such run, both are empty.
    """
    summaries = (folder / "results").glob(f"*/{SUMMARY}")
    for path in sorted(summaries, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
            if runs and "models-not-kept" in runs[0]:  # which a simulation has not
                run = runs[0]
                pairs = zip(run["names"], run["clusters"], strict=True)
                of_name = {name: cluster for name, cluster in pairs if cluster >= 0}
                return f"clusters: {run['strategy']}, seed {run['seed']}, {path}", of_name
        except (OSError, ValueError, TypeError, KeyError):
            # Devices must be listed, and can be revoked, whatever lies there.
            _log.warning("%s is passed over: it is no summary of a run", path)
    return "", {}
