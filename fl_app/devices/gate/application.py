"""What is passed on to the SuperLink, and what is not."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import httpx
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Request

from fl_app.devices.gate.bodies import (
    DeviceGoneError,
    Event,
    Receive,
    Send,
    end_to_end,
    in_slices,
    pass_back,
    throw_away,
    whole_body,
)
from fl_app.devices.gate.callers import (
    MOST_BYTES_OF_STRANGER,
    Callers,
    Device,
    FullError,
    Held,
    is_address,
    signer,
)
from fl_app.devices.gate.connections import Connection
from fl_app.devices.gate.failures import answer_for
from fl_app.devices.gate.pushes import RefusedError, UnsendableError, check_push, pushed_for
from fl_app.devices.gate.sizes import Sizes, TooLargeError
from fl_app.devices.gate.waiting import HELD_SECONDS, Waiting, has_no_message, lacks_part

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
_PUSH_MESSAGES = b"/v1/fleet/push-messages"
_PUSH_OBJECT = b"/v1/fleet/push-object"
_PUSHES = (_PUSH_MESSAGES, _PUSH_OBJECT)
_PULL_MESSAGES = b"/v1/fleet/pull-messages"
_PULL_OBJECT = b"/v1/fleet/pull-object"
MOST_BYTES = 16 * 2**20
"""The longest object: Flower sends arrays in pieces of 5 MiB, and the rest is small beside them."""
MOST_BYTES_OF_NAMES = 2**18
"""The longest message without its objects: a thousand names have 70 kB."""
MOST_BYTES_OF_OTHERS = 2**12
"""The longest body of any other request."""

_MOST_DIGITS = 20  # of a length: Python reads no numbers of thousands
_LONGEST = {_PUSH_OBJECT: MOST_BYTES, _PUSH_MESSAGES: MOST_BYTES_OF_NAMES}

_THIS_MACHINE = ("127.0.0.1", "::1")

# So many requests the SuperLink has at a time, and beside them so many heartbeats, which must not
# wait in line: it writes to its database for every request, one after the other, and fails at what
# has waited for that for 5 seconds. Measured with 50 devices that all call at once (docs/scale.md).
_AT_A_TIME = 16
_HEARTBEATS_AT_A_TIME = 8
_HEARTBEAT = b"/v1/fleet/send-node-heartbeat"
# So often in a row the SuperLink may fail at what a device pushes (two minutes, as SuperNodes wait)
# before the device is told to drop it instead of trying for ever.
_MOST_FAILED_PUSHES = 10

_log = logging.getLogger("fedkin.gate")


class Gate:
    """The application that passes devices' requests on, to the SuperLink's HOST:PORT."""

    def __init__(self, superlink: str, client: httpx.AsyncClient) -> None:
        self._superlink = superlink
        self._client = client
        self._callers = Callers()
        self._sizes = Sizes()
        self._waiting = Waiting()
        self._runs: set[int] = set()
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._heartbeats = asyncio.Semaphore(_HEARTBEATS_AT_A_TIME)

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Answer one request."""
        address, device = _address(scope), None
        try:
            length, key = _stated_length(scope), signer(scope["headers"])
            device = None if key is None else self._callers.device(key)
            is_known = device is not None and device.is_known
            if not is_known:
                _check_length(scope["raw_path"], length)
            if key is None:
                reason = "without the signature of a key, or its timestamp is wrong"
                raise RefusedError(reason, 401)
            if not is_known and length > MOST_BYTES_OF_STRANGER:
                raise RefusedError("its key is not known yet: try again later", 503)
            # Until the answer has gone, too: the SuperLink holds what its receiver does not read.
            with self._callers.request(key, address) as held:
                post = device.post if device and scope["raw_path"] == _PUSH_OBJECT else None
                try:
                    _check_length(scope["raw_path"], length)
                    with self._sizes.room_for(post, length) if post else nullcontext():
                        response = await self._ask(scope, receive, key, held)
                except TooLargeError:
                    # Closed in the middle of its body, a connection may lose the answer, and a
                    # proxy says 502 for it: the device would try again for ever.
                    await throw_away(receive)
                    raise
                try:
                    size = int(response.headers.get("content-length", 0))
                    # Only objects and apps are longer, and can be asked for again: a short answer
                    # says what the SuperLink has done, and must not be lost.
                    if size > MOST_BYTES_OF_NAMES:
                        held.add(size)
                    await self._pass_back(response, send, address, self._hear(scope, key))
                finally:
                    await response.aclose()
        except DeviceGoneError:
            return
        except FullError:
            await _refuse(scope, send, 503, "too many requests: try again later")
        except RefusedError as refused:
            await _refuse(scope, send, refused.status, str(refused))
            if isinstance(refused, UnsendableError) and device and device.is_known:
                await self._answer_for(device, scope, str(refused))

    async def _answer_for(self, device: Device, scope: Event, reason: str) -> None:
        """Tell the server that a device can never send its answer."""
        if scope["raw_path"] not in _PUSHES:
            return

        async def tell(name: str, request: Request) -> bytes:
            # A SuperNode signs the time, and not what it sends.
            path, body = f"/v1/fleet/{name}".encode("ascii"), request.SerializeToString()
            headers = [one for one in scope["headers"] if one[0] != b"content-length"]
            headers.append((b"content-length", b"%d" % len(body)))
            async with self._turn(path, device):
                response = await self._send(
                    {**scope, "raw_path": path, "headers": headers}, bytearray(body)
                )
                try:
                    response.raise_for_status()
                    return await response.aread()
                finally:
                    await response.aclose()

        try:
            await answer_for(device.post, f"its answer was refused: {reason}", tell)
        except (RefusedError, httpx.HTTPError, DecodeError) as error:
            _log.warning("an answer that was refused is waited for: %s", _name(error))

    async def _ask(self, scope: Event, receive: Receive, key: bytes, held: Held) -> httpx.Response:
        """Pass a request on, and return the SuperLink's answer, of which nothing is read yet."""
        path, began = scope["raw_path"], time.monotonic()
        device = self._callers.device(key)
        connection: Connection | None = scope.get("state", {}).get("connection")
        if device is not None and device.is_known and connection is not None:
            connection.is_devices(key)
        pushing = device if path == _PUSH_MESSAGES else None
        async with pushing.one_push() if pushing is not None else nullcontext():
            body = await whole_body(receive, held)
            reply = check_push(bytes(body)) if path == _PUSH_MESSAGES else None
            # Given back with the head of the answer, which devices may read slowly.
            async with self._turn(path, device):
                if connection is not None and connection.is_closed:
                    raise DeviceGoneError  # it will ask again
                started = time.monotonic()
                response = await self._send(scope, body)
                if device is not None and path == _PULL_OBJECT:
                    self._note_size(device, body, response)
                if pushing is not None:
                    pushing.rest_after(time.monotonic() - started)
                    if reply is not None and response.status_code == httpx.codes.OK:
                        pushing.post.reply = reply.messages_list[0].metadata.message_id
        held.give_back()
        response = await self._learnt_from(response, key, path, body)
        if device is None or connection is None or path not in (_PULL_MESSAGES, _PULL_OBJECT):
            return response
        until = began + HELD_SECONDS
        return await self._once_there(scope, key, device, connection, body, response, until)

    async def _once_there(
        self,
        scope: Event,
        key: bytes,
        device: Device,
        connection: Connection,
        body: bytearray,
        response: httpx.Response,
        until: float,
    ) -> httpx.Response:
        """Return the answer to a question of a device once it brings something, or after `until`.

        The SuperLink takes what it has answered for delivered: one that has gone asks no more.
        """
        for_message = scope["raw_path"] == _PULL_MESSAGES
        is_empty = has_no_message if for_message else lacks_part
        waiting = self._waiting
        wait = partial(waiting.for_message, device) if for_message else waiting.for_part
        with waiting.one_more(device) if for_message else nullcontext():
            while await self._read(is_empty, response) and (left := until - time.monotonic()) > 0:
                await wait(left)
                if connection.is_stopping or time.monotonic() >= until:
                    break
                async with self._turn(scope["raw_path"], device):
                    if connection.is_closed:
                        raise DeviceGoneError
                    response = await self._send(scope, body)
                    if not for_message:
                        self._note_size(device, body, response)
                response = await self._learnt_from(response, key, scope["raw_path"], body)
        return response

    async def _read(
        self, is_empty: Callable[[httpx.Response], Awaitable[bool]], response: httpx.Response
    ) -> bool:
        """Return whether an answer brings nothing, after reading all of one that may be such."""
        try:
            return await is_empty(response)
        except httpx.TransportError as error:
            await response.aclose()
            said = f"an answer of the SuperLink at {self._superlink} broke off ({_name(error)})"
            raise RefusedError(said, 502) from error

    def _hear(self, scope: Event, key: bytes) -> Callable[[bytes], None] | None:
        """Return the callback that hears an answer before the device does."""
        device = self._callers.device(key)
        if device is None or scope["raw_path"] != _PULL_MESSAGES:
            return None

        def hear(answer: bytes) -> None:
            before = device.post.asked
            device.post.hear(answer)
            if device.post.asked is not None and device.post.asked is not before:
                self._runs.add(device.post.asked.metadata.run_id)
                self._waiting.hear(device.post.asked)

        return hear

    def _note_size(self, device: Device, body: bytearray, answer: httpx.Response) -> None:
        """Note how large a part of its message a device is sent."""
        if answer.status_code == httpx.codes.OK:
            size = int(answer.headers.get("content-length", 0))
            self._sizes.handed_out(device.post, bytes(body), size)

    @asynccontextmanager
    async def _turn(self, path: bytes, device: Device | None) -> AsyncIterator[None]:
        """Wait in line: heartbeats in one of their own, and of a device only a few at a time."""
        if path == _HEARTBEAT:
            async with self._heartbeats:
                yield
            return
        async with device.turns if device is not None else nullcontext(), self._turns:
            yield

    async def _pass_back(
        self,
        response: httpx.Response,
        send: Send,
        address: str,
        hear: Callable[[bytes], None] | None,
    ) -> None:
        try:
            await pass_back(response, send, hear)
        except TimeoutError:
            _log.warning("%s took too long to receive an answer", address)
        except httpx.TransportError as error:
            # Without its end, the server closes the connection: the device sees it is not whole.
            _log.warning(
                "an answer of the SuperLink at %s broke off: %s", self._superlink, _name(error)
            )

    async def _send(self, scope: Event, body: bytearray) -> httpx.Response:
        request = self._client.build_request(
            "POST",
            f"https://{self._superlink}{scope['raw_path'].decode('ascii')}",
            headers=[
                *end_to_end(scope["headers"]),
                (b"x-forwarded-for", _address(scope).encode("ascii")),
            ],
            content=in_slices(body),
        )
        try:
            return await self._client.send(request, stream=True)
        except httpx.TransportError as error:
            # SuperNodes try again later on either.
            raise RefusedError(
                f"the SuperLink at {self._superlink} does not answer ({_name(error)})",
                504 if isinstance(error, httpx.TimeoutException) else 502,
            ) from error

    async def _learnt_from(
        self, response: httpx.Response, key: bytes, path: bytes, body: bytearray
    ) -> httpx.Response:
        """Return an answer of the SuperLink, after which the gate knows its caller better."""
        if response.status_code == httpx.codes.OK:
            self._callers.know(key)
        elif response.status_code == httpx.codes.UNAUTHORIZED:
            self._callers.forget(key)
        device = self._callers.device(key) if path in _PUSHES else None
        if response.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
            if device is not None:
                device.failed_pushes = 0
            return response
        await response.aclose()
        if device is not None:
            run = pushed_for(bytes(body), is_object=path == _PUSH_OBJECT)
            if self._runs and run not in self._runs:  # of none it knows when it was just started
                raise RefusedError("it is for a run of which no device was sent anything")
            device.failed_pushes += 1
            if device.failed_pushes >= _MOST_FAILED_PUSHES:
                device.failed_pushes = 0
                raise RefusedError("the SuperLink fails at it again and again")
        raise RefusedError("the SuperLink failed: try again later", 503)


