"""Bodies of requests and answers on their way through the gate, with bounds on time and room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import httpx

from fl_app.devices.gate.callers import Held
from fl_app.devices.gate.pushes import RefusedError

# ASGI's: what a request is, where its body comes from, and where the answer goes.
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

# RFC 9110, section 7.6.1: these are about one connection, not about the message.
_HOP_BY_HOP = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
    *(b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
}
# The SuperLink believes a proxy on its own machine about who is calling: devices have no say in it.
_NOT_FOR_DEVICES = {b"host", b"expect", b"forwarded", b"x-real-ip"}
_FORWARDED = b"x-forwarded-"

# For the whole of a body, in either direction: SuperNodes have much less patience with a piece.
BODY_SECONDS = 120.0
_THROW_AWAY_SECONDS = 30.0  # as long as SuperNodes wait for an answer
_SLICE_BYTES = 2**16


class DeviceGoneError(Exception):
    """The device closed its connection."""


async def whole_body(receive: Receive, held: Held) -> bytearray:
    """Read a body to its end.

    Raises
    ------
    DeviceGoneError
        If the device closes its connection before the end.
    RefusedError
        If the end does not come in time, however busily the device sends.
    FullError
        If there is no room for it.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise DeviceGoneError
                # What came is counted, not what is announced: an announcement costs nothing.
                held.add(len(message["body"]))
                body += message["body"]
                more = message["more_body"]
    except TimeoutError:
        # Not 408, at which SuperNodes give up: a line may be slow for once.
        raise RefusedError("it took too long to send its body", 503) from None
    return body


async def throw_away(receive: Receive) -> None:
    """Read a body to its end, or as far as it comes in time, and keep nothing of it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_THROW_AWAY_SECONDS):
            while (message := await receive())["type"] == "http.request" and message["more_body"]:
                pass


async def in_slices(body: bytearray) -> AsyncIterator[bytes]:
    """Yield a body bit by bit: whole, TLS would copy it whole."""
    for start in range(0, len(body), _SLICE_BYTES):
        yield bytes(body[start : start + _SLICE_BYTES])


async def pass_back(
    response: httpx.Response, send: Send, hear: Callable[[bytes], None] | None
) -> None:
    """Send an answer bit by bit, or, if somebody is to hear it first, at once.

    Raises
    ------
    TimeoutError
        If the device does not take it in time.
    TransportError
        If the SuperLink breaks off.
    """
    async with asyncio.timeout(BODY_SECONDS):
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": end_to_end(response.headers.raw),
            }
        )
        whole = bytearray()
        # One that was held has been read.
        parts = response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()
        async for part in parts:
            if hear is None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                whole += part
        if hear is not None:
            hear(bytes(whole))
        await send({"type": "http.response.body", "body": bytes(whole), "more_body": False})


def end_to_end(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
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
