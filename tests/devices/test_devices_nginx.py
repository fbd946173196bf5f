"""nginx before the gate, with the configuration of `deploy`: real programs.

Where nginx is not installed, these tests are skipped, and say so.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from fl_app.devices.gate.gate_command import superlink_tls
from fl_app.launch.superlink import free_ports
from fl_core.wire.packing import unpacked
from tests.device_processes import Federation, Program, federation, gate_words, running
from tests.gate_requests import STRANGER, signature
from tests.probe_app import probing
from tests.raw_device import RawDevice, status_of

NGINX = shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]
NGINX_FILE = "nginx.conf"
CONFIGURATION = (Path(__file__).parents[2] / "deploy" / NGINX_FILE).read_text(encoding="ascii")
PULL = "/v1/fleet/pull-messages"
PUSH = "/v1/fleet/push-object"


def write_configuration(folder: Path, port: int, gate_port: int) -> None:
    assert "listen 9092 " in CONFIGURATION
    assert "127.0.0.1:9093;" in CONFIGURATION
    text = CONFIGURATION.replace("9092", str(port)).replace("9093", str(gate_port))
    (folder / NGINX_FILE).write_text(text, encoding="ascii")


def wait_for_listener(nginx: Program, port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert nginx.process.poll() is None, nginx.text
        assert time.monotonic() < deadline, nginx.text
        time.sleep(0.1)


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> Iterator[Federation]:
    """A federation whose devices call at nginx."""
    with federation(tmp_path_factory.mktemp("federation")) as started:
        folder = started.certificates
        port, gate_port = free_ports(2)
        write_configuration(folder, port, gate_port)
        words = [str(NGINX), "-e", "stderr", "-p", str(folder), "-c", NGINX_FILE]
        gate = gate_words(folder, started.port, gate_port)
        home = started.folder
        with (
            running("gate", gate, home / "second") as second,
            running("nginx", words, home / "nginx") as nginx,
        ):
            second.wait_for("the gate listens")
            wait_for_listener(nginx, port)
            started.register("berlin", "lyon")
            yield replace(started, gate_port=port, gate=second)
        assert "[emerg]" not in nginx.text
        assert "[alert]" not in nginx.text


def post(devices: Federation, path: str, *, size: int = 0, method: str = "POST", **headers) -> int:
    with httpx.Client(verify=superlink_tls(devices.certificates), trust_env=False) as client:
        url = f"https://127.0.0.1:{devices.gate_port}{path}"
        return client.request(method, url, content=bytes(size), headers=headers).status_code


def test_a_real_supernode_works_behind_it(devices):
    with devices.supernode("berlin", 'name="berlin"') as supernode:
        supernode.wait_for("SuperNode ID")
        listed = devices.flwr("supernode", "list")["nodes"]
        assert sorted(one["status"] for one in listed) == ["online", "registered"]
    devices.superlink.wait_for("[Fleet.DeactivateNode] Deactivated")


def test_models_pass_in_both_directions(devices, tmp_path):
    numbers = np.random.default_rng(0).normal(size=3 * 2**18)  # 6 MiB: two pieces
    model = RecordDict({"arrays": ArrayRecord({"a": Array(numbers)})})
    with (
        RawDevice(devices, "berlin") as berlin,
        RawDevice(devices, "lyon") as lyon,
        probing(devices, tmp_path / "probe", rounds=1) as probe,
    ):
        for device in (berlin, lyon):
            message = device.wait_for_message()
            (record,) = unpacked(message.content).array_records.values()
            np.testing.assert_array_equal(record["0"].numpy(), np.arange(1000.0))
            device.reply(message, model)
        heard = probe.heard(1)["heard"]
        assert heard == dict.fromkeys((str(d.node_id) for d in (berlin, lyon)), numbers.tolist())


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/control/start-run", "POST", 404),
        ("/", "POST", 404),
        ("/v1/fleet/register-node", "POST", 404),
        ("/v1/fleet/../control/start-run", "POST", 404),
        ("/v1//fleet/pull-messages", "POST", 404),
        (PULL, "GET", 403),
        (PULL, "POST", 401),  # the gate's word: it is not signed
    ],
)
def test_what_is_not_for_devices_does_not_pass(devices, path, method, status):
    assert post(devices, path, method=method) == status


def test_a_body_that_is_too_long_is_refused(devices):
    assert post(devices, PUSH, size=16 * 2**20 + 1) == 413


def raw(devices: Federation, head: str) -> tuple[bytes, float]:
    """Return what is answered to the beginning of a request, and after how many seconds."""
    started = time.monotonic()
    address = ("127.0.0.1", devices.gate_port)
    with (
        socket.create_connection(address, timeout=60) as line,
        superlink_tls(devices.certificates).wrap_socket(line, server_hostname="localhost") as safe,
    ):
        safe.sendall(head.encode())
        return safe.recv(4096), time.monotonic() - started


def test_who_has_not_signed_is_answered_before_the_body_comes(devices):
    head = f"POST {PUSH} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\nsome"
    said, seconds = raw(devices, head)
    assert said.startswith(b"HTTP/1.1 401 ")
    assert seconds < 15


def test_a_head_that_does_not_end_is_not_waited_for(devices):
    said, seconds = raw(devices, f"POST {PUSH} HTTP/1.1\r\nHost:")
    assert said == b"" or said.startswith(b"HTTP/1.1 408 ")
    assert 4 < seconds < 30


def test_a_stranger_gets_no_further_behind_it(devices):
    """Its signature is right, but nobody knows its key."""
    headers = {name.decode(): value.decode() for name, value in signature(STRANGER)}
    headers["content-type"] = "application/protobuf"
    assert post(devices, PULL, **headers) == 401
    assert post(devices, PUSH, size=2**20, **headers) == 503


def test_without_the_gate_devices_are_told_to_try_again(devices, tmp_path):
    port, nobody = free_ports(2)
    for name in ("server.crt", "server.key", "ca.crt"):
        shutil.copy(devices.certificates / name, tmp_path)
    write_configuration(tmp_path, port, nobody)
    words = [str(NGINX), "-e", "stderr", "-p", str(tmp_path), "-c", NGINX_FILE]
    with running("nginx", words, tmp_path / "home") as nginx:
        wait_for_listener(nginx, port)
        assert post(replace(devices, gate_port=port), PULL) == 502


def test_the_program_finds_nothing_wrong_with_the_configuration(devices):
    words = [str(NGINX), "-t", "-e", "stderr", "-p", str(devices.certificates), "-c", NGINX_FILE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr


def test_a_reply_that_is_too_large_is_refused_for_good(devices, tmp_path):
    """At 403 a SuperNode drops it; what the gate answers must not be lost on the way."""
    numbers = np.random.default_rng(0).integers(0, 256, 40 * 2**20, np.uint8)
    with (
        RawDevice(devices, "berlin") as berlin,
        probing(devices, tmp_path / "probe", nodes=1, rounds=1),
    ):
        message = berlin.wait_for_message()
        content = RecordDict({"arrays": ArrayRecord({"a": Array(numbers)})})
        assert status_of(lambda: berlin.reply(message, content)) == 403
