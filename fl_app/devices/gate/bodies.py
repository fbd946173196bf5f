"""Bodies and headers of requests and answers on their way through the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from fl_app.devices.gate.pushes import RefusedError

# ASGI's: what a request is, where its body comes from, and where the answer goes.
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# Others are about one connection, or about who is calling, which devices do not decide.
_PASSED_ON = {b"accept", b"content-type"}
_FLOWERS = (b"flwr-", b"x-flwr-")

# For the whole of a body, in either direction: SuperNodes wait 30 seconds for a part.
BODY_SECONDS = 120.0
_THROW_AWAY_SECONDS = 30.0  # as long as SuperNodes wait for an answer
_SLICE_BYTES = 2**16


class DeviceGoneError(Exception):
    """The device closed its connection."""


async def whole_body(receive: Receive) -> bytearray:
    """Read a body to its end.

    Raises
    ------
    DeviceGoneError
        If the device closes its connection before the end.
    RefusedError
        If the end does not come in time, however busily the device sends.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise DeviceGoneError
                body += message["body"]
                more = message["more_body"]
    except TimeoutError:
        # Not 408, at which SuperNodes give up: a line may be slow for once.
        raise RefusedError("it took too long to send its body", 503) from None
    return body


@asynccontextmanager
async def until_gone(receive: Receive) -> AsyncIterator[Callable[[], bool]]:
    """Yield a function that returns whether the device has closed its connection.

    Its body has been read: the next event is the end of the connection.
    """
    event = asyncio.ensure_future(receive())
    try:
        await asyncio.sleep(0)  # one that has gone already is noticed
        yield lambda: event.done() and event.result()["type"] == "http.disconnect"
    finally:
        event.cancel()


async def throw_away(receive: Receive) -> None:
    """Read a body to its end, or as far as it comes in time, and store nothing of it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_THROW_AWAY_SECONDS):
            while (message := await receive())["type"] == "http.request" and message["more_body"]:
                pass


async def in_slices(body: bytes | bytearray) -> AsyncIterator[bytes]:
    """Yield a body bit by bit: TLS would copy the whole of a longer piece."""
    for start in range(0, len(body), _SLICE_BYTES):
        yield bytes(body[start : start + _SLICE_BYTES])


async def pass_back(response: httpx.Response, send: Send) -> None:
    """Send an answer.

    Raises
    ------
    TimeoutError
        If the device does not take it in time.
    """
    length = (b"content-length", b"%d" % len(response.content))
    headers = [*passed_on(response.headers.raw), length]
    async with asyncio.timeout(BODY_SECONDS):
        status = response.status_code
        await send({"type": "http.response.start", "status": status, "headers": headers})
        async for part in in_slices(response.content):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def passed_on(headers: Headers) -> Headers:
    """Return the headers that are about the message itself, without its length."""
    return [
        (name, value)
        for name, value in headers
        if name.lower() in _PASSED_ON or name.lower().startswith(_FLOWERS)
    ]
