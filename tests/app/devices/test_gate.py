"""The gate: what it passes on, what it refuses, and what it answers on errors."""

import argparse
import asyncio
import re
import shutil
import socket
import ssl
from pathlib import Path

import httpx
import pytest
import uvicorn
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from fl_app.devices.certificates import make_certificates
from fl_app.devices.gate import application as gate_application
from fl_app.devices.gate import callers, sizes
from fl_app.devices.gate.application import (
    FLEET_PATHS,
    Gate,
)
from fl_app.devices.gate.gate_command import add_command
from fl_app.devices.tls import context_for_devices, context_trusting, parse_address
from tests.gate_requests import (
    DEVICE,
    PULL,
    PUSH,
    PUSH_MESSAGES,
    STRANGER,
    Upstream,
    answered,
    ask,
    at_gate,
    known,
    opaque,
    pass_through,
    post,
    public,
    said,
    sending,
    signature,
)
from tests.processes import free_ports


@pytest.fixture(autouse=True)
def _questions_are_answered_at_once(monkeypatch):
    monkeypatch.setattr(gate_application, "POLL_SECONDS", 0.0)


def test_the_paths_are_flowers_but_for_nodes_without_keys():
    flowers = {
        path.encode()
        for method, path in PROTOBUF_REQUEST_TYPES
        if method == "POST" and path.startswith("/v1/fleet/")
    }
    assert flowers - FLEET_PATHS == {b"/v1/fleet/register-node", b"/v1/fleet/unregister-node"}
    assert flowers > FLEET_PATHS


@pytest.mark.parametrize("path", sorted(FLEET_PATHS - {PUSH_MESSAGES}))
def test_what_supernodes_need_passes(path):
    upstream = Upstream()
    activation = ActivateNodeRequest(public_key=public(DEVICE)).SerializeToString()
    body = activation if path.endswith(b"/activate-node") else b""
    start, *rest = pass_through(upstream, target=path, receive=sending(said(body)))
    assert start["status"] == 200
    assert b"".join(event["body"] for event in rest) == b"fine"
    (request,) = upstream.requests
    assert (request.method, str(request.url)) == ("POST", f"https://127.0.0.1:8000{path.decode()}")


@pytest.mark.parametrize(
    "request_",
    [
        *({"target": target} for target in (b"", b"/", b"*", b"/health", b"/v1/fleet/")),
        *({"target": b"/v1/control/" + name} for name in (b"start-run", b"register-node")),
        *({"target": b"/v1/fleet/" + name} for name in (b"register-node", b"unregister-node")),
        {"target": b"/v1/runtime/acquire-task"},
        *(
            {"target": b"/v1" + path}
            for path in (b"//fleet/pull-messages", b"/Fleet/pull-messages")
        ),
        *({"target": b"/v1/fleet" + path} for path in (b"%2fpull-messages", b"\\pull-messages")),
        *({"target": PULL + end} for end in (b"/", b"%00", b";x", b"/../../control/start-run")),
        {"target": b"https://127.0.0.1/v1/fleet/pull-messages"},
        *({"method": method} for method in ("GET", "HEAD", "CONNECT", "post")),
        {"query": b"x=1"},
    ],
)
def test_everything_else_is_refused(request_):
    upstream = Upstream()
    start, end = pass_through(upstream, **request_)
    assert start["status"] == 404
    assert (end["body"], end["more_body"]) == (b"", False)
    assert (b"connection", b"close") in start["headers"]
    assert not upstream.requests


