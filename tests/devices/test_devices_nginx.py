"""nginx in front of the gate, with deploy/nginx.conf: real programs.

Where nginx is not installed, these tests are skipped.
"""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import psutil
import pytest
from flwr.app import Array, ArrayRecord, RecordDict

from fl_app.devices.tls import context_trusting
from fl_core.messages.packing import unpack_content
from tests.device_processes import Federation, federation, gate_words, https_client, running
from tests.gate_requests import STRANGER, signature
from tests.nginx_process import needs_nginx, nginx_running, write_configuration
from tests.probe_app import probing
from tests.processes import free_ports
from tests.raw_device import RawDevice, status_of

pytestmark = [pytest.mark.slow, needs_nginx]
PULL = "/v1/fleet/pull-messages"
PUSH = "/v1/fleet/push-object"
COMMAND = ["nginx", "-e", "stderr", "-p"]  # and the folder, as docs/devices.md has it


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> Iterator[Federation]:
    """A federation with devices that connect to nginx."""
    with federation(tmp_path_factory.mktemp("federation")) as started:
        folder = started.certificates
        port, gate_port = free_ports(2)
        write_configuration(folder, port, gate_port)
        gate = gate_words(folder, started.port, gate_port)
        with running("gate", gate, started.folder / "second") as second:
            second.wait_for("the gate listens")
            words = [*COMMAND, str(folder), "-c", "nginx.conf"]
            with nginx_running(words, started.folder / "nginx", port):
                started.register("berlin", "lyon", "oslo", "rome")
                yield replace(started, gate_port=port, gate=second)


def post(devices: Federation, path: str, *, size: int = 0, method: str = "POST", **headers) -> int:
    with https_client(devices.certificates) as client:
        url = f"https://127.0.0.1:{devices.gate_port}{path}"
        return client.request(method, url, content=bytes(size), headers=headers).status_code


def test_a_real_supernode_works_behind_it(devices):
    with devices.supernode("berlin", 'name="berlin"') as supernode:
        supernode.wait_for("SuperNode ID")
        listed = devices.flwr("supernode", "list")["nodes"]
        assert [one["status"] for one in listed].count("online") == 1
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
            (record,) = unpack_content(message.content).array_records.values()
            np.testing.assert_array_equal(record["0"].numpy(), np.arange(1000.0))
            device.reply(message, model)
        answers = probe.answers(1)["answers"]
        assert answers == dict.fromkeys((str(d.node_id) for d in (berlin, lyon)), numbers.tolist())


@pytest.mark.parametrize(
    ("path", "method", "size", "status"),
    [
        ("/v1/control/start-run", "POST", 0, 404),
        ("/", "POST", 0, 404),
        ("/v1/fleet/register-node", "POST", 0, 404),
        ("/v1/fleet/../control/start-run", "POST", 0, 404),
        ("/v1//fleet/pull-messages", "POST", 0, 404),
        (PULL, "GET", 0, 404),
        (PUSH, "GET", 0, 404),
        (PULL, "POST", 0, 401),  # the gate's answer: it is not signed
        (PUSH, "POST", 0, 401),
        (PULL, "POST", 4097, 413),
        (PUSH, "POST", 16 * 2**20 + 1, 413),
    ],
)
def test_only_short_requests_of_devices_pass(devices, path, method, size, status):
    assert post(devices, path, method=method, size=size) == status


def signed(path: str, length: int) -> bytes:
    """Return the head of a stranger's request: its signature is right, its key unknown."""
    headers = b"".join(b"%b: %b\r\n" % header for header in signature(STRANGER))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n"
    return head.encode() + headers + b"\r\n"


