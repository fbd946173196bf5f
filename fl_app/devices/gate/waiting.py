"""Devices that ask for what is not there yet: the gate holds the question, and asks again itself.

A SuperNode that is told that there is no message looks again three seconds later, and one that is
told that a part of its message is still being sent, one second later, then two, and so on. Neither
has an option. So the gate, which stands between, answers once there is something.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
from google.protobuf.message import DecodeError

from fl_core.flower.messages import Message, PullMessagesResponse, PullObjectResponse

HELD_SECONDS = 20.0
"""So long after a question came it is held: SuperNodes wait for an answer for 30 seconds, and where
many call, a look that has begun may take long."""
# All devices together have the SuperLink asked so often in a second at most, however many they are:
# each look takes it some 20 ms of a processor, and one that finds a message wakes all the others.
# No device has it asked more often than once in `_SHORTEST_PAUSE`; while nothing is expected, than
# once in `_OWN_PAUSE`, as it would itself.
_LOOKS = 5.0
_OWN_PAUSE = 3.0
_SHORTEST_PAUSE = 0.5
# So long after a message was handed out, the next is expected soon; after that, none is.
_EXPECTANT = 60.0
_PART_PAUSE = 0.25  # seconds between two looks for a part of a message
_LONGEST_WITHOUT = 64  # bytes of an answer that brings no part


class Waiting:
    """The devices whose questions for messages are held."""

    def __init__(self) -> None:
        self._held: Counter[object] = Counter()
        self._batch: tuple[object, ...] = ()
        self._expected_until = 0.0
        self._news = asyncio.Event()

    @contextmanager
    def one_more(self, device: object) -> Iterator[None]:
        """Count a device that waits for the length of the block, once however often it asks."""
        self._held[device] += 1
        try:
            yield
        finally:
            self._held[device] -= 1
            if not self._held[device]:
                del self._held[device]

    def hear(self, message: Message) -> None:
        """Hear that a device was handed a message: others will have theirs of the same batch."""
        about = message.metadata
        self._expected_until = time.monotonic() + _EXPECTANT
        batch = (about.run_id, about.group_id, about.message_type)
        if batch != self._batch:
            self._batch = batch
            self._news.set()
            self._news = asyncio.Event()

    @property
    def pause(self) -> float:
        """Seconds after which a device that waits once has the SuperLink asked again."""
        is_expected = time.monotonic() <= self._expected_until
        return max(_SHORTEST_PAUSE if is_expected else _OWN_PAUSE, len(self._held) / _LOOKS)

    async def for_message(self, device: object, seconds: float) -> None:
        """Wait until one is likely, or for so many seconds.

        A device that asks several times at once does so in the share of one.
        """
        pause = self.pause * max(1, self._held[device])
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), min(pause, seconds))

    async def for_part(self, seconds: float) -> None:
        """Wait until a part of a message is likely to have been sent, or for so many seconds."""
        await asyncio.sleep(min(_PART_PAUSE, seconds))


def has_no_message(response: httpx.Response) -> bool:
    """Return whether the SuperLink answers that there is no message."""
    if response.status_code != httpx.codes.OK:
        return False
    try:
        return not PullMessagesResponse.FromString(response.content).messages_list
    except DecodeError:
        return False


def lacks_part(response: httpx.Response) -> bool:
    """Return whether it answers that a part of a message is still to come."""
    if response.status_code != httpx.codes.OK or len(response.content) > _LONGEST_WITHOUT:
        return False
    try:
        answer = PullObjectResponse.FromString(response.content)
    except DecodeError:
        return False
    return bool(answer.object_found) and not answer.object_available
