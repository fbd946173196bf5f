"""The gate before the SuperLink: devices reach what SuperNodes need, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
nobody who they are and starts apps on all devices. So the SuperLink stays on an address that only
its own machine reaches, and this reverse proxy stands on the open one.

The SuperLink reads the whole of what it is sent before it checks a signature. So the gate bounds
what strangers can do: how long a body is and how long it takes, how much of all bodies is held at
a time, and how long a connection waits for the head of a request. It reads a body to its end
before it calls the SuperLink, and bothers it with none that does not arrive.

What remains are floods: whoever opens connections, or sends, faster than these bounds let go of
them keeps devices waiting. That is for a firewall, which lets in the addresses of the sites alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from cryptography import x509
from uvicorn.protocols.http.h11_impl import H11Protocol

# ASGI's: what a request is, where its body comes from, and where the answer goes.
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Application = Callable[[Event, Receive, Send], Awaitable[None]]

FLEET_PATHS = frozenset(
    f"/v1/fleet/{name}".encode("ascii")
    # Every path of Flower's FleetHttpClient but register-node and unregister-node: they are for
    # SuperNodes without a key, and a SuperLink with --enable-supernode-auth refuses them anyway.
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
MOST_BYTES = 64 * 2**20
"""The longest body: Flower sends arrays in pieces of 5 MiB, and the rest is small beside them."""
MOST_BYTES_HELD = 512 * 2**20
"""Of all bodies together, from their first byte until the SuperLink answers: what strangers can
fill of the gate's memory, and about half of what they can fill of the SuperLink's."""

# RFC 9110, section 7.6.1: these are about one connection, not about the message.
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
}
# The SuperLink believes a proxy on its own machine about who is calling: devices have no say in it.
_NOT_FOR_DEVICES = {b"host", b"expect", b"forwarded", b"x-real-ip"}
_FORWARDED = b"x-forwarded-"

# For the whole of a body, in either direction: SuperNodes have much less patience with a piece.
_BODY_SECONDS = 120.0
_SLICE_BYTES = 2**16
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
# The SuperLink closes what is idle for 5 s; a connection must not be reused in that moment.
_LIMITS = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=2.0)
# Longer than the 5 s for which SuperNodes keep idle connections, for the same reason.
_KEEP_ALIVE_SECONDS = 15
# With those to the SuperLink, fewer than the 1024 files that a program may usually have open.
_MOST_CONNECTIONS = 750
_STOP_SECONDS = 10

_log = logging.getLogger("clustered-fl.gate")


class _DeviceGoneError(Exception):
    """The device closed its connection."""


class _FullError(Exception):
    """The gate holds as many bytes as it may."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `gate` to the command line."""
    parser = commands.add_parser(
        "gate",
        help="let devices, and only devices, reach a SuperLink on this machine",
        description="Listen for devices with TLS and pass on to the SuperLink only those requests "
        "that SuperNodes need; everything else is answered with 404. Flower's SuperLink lets "
        "whoever reaches its port start apps on all devices: start it with --host 127.0.0.1 and "
        "open only the gate's port to the network. The gate bounds how much and how slowly "
        "strangers may send, but it is no shield against floods: let a firewall admit the "
        "addresses of your devices alone, where you know them.",
    )
    parser.add_argument(
        "--certificates",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the folder with ca.crt, server.crt and server.key (see `clustered-fl certificates`)",
    )
    parser.add_argument(
        "--listen",
        default="0.0.0.0:9092",
        metavar="HOST:PORT",
        help="where devices connect to (default: %(default)s)",
    )
    parser.add_argument(
        "--superlink",
        default="127.0.0.1:8000",
        metavar="HOST:PORT",
        help="where the SuperLink listens (default: %(default)s)",
    )
    parser.set_defaults(call=_run)


def gate(superlink: str, client: httpx.AsyncClient) -> Application:
    """Return the application that passes devices' requests on.

    Parameters
    ----------
    superlink : str
        The SuperLink's HOST:PORT.
    client : httpx.AsyncClient
        What connects to it.
    """
    base = f"https://{superlink}"
    bodies = _Bodies()

    async def application(scope: Event, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope["client"] else "unknown"
        status = _refusal(scope)
        if status is not None:
            _log.warning(
                "refused %s with %d: %s %.100r", peer, status, scope["method"], scope["raw_path"]
            )
            await _answer(send, status)
            return
        try:
            async with bodies.receive_one(receive) as body:
                request = client.build_request(
                    "POST",
                    base + scope["raw_path"].decode("ascii"),
                    headers=[
                        *_end_to_end(scope["headers"]),
                        (b"x-forwarded-for", peer.encode("ascii")),
                    ],
                    content=_slices(body),
                )
                response = await client.send(request, stream=True)
        except _DeviceGoneError:
            return
        except TimeoutError:
            _log.warning("%s took too long to send a body", peer)
            await _answer(send, 408)
            return
        except _FullError:
            _log.warning("too much is being sent at a time: %s is to try again", peer)
            await _answer(send, 503)
            return
        except httpx.TransportError as error:
            _log.warning("the SuperLink at %s does not answer: %s", superlink, _name(error))
            # SuperNodes try again later on either.
            await _answer(send, 504 if isinstance(error, httpx.TimeoutException) else 502)
            return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                await _pass_back(response, send)
        except TimeoutError:
            _log.warning("%s took too long to receive an answer", peer)
        except httpx.TransportError as error:
            # Without its end, the server closes the connection: the device sees it is not whole.
            _log.warning("an answer of the SuperLink at %s broke off: %s", superlink, _name(error))
        finally:
            await response.aclose()

    return application


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Read HOST:PORT.

    Examples
    --------
    >>> parse_address("[::1]:9092", "--listen")
    ('::1', 9092)

    Raises
    ------
    ValueError
        If it is something else.
    """
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    written = f"[{host}]:{port}" if host and ":" in host else f"{host}:{port}"
    if not host or not port or written != text.lower():
        raise ValueError(
            f"{option} {text!r} is no HOST:PORT: give for example 127.0.0.1:8000, "
            "fl.example.org:9092 or [::1]:9092."
        )
    return host, port


def server_tls(folder: Path) -> ssl.SSLContext:
    """Return how the gate shows devices who it is: with server.crt, in TLS 1.2 or later.

    Raises
    ------
    ValueError
        If the certificate or its key is missing, unreadable or not the other's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate, key = _file(folder, "server.crt"), _file(folder, "server.key")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{certificate} and {key} are not a certificate and its key: make both anew with "
            "`clustered-fl certificates`."
        ) from error
    return context