@contextmanager
def connected(devices: Federation, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    """Connect to nginx with TLS."""
    address = ("127.0.0.1", devices.gate_port)
    context = context_trusting(devices.certificates / "ca.crt")
    with (
        socket.create_connection(address, 60, source_address=(source, 0)) as line,
        context.wrap_socket(line, server_hostname="localhost") as safe,
    ):
        yield safe


def answer(devices: Federation, head: bytes) -> tuple[bytes, float]:
    """Return the answer to the beginning of a request, and after how many seconds it came."""
    started = time.monotonic()
    with connected(devices) as line:
        line.sendall(head)
        return line.recv(4096), time.monotonic() - started


def test_an_unsigned_push_and_an_unregistered_key_are_refused_before_a_body_comes(devices):
    head = f"POST {PUSH} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\nsome"
    said, seconds = answer(devices, head.encode())
    assert said.startswith(b"HTTP/1.1 401 ")
    assert seconds < 15
    headers = {name.decode(): value.decode() for name, value in signature(STRANGER)}
    headers["content-type"] = "application/protobuf"
    assert post(devices, PULL, **headers) == 401
    said, _ = answer(devices, signed(PUSH, 2**20))  # before its body comes
    assert said.startswith(b"HTTP/1.1 503 ")


def connections_of_gate(devices: Federation) -> int:
    """Return how many connections the gate has open."""
    family = [psutil.Process(devices.gate.process.pid)]
    family += family[0].children(recursive=True)
    found = [one for process in family for one in process.net_connections("tcp")]
    return sum(one.status == psutil.CONN_ESTABLISHED for one in found)


@pytest.mark.faults
def test_thousands_of_silent_connections_do_not_block_devices(devices):
    """And 64 requests that come slowly, meanwhile; numbers of docs/faults.md."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 6000:
        pytest.skip("this machine allows too few open files")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with ExitStack() as opened:
            address = ("127.0.0.1", devices.gate_port)
            for _ in range(4200):
                opened.enter_context(socket.create_connection(address, timeout=30))
            for number in range(64):
                line = opened.enter_context(connected(devices, f"127.0.1.{number % 8}"))
                line.sendall(signed(PUSH if number % 2 else PULL, 4000) + b"some")
            started = time.monotonic()
            took = []
            for name in ("berlin", "lyon"):
                with RawDevice(devices, name) as device:
                    for _ in range(20):
                        begun = time.monotonic()
                        device.beat()
                        took.append(time.monotonic() - begun)
            gate = connections_of_gate(devices)
            print(f"{time.monotonic() - started:.1f} s, {max(took):.2f} s a beat, {gate} at gate")
            assert max(took) < 5
            assert time.monotonic() - started < 15
            assert gate < 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("path", "newcomer"), [(PULL, "oslo"), (PUSH, "rome")])
def test_slow_requests_of_strangers_keep_no_newcomer_out(devices, path, newcomer):
    """They are more than the gate accepts connections; it has none of them open."""
    with ExitStack() as opened:
        for number in range(800):
            line = opened.enter_context(connected(devices, f"127.0.1.{number % 8}"))
            line.sendall(signed(path, 4000) + b"some")
        with RawDevice(devices, newcomer) as device:
            device.beat()
        assert connections_of_gate(devices) < 50


def test_one_address_has_some_connections_and_others_have_theirs(devices):
    with ExitStack() as opened:
        lines = [opened.enter_context(connected(devices, "127.0.2.1")) for _ in range(220)]
        for line in lines:
            line.sendall(signed(PULL, 4000) + b"some")
        said = lines[-1].recv(100)
        assert said.startswith(b"HTTP/1.1 503 ")
        assert post(devices, PULL) == 401


def test_without_the_gate_devices_try_again(devices, tmp_path):
    """SuperNodes try again after 502."""
    port, unused = free_ports(2)
    folder = devices.certificates
    for name in ("server.crt", "server.key", "ca.crt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    write_configuration(tmp_path, port, unused)
    words = [*COMMAND, str(tmp_path), "-c", "nginx.conf"]
    with nginx_running(words, tmp_path / "home", port):
        assert post(replace(devices, gate_port=port), PULL) == 502


def test_a_reply_that_is_too_large_is_refused_for_good(devices, tmp_path):
    """At 403 a SuperNode drops it; the gate's answer must not be lost on the way."""
    numbers = np.random.default_rng(0).integers(0, 256, 40 * 2**20, np.uint8)
    with (
        RawDevice(devices, "berlin") as berlin,
        probing(devices, tmp_path / "probe", nodes=1, rounds=1),
    ):
        message = berlin.wait_for_message()
        content = RecordDict({"arrays": ArrayRecord({"a": Array(numbers)})})
        assert status_of(lambda: berlin.reply(message, content)) == 403


def test_a_stranger_activates_few_keys_in_a_second(devices):
    """The SuperLink logs each activation that it refuses."""
    path = "/v1/fleet/activate-node"
    statuses = [post(devices, path) for _ in range(80)]
    assert statuses[0] == 401
    assert statuses[-1] == 503
    assert post(devices, PULL) == 401