def test_headers_of_authentication_pass_and_those_of_the_connection_do_not():
    forwarded = [
        *((b"content-type", b"application/protobuf"), (b"content-length", b"0")),
        *signature(DEVICE),
    ]
    dropped = [
        *((b"host", b"elsewhere"), (b"connection", b"Keep-Alive, X-Secret"), (b"te", b"trailers")),
        *((b"x-secret", b"1"), (b"upgrade", b"websocket"), (b"keep-alive", b"timeout=5")),
        *((b"x-forwarded-for", b"10.0.0.1"), (b"x-forwarded-proto", b"http")),
        *((b"forwarded", b"for=10.0.0.1"), (b"proxy-authorization", b"x"), (b"expect", b"x")),
    ]
    given = {"flwr-reason": "no", "connection": "x-hop", "x-hop": "1", "upgrade": "h2"}
    upstream = Upstream(httpx.Response(401, headers=given, stream=httpx.ByteStream(b"")))
    start, *_ = pass_through(upstream, headers=[*dropped, *forwarded], key=None)
    got = upstream.requests[0].headers
    assert all(got[name.decode()] == value.decode() for name, value in forwarded)
    assert got["host"] == "127.0.0.1:8000"
    gone = {name.decode() for name, _ in dropped} - {"host", "connection"}
    assert not gone & set(got)
    assert "x-secret" not in got["connection"].lower()
    assert start["status"] == 401
    names = {name.lower() for name, _ in start["headers"]}
    assert b"flwr-reason" in names
    assert not names & {b"connection", b"x-hop", b"upgrade"}


def test_bodies_are_whole_before_they_are_passed_on_in_either_direction():
    """Slow devices occupy no connection of the SuperLink; the length stays."""
    body = PushObjectRequest(object_content=bytes(range(256)) * 1000).SerializeToString()
    half = len(body) // 2
    pieces = [said(body[:half], more=True), said(b"", more=True), said(body[half:])]
    headers = [(b"connection", b"content-length"), (b"content-length", b"%d" % len(body))]
    parts: list[bytes] = []

    class Piecewise(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            assert not pieces
            parts.extend([part async for part in request.stream])
            assert request.headers["content-length"] == str(len(body))
            assert "transfer-encoding" not in request.headers
            return answered(body)

    async def receive() -> dict:
        return pieces.pop(0) if pieces else await asyncio.Event().wait()

    start, *rest = pass_through(Piecewise(), target=PUSH, headers=headers, receive=receive)
    assert [len(part) for part in parts] == [65536] * 3 + [len(body) - 3 * 65536]
    assert b"".join(parts) == b"".join(event["body"] for event in rest) == body
    assert start["headers"] == [(b"content-length", b"%d" % len(body))]
    assert [event["more_body"] for event in rest] == [True] * 4 + [False]


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"transfer-encoding", b"chunked")],
        [(b"transfer-encoding", b"chunked"), (b"content-length", b"0")],
    ],
)
def test_bodies_without_a_length_are_refused(headers):
    upstream = Upstream()
    start, _ = pass_through(upstream, target=PUSH, headers=headers)
    assert start["status"] == 411
    assert not upstream.requests


def test_an_object_may_be_long_and_no_other_body():
    """Three of Flower's pieces; a message without its objects; anything else."""
    for target, most in {PUSH: 16777216, PUSH_MESSAGES: 262144, PULL: 4096}.items():
        for length, refused in ((most, False), (most + 1, True)):
            headers, upstream = [(b"content-length", b"%d" % length)], Upstream()
            start, *_ = pass_through(upstream, target=target, headers=headers)
            assert (start["status"] == 413) == refused
            assert not (refused and upstream.requests)


def through(answer, steps):
    """Return what `steps`, a coroutine function, makes of a gate before such a SuperLink."""
    upstream = Upstream(answer)
    return at_gate(upstream, lambda gate: steps(gate, upstream), keys=())


@pytest.mark.parametrize("target", [PULL, PUSH, PUSH_MESSAGES])
def test_who_signs_nothing_is_not_listened_to(target, caplog):
    async def receive() -> dict:
        raise AssertionError("this body is not read")

    upstream = Upstream()
    headers = [(b"content-length", b"1000")]
    start, _ = pass_through(upstream, target=target, headers=headers, receive=receive, key=None)
    assert start["status"] == 401
    assert not upstream.requests
    assert "refused 203.0.113.5 with 401" in caplog.text


def test_a_key_becomes_a_device_once_the_superlink_has_answered_it():
    async def steps(gate, upstream):
        statuses = [await post(gate, b"model", target=PUSH, key=STRANGER)]
        for answer in (401, 400, 500, 200, 401):  # at last, somebody has unregistered it
            upstream.answer = answer
            statuses.append(await post(gate, key=STRANGER))
            upstream.answer = 200
            statuses.append(await post(gate, b"model", target=PUSH, key=STRANGER))
        return statuses

    assert through(200, steps) == [503, 401, 503, 400, 503, 503, 503, 200, 200, 401, 503]