def superlink_tls(folder: Path) -> ssl.SSLContext:
    """Return how the gate checks that it speaks to the SuperLink: against ca.crt alone.

    Raises
    ------
    ValueError
        If ca.crt is missing or is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    authority = _file(folder, "ca.crt")
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ValueError(
            f"{authority} is no certificate: bring back the one that `clustered-fl certificates` "
            "made."
        ) from error
    return context


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Ctrl-C and a polite kill are how a gate ends.
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(options.certificates, options.listen, options.superlink))
    return 0


async def _serve(folder: Path, listen: str, superlink: str) -> None:
    host, port = parse_address(listen, "--listen")
    parse_address(superlink, "--superlink")
    for_devices, for_superlink = server_tls(folder), superlink_tls(folder)
    try:
        listener = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
            backlog=2048,
            # [::] is for devices with addresses of either kind.
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise ValueError(
            f"--listen {listen} cannot be used ({error.strerror}): name a free port of an address "
            "of this machine."
        ) from error
    with listener:
        # Proxies of the environment have no place between the gate and the SuperLink.
        async with httpx.AsyncClient(
            verify=for_superlink, timeout=_TIMEOUT, limits=_LIMITS, trust_env=False
        ) as client:
            config = uvicorn.Config(
                gate(superlink, client),
                ssl_context_factory=lambda _config, _default: for_devices,
                http=_Connection,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
            certificate = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
            _log.info(
                "the gate listens on %s and passes devices on to %s; server.crt expires on %s",
                *(listen, superlink, f"{certificate.not_valid_after_utc:%Y-%m-%d}"),
            )
            await uvicorn.Server(config).serve(sockets=[listener])


class _Connection(H11Protocol):
    """uvicorn's connection, of which h11 bounds the size of heads, with a clock that bounds time.

    uvicorn's own clock starts only after the first answer, and any byte stops it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        self.conn.receive_data(data)
        # A whole head stops the clock.
        self.handle_events()


def _refusal(scope: Event) -> int | None:
    """Return the status that a request is refused with for its head alone; None: it may pass."""
    # Compared as it came, before anybody decodes or shortens it: no trick of spelling passes.
    if scope["method"] != "POST" or scope["raw_path"] not in FLEET_PATHS or scope["query_string"]:
        return 404
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    # SuperNodes always say how much they send.
    if length is None or b"transfer-encoding" in headers:
        return 411
    if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
        return 413
    return None


class _Bodies:
    """What devices have sent and the SuperLink has not answered yet."""

    def __init__(self) -> None:
        self._held = 0

    @asynccontextmanager
    async def receive_one(self, receive: Receive) -> AsyncIterator[bytearray]:
        """Read a body to its end and hold it for the length of the block.

        Raises
        ------
        _DeviceGoneError
            If the device closes its connection before the end.
        TimeoutError
            If the end does not come in time, however busily the device sends.
        _FullError
            If all bodies together become too long.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise _DeviceGoneError
                    part: bytes = message["body"]
                    # What came is counted, not what is announced: an announcement costs nothing.
                    if self._held + len(part) > MOST_BYTES_HELD:
                        raise _FullError
                    self._held += len(part)
                    body += part
                    more = message["more_body"]
            yield body
        finally:
            self._held -= len(body)


async def _slices(body: bytearray) -> AsyncIterator[bytes]:
    """Yield a body bit by bit: whole, TLS would copy it whole."""
    for start in range(0, len(body), _SLICE_BYTES):
        yield bytes(body[start : start + _SLICE_BYTES])


async def _pass_back(response: httpx.Response, send: Send) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": _end_to_end(response.headers.raw),
        }
    )
    async for part in response.aiter_raw():
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _answer(send: Send, status: int) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            # Closing spares the gate from reading a body that nobody wants.
            "headers": [(b"content-length", b"0"), (b"connection", b"close")],
        }
    )
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not about this connection or about who is calling.

    Content-Length always stays: where a message ends is not up to its `Connection` header.
    """
    dropped = _HOP_BY_HOP | _NOT_FOR_DEVICES
    for name, value in headers:
        if name.lower() == b"connection":
            dropped |= {one.strip().lower() for one in value.split(b",")}
    dropped -= {b"content-length"}
    return [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith(_FORWARDED)
    ]


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"--certificates {folder}: {name} cannot be read ({error.strerror}); it is one of the "
            "files that `clustered-fl certificates` makes for the server."
        ) from error
    return path


def _no_password() -> str:
    """Stand in for OpenSSL's question on the terminal."""
    return ""


def _name(error: Exception) -> str:
    return str(error) or type(error).__name__
