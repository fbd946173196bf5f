"""The gate's application: which requests are passed on to the SuperLink."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial

import httpx
from google.protobuf.message import DecodeError, Message
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from fl_app.devices.gate.callers import Callers, Device, signer
from fl_app.devices.gate.failures import report_failure
from fl_app.devices.gate.pushes import RefusedError, UnsendableError, check_request
from fl_app.devices.gate.refusals import RefusalLog
from fl_app.devices.gate.sizes import LargestMessage, TooLargeError
from fl_app.devices.gate.waiting import POLL_SECONDS, Waiting, has_no_message, lacks_part
from fl_core.flower.calls import ApiErrorCode, FlowerError

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
_PUSH_MESSAGES, _PUSH_OBJECT = b"/v1/fleet/push-messages", b"/v1/fleet/push-object"
_PUSHES = (_PUSH_MESSAGES, _PUSH_OBJECT)
_PULL_MESSAGES, _PULL_OBJECT = b"/v1/fleet/pull-messages", b"/v1/fleet/pull-object"
_CONFIRM = b"/v1/fleet/confirm-message-received"
MOST_BYTES = 16 * 2**20  # of an object: Flower sends arrays in pieces of 5 MiB
MOST_BYTES_OF_MESSAGE = 2**18  # without its objects: a thousand names have 70 kB
MOST_BYTES_OF_REQUEST = 2**12  # of any other
_LONGEST = {_PUSH_OBJECT: MOST_BYTES, _PUSH_MESSAGES: MOST_BYTES_OF_MESSAGE}

# Requests that the SuperLink has at a time, and heartbeats beside them, which must not wait.
# It writes to its database for each request, one after the other, and fails after waiting 5 seconds
# for that. Measured with 50 devices that all call at once (docs/scale.md).
_AT_A_TIME = 16
_HEARTBEATS_AT_A_TIME = 8
_HEARTBEAT = b"/v1/fleet/send-node-heartbeat"
# In a row, after which the gate refuses a device's push for good (two minutes, as SuperNodes wait).
_MOST_FAILED_PUSHES = 10
# Other headers concern one connection, or name the caller, which devices do not decide.
_PASSED_ON = re.compile(rb"accept|content-type|(x-)?flwr-.*", re.IGNORECASE)
_SLICE_BYTES = 2**16

_Header = tuple[bytes, bytes]

_log = logging.getLogger("fedkin.gate")


@dataclass(frozen=True)
class _Call:
    """A signed request."""

    request: Request
    length: int  # of its body, as its head states it
    key: bytes  # the public key that signed its head
    device: Device | None  # None: the key was not known when the request came

    @property
    def path(self) -> bytes:
        return bytes(self.request.scope["raw_path"])


class Gate:
    """The application that passes devices' requests on to the SuperLink at HOST:PORT.

    Once `is_stopping` returns True, requests are answered without waiting.
    """

    def __init__(
        self,
        superlink: str,
        client: httpx.AsyncClient,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._superlink = superlink
        self._client = client
        self._is_stopping = is_stopping
        self._callers = Callers()
        self._largest_message = LargestMessage()
        self._waiting = Waiting()
        self._refusals = RefusalLog()
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._heartbeats = asyncio.Semaphore(_HEARTBEATS_AT_A_TIME)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        device: Device | None = None
        try:
            length, key = _stated_length(scope), signer(scope["headers"])
            if key is None:
                raise RefusedError("no key has signed it, or its timestamp is wrong", 401)
            device = self._callers.device(key)
            if device is None and scope["raw_path"] in _PUSHES:
                raise RefusedError("its key is not known yet: try again later", 503)
            response = await self._respond(_Call(Request(scope, receive), length, key, device))
            # Longer answers are objects and apps, which can be requested again. A short answer says
            # what the SuperLink has done, and must not be lost.
            size = len(response.content)
            is_long = size > MOST_BYTES_OF_MESSAGE
            with self._callers.reserve(device, size) if is_long else nullcontext():
                headers = _passed_on(response.headers.raw)
                await _send_answer(send, response.status_code, headers, response.content)
        except ClientDisconnect:
            return
        except RefusedError as refused:
            request = f"{scope['method']} {scope['raw_path'].decode('ascii', 'replace'):.100}"
            reason = f"with {refused.status}, {refused}: {request}"
            self._refusals.note(scope["client"][0], reason)
            # Closing spares the gate from reading a body that is not used.
            await _send_answer(send, refused.status, [(b"connection", b"close")], b"")
            if isinstance(refused, UnsendableError) and device and scope["raw_path"] in _PUSHES:
                await self._report_failure(device, scope, str(refused))

    async def _respond(self, call: _Call) -> httpx.Response:
        until = time.monotonic() + POLL_SECONDS
        tracker = call.device.tracker if call.device and call.path == _PUSH_OBJECT else None
        try:
            if call.length > (most := _LONGEST.get(call.path, MOST_BYTES_OF_REQUEST)):
                raise TooLargeError(f"it is longer than {most} bytes", 413)
            with (
                self._callers.reserve(call.device, call.length),
                self._largest_message.reserve(tracker, call.length) if tracker else nullcontext(),
            ):
                body = await call.request.body()  # nginx ends callers that are slow
                name = check_request(call.path, body, call.key)
                response = await self._poll(call, partial(self._forward, call, body, name), until)
        except TooLargeError:
            # If the connection is closed in the middle of a body, nginx may answer 502 instead, and
            # the device would try again for ever.
            if call.device is not None:
                with suppress(ClientDisconnect):
                    async for _ in call.request.stream():
                        pass
            raise
        if call.device is not None and call.path == _PUSH_MESSAGES and response.is_success:
            call.device.tracker.reply = name
        device = self._callers.device(call.key)
        if device is not None and call.path == _PULL_MESSAGES:
            self._waiting.note_message(device.tracker.note_message(response.content))
        return response

    async def _poll(
        self, call: _Call, ask: Callable[[], Awaitable[httpx.Response]], until: float
    ) -> httpx.Response:
        """Return the answer once it is not empty, or at the time `until`."""
        response = await ask()
        device = self._callers.device(call.key)
        if device is None or call.path not in (_PULL_MESSAGES, _PULL_OBJECT):
            return response
        for_message = call.path == _PULL_MESSAGES
        is_empty = has_no_message if for_message else lacks_part
        wait = partial(self._waiting.for_message, device) if for_message else self._waiting.for_part
        with self._waiting.waiting_device(device) if for_message else nullcontext():
            while is_empty(response) and (left := until - time.monotonic()) > 0:
                await wait(left)
                if self._is_stopping() or time.monotonic() >= until:
                    break
                response = await ask()
        return response

    async def _forward(self, call: _Call, body: bytes, name: str) -> httpx.Response:
        """Send a request to the SuperLink in turn, and note what its answer says of the device."""
        async with self._turn(call.path, call.device):
            # The SuperLink counts what it has answered as delivered. A device that has closed its
            # connection asks again.
            if await call.request.is_disconnected():
                raise ClientDisconnect
            response = await self._send(call.request.scope, call.path, body)
        pushes = call.device if call.path in _PUSHES else None
        if response.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            if pushes is not None:
                pushes.failed_pushes += 1
                if pushes.failed_pushes % _MOST_FAILED_PUSHES == 0:
                    raise RefusedError("the SuperLink fails at it again and again")
            raise RefusedError("the SuperLink failed: try again later", 503)
        if pushes is not None:
            pushes.failed_pushes = 0
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._callers.mark_unknown(call.key)
        if response.status_code == httpx.codes.OK:
            device = self._callers.add(call.key)
            if call.path == _PULL_OBJECT:
                self._largest_message.note_fetched(device.tracker, name, len(response.content))
        if call.path in (_PULL_OBJECT, _CONFIRM) and _has_run_ended(response):
            # At 403, a SuperNode would keep the message, and answer it instead of the next run's.
            raise RefusedError("its run has ended", 404)
        return response

    async def _report_failure(self, device: Device, scope: Scope, reason: str) -> None:
        async def send(name: str, request: Message) -> bytes:
            path = f"/v1/fleet/{name}".encode("ascii")
            async with self._turn(path, device):
                # A SuperNode signs the time, and not what it sends.
                response = await self._send(scope, path, request.SerializeToString())
            return response.raise_for_status().content

        try:
            await report_failure(device.tracker, f"its answer was refused: {reason}", send)
        except (RefusedError, httpx.HTTPError, DecodeError) as error:
            _log.warning("could not report the refused answer to the server: %s", _name(error))

    @asynccontextmanager
    async def _turn(self, path: bytes, device: Device | None) -> AsyncIterator[None]:
        if path == _HEARTBEAT:
            async with self._heartbeats:
                yield
            return
        async with device.turns if device is not None else nullcontext(), self._turns:
            yield

    async def _send(self, scope: Scope, path: bytes, body: bytes) -> httpx.Response:
        headers = [*_passed_on(scope["headers"]), (b"content-length", b"%d" % len(body))]
        url = f"https://{self._superlink}{path.decode('ascii')}"
        try:
            return await self._client.post(url, headers=headers, content=_in_slices(body))
        except httpx.TransportError as error:
            # SuperNodes try again later on either.
            raise RefusedError(
                f"the SuperLink at {self._superlink} does not answer ({_name(error)})",
                504 if isinstance(error, httpx.TimeoutException) else 502,
            ) from error


async def _in_slices(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body in slices: TLS would copy the whole of a longer piece."""
    for start in range(0, len(body), _SLICE_BYTES):
        yield body[start : start + _SLICE_BYTES]


async def _send_answer(send: Send, status: int, headers: Iterable[_Header], body: bytes) -> None:
    """Answer a device."""
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    async for part in _in_slices(body):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _passed_on(headers: Iterable[_Header]) -> list[_Header]:
    """Return the headers that describe the message itself, without its length."""
    return [header for header in headers if _PASSED_ON.fullmatch(header[0])]


def _stated_length(scope: Scope) -> int:
    path = scope["raw_path"]
    # Compared as it came, neither decoded nor normalised: no other spelling of a path passes.
    if scope["method"] != "POST" or path not in FLEET_PATHS or scope["query_string"]:
        raise RefusedError("it is not for devices", 404)
    headers = dict(scope["headers"])
    length = headers.get(b"content-length")
    # SuperNodes always say how much they send.
    if length is None or b"transfer-encoding" in headers:
        raise RefusedError("it states no length", 411)
    return int(length)


def _has_run_ended(response: httpx.Response) -> bool:
    if response.status_code != httpx.codes.FORBIDDEN:
        return False
    error = FlowerError.from_json(response.text)
    return error is not None and error.code == ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED


def _name(error: Exception) -> str:
    return str(error) or type(error).__name__
