"""Bodies and headers of requests and answers on their way through the gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

# Types of ASGI.
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

# Other headers concern one connection, or name the caller, which devices do not decide.
_PASSED_ON = {b"accept", b"content-type"}
_FLOWERS = (b"flwr-", b"x-flwr-")

_SLICE_BYTES = 2**16


class DisconnectedError(Exception):
    """The device closed its connection."""


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a body as it arrives, to its end. nginx ends callers that are slow."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise DisconnectedError
        yield message["body"]
        more = message["more_body"]


@asynccontextmanager
async def watch_disconnect(receive: Receive) -> AsyncIterator[Callable[[], bool]]:
    """Yield a function that returns whether the device has closed its connection."""
    event = asyncio.ensure_future(receive())  # the body was read: only the end is still to come
    try:
        await asyncio.sleep(0)  # an end that has come already is noticed
        yield lambda: event.done() and event.result()["type"] == "http.disconnect"
    finally:
        event.cancel()


async def in_slices(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body in slices: TLS would copy the whole of a longer piece."""
    for start in range(0, len(body), _SLICE_BYTES):
        yield body[start : start + _SLICE_BYTES]


async def send_answer(response: httpx.Response, send: Send) -> None:
    """Send an answer to a device."""
    length = (b"content-length", b"%d" % len(response.content))
    headers = [*forwarded_headers(response.headers.raw), length]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    async for part in in_slices(response.content):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def forwarded_headers(headers: Headers) -> Headers:
    """Return the headers that describe the message itself, without its length."""
    return [
        (name, value)
        for name, value in headers
        if name.lower() in _PASSED_ON or name.lower().startswith(_FLOWERS)
    ]