@pytest.mark.parametrize(
    ("most", "other_is"), [("MOST_BYTES_OF_DEVICE", 200), ("MOST_BYTES_IN_MEMORY", 503)]
)
def test_bodies_are_bounded_by_what_they_announce(monkeypatch, most, other_is):
    """Of one device, which leaves room for others, and of all together."""
    monkeypatch.setattr(callers, most, 10)
    monkeypatch.setattr(sizes, "max_answer_bytes", lambda largest: 2**40)

    async def steps(gate, upstream):
        known(gate, DEVICE, STRANGER)
        rest = asyncio.Event()

        async def slowly() -> dict:
            await rest.wait()
            return said(opaque(8))

        headers = [(b"content-length", b"8")]
        slow = asyncio.create_task(ask(gate, slowly, target=PUSH, headers=headers))
        await asyncio.sleep(0)
        statuses = [
            await post(gate, opaque(3), target=PUSH),
            await post(gate, opaque(2), target=PUSH),
            await post(gate, opaque(3), target=PUSH, key=STRANGER),
        ]
        rest.set()
        start, *_ = await slow
        return [*statuses, start["status"], await post(gate, opaque(10), target=PUSH)]

    assert through(200, steps) == [503, 200, other_is, 200, 200]


HEARTBEAT = b"/v1/fleet/send-node-heartbeat"


class Slow(httpx.AsyncBaseTransport):
    """A SuperLink that answers no request until `go`, and counts those at a time."""

    def __init__(self):
        self.go = asyncio.Event()
        self.now = {HEARTBEAT: 0, PULL: 0}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path
        self.now[path] += 1
        await self.go.wait()
        self.now[path] -= 1
        return answered()


def test_the_superlink_has_a_few_requests_at_a_time_and_heartbeats_do_not_wait_for_them():
    """Its database is written to by one request after the other, and fails who waits too long."""
    keys = [generate_key_pairs()[0] for _ in range(6)]

    async def steps(*keys):
        slow = Slow()
        async with httpx.AsyncClient(transport=slow) as client:
            gate = known(Gate("127.0.0.1:8000", client), *keys)
            calls = [asyncio.create_task(post(gate, key=key)) for key in keys for _ in range(6)]
            calls += [asyncio.create_task(post(gate, target=HEARTBEAT, key=key)) for key in keys]
            await asyncio.sleep(0.5)
            at_a_time = dict(slow.now)
            slow.go.set()
            return at_a_time, set(await asyncio.gather(*calls))

    assert asyncio.run(steps(*keys)) == ({PULL: 16, HEARTBEAT: 6}, {200})
    # One device does not take all turns: its requests wait for each other.
    assert asyncio.run(steps(keys[0])) == ({PULL: 4, HEARTBEAT: 1}, {200})


def test_answers_count_until_they_are_read(monkeypatch):
    """What its receiver does not read, the SuperLink holds: all of it."""
    monkeypatch.setattr(callers, "MOST_BYTES_OF_DEVICE", 100)
    monkeypatch.setattr(gate_application, "MOST_BYTES_OF_MESSAGE", 50)

    async def steps():
        transport = httpx.MockTransport(lambda request: answered(bytes(60)))
        async with httpx.AsyncClient(transport=transport) as client:
            gate = known(Gate("127.0.0.1:8000", client), DEVICE, STRANGER)
            read = asyncio.Event()

            async def send(event: dict) -> None:
                await read.wait()

            headers = [(b"content-length", b"0"), *signature(DEVICE)]
            scope = {"type": "http", "method": "POST", "raw_path": PULL, "query_string": b""}
            scope |= {"headers": headers, "client": None}
            waiting = asyncio.create_task(gate(scope, sending(said(b"")), send))
            await asyncio.sleep(0.05)
            statuses = [await post(gate), await post(gate, key=STRANGER)]
            read.set()
            await waiting
            return [*statuses, await post(gate)]

    # The first device has no room for a second answer, another has; and then it has again.
    assert asyncio.run(steps()) == [503, 200, 200]


