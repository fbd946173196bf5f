"""Requests as SuperNodes make them, for tests of the gate without a network."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)

from fl_app.devices.gate.application import Gate

PULL = b"/v1/fleet/pull-messages"
PUSH = b"/v1/fleet/push-object"
PUSH_MESSAGES = b"/v1/fleet/push-messages"

DEVICE, _ = generate_key_pairs()
STRANGER, _ = generate_key_pairs()

Header = tuple[bytes, bytes]


def public(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key's public half, as Flower sends it."""
    return public_key_to_bytes(key.public_key())


def signature(key: ec.EllipticCurvePrivateKey, at: datetime | None = None) -> list[Header]:
    """Return the headers with which a SuperNode signs a request."""
    timestamp = (at or now()).isoformat().encode("ascii")
    return [
        (b"flwr-public-key", base64.b64encode(public(key))),
        (b"flwr-timestamp", timestamp),
        (b"flwr-signature", base64.b64encode(sign_message(key, timestamp))),
    ]


def opaque(size: int) -> bytes:
    """Return a body of at least two bytes, with a field that no request has."""
    return b"\x7a" + bytes([size - 2]) + b"x" * (size - 2)


def said(body: bytes, *, more: bool = False) -> dict:
    """Return a piece of a body."""
    return {"type": "http.request", "body": body, "more_body": more}


def sending(*pieces: dict, gone: asyncio.Event | None = None) -> Callable:
    """Return a caller that sends pieces of a body and then waits, until `gone`, for its answer."""
    left = list(pieces)

    async def receive() -> dict:
        if left:
            return left.pop(0)
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    return receive


def known(gate: Gate, *keys: ec.EllipticCurvePrivateKey) -> Gate:
    """Return the gate, which has heard of these devices."""
    for key in keys or (DEVICE,):
        gate._callers.add(public(key))
    return gate


def at_gate(
    transport: httpx.AsyncBaseTransport,
    steps: Callable,
    *,
    keys: Sequence[ec.EllipticCurvePrivateKey] = (DEVICE,),
    **options,
) -> Any:
    """Return what `steps`, a coroutine function of a gate that knows devices, returns."""

    async def run() -> Any:
        async with httpx.AsyncClient(transport=transport) as client:
            gate = Gate("127.0.0.1:8000", client, **options)
            return await steps(known(gate, *keys) if keys else gate)

    return asyncio.run(run())


def pass_through(
    transport: httpx.AsyncBaseTransport, *, receive: Callable | None = None, **request
) -> list[dict]:
    """Send one request of a known device through a gate and return all that it answered."""
    return at_gate(transport, lambda gate: ask(gate, receive or sending(said(b"")), **request))


async def ask(
    application: Gate,
    receive: Callable,
    *,
    target: bytes = PULL,
    query: bytes = b"",
    method: str = "POST",
    headers: Sequence[Header] = ((b"content-length", b"0"),),
    key: ec.EllipticCurvePrivateKey | None = DEVICE,
    address: str = "203.0.113.5",
) -> list[dict]:
    """Send one request, signed unless there is no key, and return all that was answered."""
    answered: list[dict] = []

    async def send(event: dict) -> None:
        answered.append(event)

    signed = [] if key is None else signature(key)
    scope = {
        **{"type": "http", "method": method, "raw_path": target, "query_string": query},
        **{"headers": [*headers, *signed], "client": (address, 40000)},
    }
    await application(scope, receive, send)
    return answered


async def post(
    application: Gate, body: bytes = b"", gone: asyncio.Event | None = None, **request
) -> int | None:
    """Send one whole body and return the status; None: no answer."""
    headers = [(b"content-length", b"%d" % len(body))]
    answered = await ask(application, sending(said(body), gone=gone), headers=headers, **request)
    return answered[0]["status"] if answered else None


def answered(content: bytes = b"", status: int = 200) -> httpx.Response:
    """Return an answer of the SuperLink, as it comes over a network."""
    headers = {"content-length": str(len(content))}
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


class Upstream(httpx.MockTransport):
    """Stands in for the SuperLink and remembers what reached it."""

    def __init__(self, answer: httpx.Response | Exception | int | None = None) -> None:
        self.requests: list[httpx.Request] = []
        self.answer = answer or httpx.Response(200, stream=httpx.ByteStream(b"fine"))
        super().__init__(self._respond)

    def _respond(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, int):
            return answered(status=self.answer)
        return self.answer
