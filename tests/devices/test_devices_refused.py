"""Who gets in and who does not: real SuperLink, real gate, real SuperNodes, on this machine."""

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from fl_app.devices.certificates import make_certificates
from fl_app.devices.gate.application import FLEET_PATHS
from fl_app.devices.tls import context_trusting
from tests.device_processes import Federation, federation, gate_words, https_client, running
from tests.processes import free_ports
from tests.raw_device import fleet_client, status_of

pytestmark = [pytest.mark.slow, pytest.mark.faults]


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> Iterator[Federation]:
    with federation(tmp_path_factory.mktemp("federation")) as started:
        yield started


@pytest.fixture(scope="module")
def nodes(devices) -> dict[str, int]:
    """Two registered devices: name to node id."""
    names = ("berlin", "paris")
    return dict(zip(names, devices.register(*names), strict=True))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory) -> Path:
    """The certificates of another federation, with a device called eve."""
    folder = tmp_path_factory.mktemp("strangers")
    make_certificates(folder, ["localhost"], ["eve"])
    return folder


def post(devices: Federation, port: int, path: str, body: bytes = b"") -> httpx.Response:
    """Send what anybody can send who reaches a port, without any key."""
    with https_client(devices.certificates) as client:
        headers = {"content-type": "application/protobuf"}
        return client.post(f"https://127.0.0.1:{port}{path}", content=body, headers=headers)


def test_an_unregistered_device_is_refused(devices, strangers):
    with devices.supernode("eve", key=strangers / "devices/eve.key") as supernode:
        assert supernode.wait_for_exit() != 0
        assert "Failed to activate SuperNode" in supernode.text
        assert "SuperNode ID" not in supernode.text


def test_a_device_with_another_authority_refuses_the_server(devices, nodes, strangers):
    wrong = str(strangers / "ca.crt")
    with devices.supernode("paris", root_certificates=wrong) as supernode:
        assert supernode.wait_for_exit() != 0
        assert "unable to get local issuer certificate" in supernode.text
        assert "SuperNode ID" not in supernode.text


def test_a_device_refuses_a_server_whose_certificate_has_expired(devices, nodes, tmp_path):
    """Its authority is the right one, and still valid."""
    old = tmp_path / "old"
    made = datetime.now(UTC) - timedelta(days=400)
    make_certificates(old, ["localhost"], [], now=made)
    (gate_port,) = free_ports(1)
    words = gate_words(old, devices.port, gate_port)
    with running("gate", words, tmp_path / "gate") as gate:
        gate.wait_for("the gate listens")
        way = {"root_certificates": str(old / "ca.crt"), "superlink": f"127.0.0.1:{gate_port}"}
        with devices.supernode("paris", **way) as supernode:
            assert supernode.wait_for_exit() != 0
            assert "certificate has expired" in supernode.text


def test_no_device_registers_itself(devices, strangers):
    """Neither through the gate nor, were the gate not there, at the SuperLink."""
    key = strangers / "devices/eve.key"
    public = load_ssh_private_key(key.read_bytes(), None).public_key()
    request = RegisterNodeFleetRequest(public_key=public_key_to_bytes(public))
    with fleet_client(devices, key) as client:
        assert status_of(lambda: client.RegisterNode(request)) == 404
    with fleet_client(devices, key, devices.port) as client:
        assert status_of(lambda: client.RegisterNode(request)) not in (200, 404)


def test_nothing_but_the_fleet_api_is_reached_through_the_gate(devices):
    paths = {path for _, path in PROTOBUF_REQUEST_TYPES} | {"/health", "/docs", "/openapi.json"}
    closed = paths - {path.decode() for path in FLEET_PATHS}
    assert {"/v1/control/start-run", "/v1/runtime/acquire-task"} <= closed
    before = devices.superlink.text
    assert {post(devices, devices.gate_port, path).status_code for path in closed} == {404}
    answers = devices.superlink.text.removeprefix(before)
    assert "/v1/control" not in answers
    assert "/v1/runtime" not in answers


def test_half_a_message_leaves_no_trace(devices):
    """The gate lets go of the SuperLink when a device breaks off."""
    context = context_trusting(devices.certificates / "ca.crt")
    with (
        socket.create_connection(("127.0.0.1", devices.gate_port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(
            b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nhalf"
        )
    assert post(devices, devices.gate_port, "/v1/fleet/push-object").status_code == 401
    assert "Traceback" not in devices.gate.text
    assert "Error" not in devices.gate.text