def test_a_push_at_which_the_superlink_fails_again_and_again_is_dropped(monkeypatch):
    """At 403 a SuperNode drops its reply and goes on; it would try for ever at 503."""
    monkeypatch.setattr(gate_application, "_MOST_FAILED_PUSHES", 3)

    async def steps(gate, upstream):
        known(gate)
        statuses = []
        for answer in (500, 500, 200, 500, 500, 500, 500):
            upstream.answer = answer
            statuses.append(await post(gate, target=PUSH))
            upstream.answer = 200  # what it asks in between says nothing about its pushes
            await post(gate)
        return statuses

    assert through(500, steps) == [503, 503, 200, 503, 503, 403, 503]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (httpx.ConnectError("refused"), 502),
        (httpx.RemoteProtocolError("closed"), 502),
        (httpx.ReadTimeout(""), 504),
    ],
)
def test_a_superlink_that_is_away_is_something_to_retry(error, status, caplog):
    """SuperNodes give up on anything but 502, 503 and 504."""
    start, _ = pass_through(Upstream(error))
    assert start["status"] == status
    assert "the SuperLink at 127.0.0.1:8000 does not answer" in caplog.text
    assert (str(error) or type(error).__name__) in caplog.text


@pytest.mark.parametrize(
    "text", ["", "host", ":8000", "host:", "host:0", "host:65536", "host:x", "a@host:1", "::1"]
)
def test_what_is_no_address(text):
    with pytest.raises(ValueError, match=re.escape(f"--listen {text!r} is not HOST:PORT")):
        parse_address(text, "--listen")


def call(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_command(parser.add_subparsers())
    options = parser.parse_args(["gate", *words])
    return options.call(options)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["localhost"], [])
    return folder


def test_files_that_do_not_fit_and_an_address_in_use_are_named(certificates, tmp_path):
    assert context_for_devices(certificates).minimum_version == ssl.TLSVersion.TLSv1_2
    folder = shutil.copytree(certificates, tmp_path / "copy")
    shutil.copy(folder / "ca.key", folder / "server.key")
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"server\.key cannot be used as a certificate and its"
        ):
            call("--certificates", str(folder))
        (folder / "server.key").unlink(missing_ok=True)
    for change in (lambda path: path.write_text("rubbish"), Path.unlink):
        change(folder / "ca.crt")
        with pytest.raises(ValueError, match=r"ca\.crt cannot be used as the authority"):
            context_trusting(folder / "ca.crt")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=rf"--listen {listen} cannot be used \(.*in use"):
            call("--certificates", str(certificates), "--listen", listen)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])  # noqa: S104
def test_a_gate_that_the_network_reaches_says_that_nginx_belongs_in_front(
    certificates, monkeypatch, caplog, host, warned
):
    async def nothing(self, sockets):
        pass

    monkeypatch.setattr(uvicorn.Server, "serve", nothing)
    (port,) = free_ports(1)
    caplog.set_level("INFO")
    call("--certificates", str(certificates), "--listen", f"{host}:{port}")
    assert f"the gate listens on {host}:{port}" in caplog.text
    assert ("behind nginx with deploy/nginx.conf" in caplog.text) == warned


def test_only_a_proxy_on_this_machine_says_who_calls(certificates, monkeypatch, caplog):
    async def requests(self, sockets):
        self.config.load()
        for number, address in enumerate(("127.0.0.1", "::1", "203.0.113.5")):
            headers = [(b"content-length", b"0"), (b"x-forwarded-for", b"198.51.100.%d" % number)]
            words = {"headers": headers, "key": None, "address": address}
            await ask(self.config.loaded_app, sending(said(b"")), **words)

    monkeypatch.setattr(uvicorn.Server, "serve", requests)
    (port,) = free_ports(1)
    call("--certificates", str(certificates), "--listen", f"127.0.0.1:{port}")
    for address in ("198.51.100.0", "198.51.100.1", "203.0.113.5"):
        assert f"refused {address} with 401" in caplog.text
