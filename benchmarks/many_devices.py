"""How many devices that all call at once one SuperLink bears: results/README.md has the table.

SuperLink, gate and ServerApp are the real programs, all on this machine. Devices are threads with
the connection of Flower's SuperNode: its client, key, heartbeats, retries and patience. Left out is
what a SuperNode does in between, to start a process for each message and to train, so that all
devices call at the same time: the worst case. `python -m benchmarks.many_devices`.
"""

import json
import logging
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, cast
from unittest import mock

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import HEARTBEAT_CALL_TIMEOUT
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
)
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.run import RunNotRunningException
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_client import FleetHttpClient

from benchmarks import harness
from benchmarks.writing import markdown
from fl_core.messages.packing import Packer, unpack_content
from tests.device_processes import Federation, federation

logger = logging.getLogger(__name__)

NUMBERS, ARRAYS = 60_000, 8  # of the model that is sent, 240 kB of float32, and of each answer
PAUSE = 3.0  # seconds between two looks of a SuperNode for messages
_PAUSE_OF_STARTS = 0.2
_PATIENCE = 120.0  # for what comes before and after the rounds

_PROJECT = """\
[project]
name = "many"
version = "1.0.0"
description = "Send a model to all devices, and wait for one from each"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "fedkin"
[tool.flwr.app.components]
serverapp = "many:server"
clientapp = "many:client"
[tool.flwr.app.config]
devices = 0
rounds = 0
deadline = 0.0
numbers = 0
arrays = 0
report = ""
"""
_APP = """\
import json, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from fl_app.devices.grid import DeviceGrid

server = ServerApp()
client = ClientApp()

@server.main()
def main(grid, context):
    config, grid, rows = context.run_config, DeviceGrid(grid), []
    deadline = time.monotonic() + 240
    while len(nodes := list(grid.get_node_ids())) < config["devices"]:
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    rng, arrays = np.random.default_rng(0), config["arrays"]
    for number in range(config["rounds"]):
        model = {str(i): Array(rng.random(config["numbers"] // arrays, np.float32))
                 for i in range(arrays)}
        content, started = RecordDict({"arrays": ArrayRecord(model)}), time.time()
        replies = grid.send_and_receive(
            [Message(content, node, "train", group_id=str(number)) for node in nodes],
            timeout=config["deadline"])
        rows.append({"started": started, "seconds": time.time() - started, "nodes": len(nodes),
                     "replies": sum(not reply.has_error() for reply in replies),
                     "failures": [str(reply.error) for reply in replies if reply.has_error()]})
        report = Path(config["report"])
        report.with_suffix(".part").write_text(json.dumps(rows))
        report.with_suffix(".part").rename(report)
"""


@dataclass(frozen=True)
class Call:
    """A device's request: when, what, how it ended, and how long it took."""

    started: float
    name: str
    status: str
    seconds: float


calls: list[Call] = []


class NotedClient(FleetHttpClient):
    """Flower's client of a SuperNode, which notes its calls."""

    def _send(self, context: ProtobufRequestContext, *, stream: bool = False) -> httpx.Response:
        started, status = time.time(), "unknown"
        try:
            response = super()._send(context, stream=stream)
            status = str(response.status_code)
        except httpx.TransportError as error:
            status = type(error).__name__
            raise
        finally:
            name = context.request.url.path.rpartition("/")[2]
            calls.append(Call(started, name, status, time.time() - started))
        return response


def reply_to(message: Message) -> Message:
    """Return an answer with as many numbers, all random."""
    rng = np.random.default_rng()
    arrays = {
        name: Array(rng.random(array.shape, np.float32))
        for name, array in unpack_content(message.content).array_records["arrays"].items()
    }
    content = Packer().pack(RecordDict({"arrays": ArrayRecord(arrays)}))
    return Message(content, reply_to=message)


