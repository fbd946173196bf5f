"""Long polling: the gate holds a device's request until the SuperLink has something to answer.

A SuperNode that gets no message looks again three seconds later. One that misses a part of its
message looks again after a second, then two, and so on. Flower has an option for neither.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
from google.protobuf.message import DecodeError

from fl_core.flower.messages import Message, PullMessagesResponse, PullObjectResponse

# SuperNodes wait for an answer for 30 seconds, and with many devices a look takes long.
POLL_SECONDS = 20.0
# Looks per second for all devices together: each takes the SuperLink some 20 ms of a processor, and
# one that finds a message wakes all the others.
_LOOKS = 5.0
# Seconds between two looks for one device: while a message is expected; otherwise, as a SuperNode.
_SHORTEST_PAUSE, _LONG_PAUSE = 0.5, 3.0
_EXPECTANT = 60.0  # seconds after a message in which the next is expected
_PART_PAUSE = 0.25  # seconds between two looks for a part of a message


class Waiting:
    """The devices that wait for messages."""

    def __init__(self) -> None:
        self._held: Counter[object] = Counter()
        self._batch: tuple[object, ...] = ()
        self._expected_until = 0.0
        self._news = asyncio.Event()

    @contextmanager
    def waiting_device(self, device: object) -> Iterator[None]:
        """Count a device as waiting during the block, once however many requests it has."""
        self._held[device] += 1
        try:
            yield
        finally:
            self._held -= Counter([device])  # which drops a count of nought

    def note_message(self, message: Message | None) -> None:
        """Wake the others when the first device gets a message: they have theirs of its batch."""
        if message is None:
            return
        about = message.metadata
        self._expected_until = time.monotonic() + _EXPECTANT
        batch = (about.run_id, about.group_id, about.message_type)
        if batch != self._batch:
            self._batch = batch
            self._news.set()
            self._news = asyncio.Event()

    async def for_message(self, device: object, seconds: float) -> None:
        """Wait until a message is likely, `seconds` at most.

        The requests of one device share the looks of one.
        """
        is_expected = time.monotonic() <= self._expected_until
        pause = max(_SHORTEST_PAUSE if is_expected else _LONG_PAUSE, len(self._held) / _LOOKS)
        pause *= max(1, self._held[device])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), min(pause, seconds))

    async def for_part(self, seconds: float) -> None:
        """Wait until a part of a message is likely, `seconds` at most."""
        await asyncio.sleep(min(_PART_PAUSE, seconds))


def has_no_message(response: httpx.Response) -> bool:
    """Return whether an answer says that there is no message."""
    answer = _read(response, PullMessagesResponse)
    return answer is not None and not answer.messages_list


def lacks_part(response: httpx.Response) -> bool:
    """Return whether an answer says that a part of a message is still to come."""
    answer = _read(response, PullObjectResponse)
    return answer is not None and bool(answer.object_found) and not answer.object_available


def _read(response: httpx.Response, kind: Any) -> Any:
    with suppress(DecodeError):
        return kind.FromString(response.content) if response.is_success else None
    return None