def _stated_length(scope: Event) -> int:
    """Return how long a request says that its body is.

    Raises
    ------
    RefusedError
        If its head alone is reason enough.
    """
    path = scope["raw_path"]
    # Compared as it came, before anybody decodes or shortens it: no trick of spelling passes.
    if scope["method"] != "POST" or path not in FLEET_PATHS or scope["query_string"]:
        raise RefusedError("it is not for devices", 404)
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    # SuperNodes always say how much they send.
    if length is None or b"transfer-encoding" in headers:
        raise RefusedError("it states no length", 411)
    return int(length[:_MOST_DIGITS])


def _check_length(path: bytes, length: int) -> None:
    """Refuse a body that is too long for where it is sent."""
    most = _LONGEST.get(path, MOST_BYTES_OF_OTHERS)
    if length > most:
        raise TooLargeError(f"it is longer than {most} bytes", 413)


def _address(scope: Event) -> str:
    """Return where a request comes from; a proxy on this machine, such as nginx, is believed."""
    address = str(scope["client"][0]) if scope["client"] else "unknown"
    if address in _THIS_MACHINE:
        text = dict(scope["headers"]).get(b"x-real-ip", b"").decode("latin-1")
        if is_address(text):
            return str(text)
    return address


async def _refuse(scope: Event, send: Send, status: int, reason: str) -> None:
    _log.warning(
        "refused %s with %d, %s: %s %.100r",
        *(_address(scope), status, reason, scope["method"], scope["raw_path"]),
    )
    await send(
        {
            "type": "http.response.start",
            "status": status,
            # Closing spares the gate from reading a body that nobody wants.
            "headers": [(b"content-length", b"0"), (b"connection", b"close")],
        }
    )
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _name(error: Exception) -> str:
    return str(error) or type(error).__name__