def deflated(message: Message) -> tuple[Message, ObjectTree, dict[str, bytes]]:
    """Return a message, the names of its parts, and the parts."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        parts = get_all_nested_objects(message)
        contents = {name: part.deflate() for name, part in parts.items()}
        return message, get_object_tree(message), contents


def play(
    key: ec.EllipticCurvePrivateKey, gate: str, authority: bytes, stopping: threading.Event
) -> None:
    """Do what a SuperNode does, but answer at once, until `stopping` is set."""
    runs = set[int]()
    with fleet_http_connection.http_request_response(
        gate, False, authority, (key, key.public_key())
    ) as (_, receive, send, get_run, get_fab, pull, push, confirm):
        while not stopping.is_set():
            try:
                if (received := receive()) is None:
                    stopping.wait(PAUSE)
                    continue
                message, tree = received
                run_id, number = message.metadata.run_id, message.metadata.message_id
                if run_id not in runs:
                    get_fab(get_run(run_id).fab_hash, run_id)
                    runs.add(run_id)
            except RunNotRunningException:
                stopping.wait(PAUSE)
                continue
            try:
                names = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
                contents = pull_objects(list(names), partial(pull, run_id))
                confirm(run_id, number)
                whole = cast(Message, inflate_object_from_contents(number, contents))
                whole.metadata.__dict__["_message_id"] = number
                reply, tree, parts = deflated(reply_to(whole))
                missing, session = send(reply, tree, 1.0)
                push_object_contents_from_iterable(
                    [(name, parts[name]) for name in parts if name in missing],
                    partial(push, run_id, session),
                )
            except Exception:  # a SuperNode says so in its log, and goes on
                logger.exception("a message or an answer is lost")


def measure(count: int, rounds: int, deadline: float, folder: Path) -> dict[str, Any]:
    """Run rounds of so many devices, and return what they took."""
    calls.clear()
    with (
        federation(folder) as devices,
        mock.patch.object(fleet_http_connection, "FleetHttpClient", NotedClient),
    ):
        names = [f"site-{number}" for number in range(count)]
        devices.register(*names)
        rows = _rounds(devices, names, rounds, deadline)
        return {"devices": count, **summary(rows, calls, devices.superlink.text)}


def _rounds(
    devices: Federation, names: Sequence[str], rounds: int, deadline: float
) -> list[dict[str, Any]]:
    """Return the report of the ServerApp's rounds."""
    authority = (devices.certificates / "ca.crt").read_bytes()
    gate, stopping = f"127.0.0.1:{devices.gate_port}", threading.Event()
    threads = []
    for name in names:
        path = devices.certificates / f"devices/{name}.key"
        key = load_ssh_private_key(path.read_bytes(), None)
        threads.append(
            threading.Thread(target=play, args=(key, gate, authority, stopping), daemon=True)
        )
        threads[-1].start()
        time.sleep(_PAUSE_OF_STARTS)  # sites do not all start in the same second
    app, report = devices.folder / "app", devices.folder / "report.json"
    app.mkdir()
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (app / "many.py").write_text(_APP, encoding="utf-8")
    settings: dict[str, Any] = {"devices": len(names), "rounds": rounds, "deadline": deadline}
    settings |= {"numbers": NUMBERS, "arrays": ARRAYS, "report": str(report)}
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    with devices.started_run(app, settings):
        while len(rows) < rounds and time.monotonic() < started + rounds * deadline + _PATIENCE:
            time.sleep(0.5)
            if report.exists():
                rows = json.loads(report.read_text(encoding="utf-8"))
    stopping.set()
    for thread in threads:
        thread.join(_PATIENCE)
    return rows


def summary(rows: Sequence[Mapping[str, Any]], calls: Sequence[Call], log: str) -> dict[str, Any]:
    """Return what the rounds' report, the devices' calls and the SuperLink's log say."""
    rounds = []
    for row in rows:
        end = row["started"] + row["seconds"]
        requests = sum(row["started"] <= call.started <= end for call in calls)
        of_round = {name: row[name] for name in ("seconds", "nodes", "replies", "failures")}
        rounds.append(of_round | {"requests-per-second": requests / row["seconds"]})
    hearts = [call for call in calls if call.name == "send-node-heartbeat"]
    slowest = max(calls, key=lambda call: call.seconds)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    return {
        "rounds": rounds,
        "superlink-500": dict(Counter(re.findall(r'"POST (\S+) HTTP/1.1" 500', plain))),
        "heartbeats": len(hearts),
        "heartbeats-missed": sum(
            call.status != "200" or call.seconds > HEARTBEAT_CALL_TIMEOUT for call in hearts
        ),
        "longest-call": {"name": slowest.name, "seconds": round(slowest.seconds, 2)},
    }


def tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of results/README.md in Markdown, by name."""
    heads = (
        *("devices", "rounds", "seconds a round", "replies", "requests a second"),
        "requests of a device and round",
        *("answers of 500", "heartbeats missed", "longest call"),
    )
    lines: list[Sequence[object]] = []
    for devices in sorted({run["devices"] for run in measured["runs"]}):
        runs = [run for run in measured["runs"] if run["devices"] == devices]
        rounds = [one for run in runs for one in run["rounds"]]
        requests = (one["requests-per-second"] * one["seconds"] / one["nodes"] for one in rounds)
        replies = sum(one["replies"] for one in rounds)
        beats = sum(run["heartbeats"] for run in runs)
        lines.append(
            (
                devices,
                len(rounds),
                f"{median(one['seconds'] for one in rounds):.0f}",
                f"{replies:,} of {devices * len(rounds):,}",
                f"{median(one['requests-per-second'] for one in rounds):.0f}",
                f"{median(requests):.0f}",
                sum(sum(run["superlink-500"].values()) for run in runs),
                f"{sum(run['heartbeats-missed'] for run in runs):,} of {beats:,}",
                f"{max(run['longest-call']['seconds'] for run in runs):.1f} s",
            )
        )
    return {"many": markdown(heads, lines)}


def measure_all(
    numbers: harness.Numbers, devices: list[int], rounds: int, deadline: float
) -> Iterator[str]:
    """Run each number of devices."""
    numbers["runs"] = []
    for count in devices:
        with tempfile.TemporaryDirectory(prefix="many-devices-") as folder:
            numbers["runs"].append(measure(count, rounds, deadline, Path(folder)))
        for one in numbers["runs"][-1]["rounds"]:
            yield f"{count} devices: {one['replies']} replies in {one['seconds']:.0f} s"


if __name__ == "__main__":
    options: dict[str, Any] = {"devices": [8, 16, 50, 50, 100], "rounds": 2, "deadline": 400.0}
    harness.command(__doc__, "many-devices", measure_all, tables, **options)
