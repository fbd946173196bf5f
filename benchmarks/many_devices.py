"""How many devices that all call at once one SuperLink bears: docs/measured/scale.md.

SuperLink, gate and ServerApp are the real programs, all on this machine. Devices are threads with
the connection of Flower's SuperNode: its client, key, heartbeats, retries and patience. Left out is
what a SuperNode does in between, to start a process for each message and to train, so that all
devices call at the same time: the worst case.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import psutil
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.constant import HEARTBEAT_CALL_TIMEOUT
from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supernode import fleet_http_connection

from benchmarks import harness, played_device
from benchmarks.played_device import Call, NotedClient, play
from benchmarks.writing import markdown
from fl_app.devices.certificates import make_certificates
from fl_app.simulation.processes import stop_family
from fl_app.simulation.superlink import free_ports
from fl_core.files import program_path

NUMBERS, ARRAYS = 60_000, 8  # of the model that is sent, 240 kB of float32, and of each answer
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


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's programs."""
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }


@contextmanager
def running(words: Sequence[str], home: Path) -> Iterator[psutil.Process]:
    """Run a program for the length of the block; what it says is in `home/log`."""
    home.mkdir()
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            words, env=environment(home), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        stop_family(process, home)


def superlink_words(certificates: Path, port: int, database: Path) -> list[str]:
    """Return the command line of a SuperLink as docs/devices.md has it."""
    return [
        *(program_path("flower-superlink"), "--host", "127.0.0.1", "--port", str(port)),
        *("--ssl-ca-certfile", str(certificates / "ca.crt")),
        *("--ssl-certfile", str(certificates / "server.crt")),
        *("--ssl-keyfile", str(certificates / "server.key")),
        *("--enable-supernode-auth", "--database", f"sqlite:///{database}?plugin=fedkin"),
        "--disable-runtime-dependency-installation",
    ]


def register(superlink: str, authority: bytes, keys: Sequence[ec.EllipticCurvePrivateKey]) -> None:
    """Make keys known to a SuperLink, which may still be starting."""
    patient = make_simple_http_retry_invoker()
    patient.max_time = _PATIENCE
    own_version = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    with ControlHttpClient.from_server_address(
        superlink, False, authority, [own_version], retry_invoker=patient
    ) as client:
        for number, key in enumerate(keys):
            public_key = public_key_to_bytes(key.public_key())
            client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=f"site-{number}"))


def start_run(folder: Path, superlink: str, settings: Mapping[str, object]) -> None:
    """Start the ServerApp."""
    home, app = folder / "flwr", folder / "app"
    authority = folder / "certificates" / "ca.crt"
    home.mkdir()
    app.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "many"\n\n[superlink.many]\naddress = "{superlink}"\n'
        f'root-certificates = "{authority}"\n',
        encoding="utf-8",
    )
    (app / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (app / "many.py").write_text(_APP, encoding="utf-8")
    config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    done = subprocess.run(
        [program_path("flwr"), "run", str(app), "--run-config", config, "--format", "json"],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
    )
    if '"run-id"' not in done.stdout:
        raise RuntimeError(done.stdout + done.stderr)


def measure(devices: int, rounds: int, deadline: float, folder: Path) -> dict[str, Any]:
    """Run rounds of so many devices, and return what they took."""
    certificates, report = folder / "certificates", folder / "report.json"
    database = folder / "superlink" / "state.db"
    make_certificates(certificates, ["localhost"], [])
    authority = (certificates / "ca.crt").read_bytes()
    port, gate_port = free_ports(2)
    superlink, gate = f"127.0.0.1:{port}", f"127.0.0.1:{gate_port}"
    gate_words = [
        *(program_path("fedkin"), "gate", "--certificates", str(certificates)),
        *("--listen", gate, "--superlink", superlink),
    ]
    stopping = threading.Event()
    played_device.calls.clear()
    with (
        running(superlink_words(certificates, port, database), folder / "superlink"),
        running(gate_words, folder / "gate"),
        mock.patch.object(fleet_http_connection, "FleetHttpClient", NotedClient),
    ):
        keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(devices)]
        register(superlink, authority, keys)
        threads = [
            threading.Thread(target=play, args=(key, gate, authority, stopping), daemon=True)
            for key in keys
        ]
        for thread in threads:
            thread.start()
            time.sleep(_PAUSE_OF_STARTS)  # sites do not all start in the same second
        settings = {"devices": devices, "rounds": rounds, "deadline": deadline}
        model = {"numbers": NUMBERS, "arrays": ARRAYS, "report": str(report)}
        started = time.monotonic()
        start_run(folder, superlink, settings | model)
        rows: list[dict[str, Any]] = []
        while len(rows) < rounds and time.monotonic() < started + rounds * deadline + _PATIENCE:
            time.sleep(0.5)
            if report.exists():
                rows = json.loads(report.read_text(encoding="utf-8"))
        calls = list(played_device.calls)
        stopping.set()
        for thread in threads:
            thread.join(_PATIENCE)
        log = (folder / "superlink" / "log").read_text(encoding="utf-8", errors="replace")
    return {"devices": devices, **summary(rows, calls, log)}


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
    """Return the table of docs/measured/scale.md in Markdown, by name."""
    heads = (
        *("devices", "rounds", "seconds a round", "replies", "requests a second"),
        "requests of a device and round",
        *("answers of 500", "heartbeats missed", "longest call"),
    )
    lines: list[Sequence[object]] = []
    for devices in sorted({run["devices"] for run in measured["runs"]}):
        runs = [run for run in measured["runs"] if run["devices"] == devices]
        rounds = [one for run in runs for one in run["rounds"]]
        replies = sum(one["replies"] for one in rounds)
        beats = sum(run["heartbeats"] for run in runs)
        lines.append(
            (
                devices,
                len(rounds),
                f"{median(one['seconds'] for one in rounds):.0f}",
                f"{replies:,} of {devices * len(rounds):,}",
                f"{median(one['requests-per-second'] for one in rounds):.0f}",
                f"{median(map(_requests_of_device, rounds)):.0f}",
                sum(sum(run["superlink-500"].values()) for run in runs),
                f"{sum(run['heartbeats-missed'] for run in runs):,} of {beats:,}",
                f"{max(run['longest-call']['seconds'] for run in runs):.1f} s",
            )
        )
    return {"many": markdown(heads, lines)}


def _requests_of_device(one: Mapping[str, Any]) -> float:
    return float(one["requests-per-second"] * one["seconds"] / one["nodes"])


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
    harness.command(
        __doc__,
        "many-devices",
        measure_all,
        tables,
        devices=[8, 16, 50, 50, 100],
        rounds=2,
        deadline=400.0,
    )
