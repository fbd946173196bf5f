"""The gate before the SuperLink: devices reach what SuperNodes need, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
nobody who they are and starts apps on all devices. So the SuperLink stays on an address that only
its own machine reaches, and this reverse proxy stands on the open one.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from cryptography import x509

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
MOST_BYTES = 2**31 - 1
"""The longest body: protobuf's own limit of a message."""

# RFC 9110, section 7.6.1: these are about one connection, not about the message.
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
}
# The SuperLink believes a proxy on its own machine about who is calling: devices have no say in it.
_NOT_FOR_DEVICES = {b"host", b"expect", b"forwarded", b"x-real-ip"}
_FORWARDED = b"x-forwarded-"

_IDLE_SECONDS = 30.0
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
# The SuperLink closes what is idle for 5 s; a connection must not be reused in that moment.
_LIMITS = httpx.Limits(max_connections=200, max_keepalive_connections=50, keepalive_expiry=2.0)
# Longer than the 5 s for which SuperNodes keep idle connections, for the same reason.
_KEEP_ALIVE_SECONDS = 15
_STOP_SECONDS = 10

_log = logging.getLogger("clustered-fl.gate")


class _DeviceGoneError(Exception):
    """The device closed its connection or stopped sending."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `gate` to the command line."""
    parser = commands.add_parser(
        "gate",
        help="let devices, and only devices, reach a SuperLink on this machine",
        description="Listen for devices with TLS and pass on to the SuperLink only those requests "
        "that SuperNodes need; everything else is answered with 404. Flower's SuperLink lets "
        "whoever reaches its port start apps on all devices: start it with --host 127.0.0.1 and "
        "open only the gate's port to the network.",
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

    async def application(scope: Event, receive: Receive, send: Send) -> None:
        peer = scope["client"][0] if scope["client"] else "unknown"
        target: bytes = scope["raw_path"]
        # Compared as it came, before anybody decodes or shortens it: no trick of spelling passes.
        if scope["method"] != "POST" or target not in FLEET_PATHS or scope["query_string"]:
            _log.warning("refused %s: %s %.100r", peer, scope["method"], target)
            await _answer(send, 404)
            return
        headers = list(scope["headers"])
        length = dict(headers).get(b"content-length")
        # SuperNodes always say how much they send.
        if length is None or b"transfer-encoding" in dict(headers):
            await _answer(send, 411)
            return
        if len(length) > len(str(MOST_BYTES)) or int(length) > MOST_BYTES:
            await _answer(send, 413)
            return
        request = client.build_request(
            "POST",
            base + target.decode("ascii"),
            headers=[*_end_to_end(headers), (b"x-forwarded-for", peer.encode("ascii"))],
            content=_body(receive),
        )
        try:
            response = await client.send(request, stream=True)
        except _DeviceGoneError:
            return
        except httpx.TransportError as error:
            _log.warning("the SuperLink at %s does not answer: %s", superlink, _name(error))
            # SuperNodes try again later on either.
            await _answer(send, 504 if isinstance(error, httpx.TimeoutException) else 502)
            return
        try:
            await _pass_back(response, send)
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
                http="h11",  # bounds the size of headers
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="warning",
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
            certificate = x509.load_pem_x509_certificate((folder / "server.crt").read_bytes())
            _log.info(
                "the gate listens on %s and passes devices on to %s; server.crt expires on %s",
                *(listen, superlink, f"{certificate.not_valid_after_utc:%Y-%m-%d}"),
            )
            await uvicorn.Server(config).serve(sockets=[listener])


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    more = True
    while more:
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                message = await receive()
        except TimeoutError as error:
            raise _DeviceGoneError from error
        if message["type"] != "http.request":
            raise _DeviceGoneError
        if message["body"]:
            yield message["body"]
        more = message["more_body"]


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
    """Return the headers that are not about this connection or about who is calling."""
    dropped = _HOP_BY_HOP | _NOT_FOR_DEVICES
    for name, value in headers:
        if name.lower() == b"connection":
            dropped |= {one.strip().lower() for one in value.split(b",")}
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
