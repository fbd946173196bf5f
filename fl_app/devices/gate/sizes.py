"""How much a device may push: what it is handed out says how large a model is.

Nobody need tell the gate. It sees the names of a message's parts as the device is told them, and
how large each is as the device fetches it. The SuperLink takes one reply to a message, so what a
device pushes until it is handed out the next message is one reply.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from fl_app.devices.gate.pushes import UnsendableError
from fl_core.flower.messages import (
    Message,
    PullMessagesResponse,
    PullObjectRequest,
    iterate_object_tree,
)
from fl_core.messages.sizes import most_bytes_of_answer


class TooLargeError(UnsendableError):
    """A request that is too large; its body is still to come."""


@dataclass(eq=False)
class Post:
    """What one device is sent, and sends.

    Attributes
    ----------
    pushed : int
        Bytes that it has pushed since it was handed out a message.
    asked : Message, optional
        The message, until it is answered for the device.
    reply : str
        The number of its reply, once the SuperLink has taken that.
    """

    pushed: int = 0
    asked: Message | None = None
    reply: str = ""
    _parts: dict[str, int] = field(default_factory=dict)

    def hear(self, answer: bytes) -> Message | None:
        """Return the message, if the SuperLink answers with one when the device asks for it."""
        with suppress(DecodeError):
            found = PullMessagesResponse.FromString(answer)
            if found.messages_list:
                trees = [iterate_object_tree(tree) for tree in found.message_object_trees]
                self._parts = {part.object_id: 0 for tree in trees for part in tree}
                self.pushed, self.asked, self.reply = 0, found.messages_list[0], ""
                return self.asked
        return None

    def fetched(self, name: str, size: int) -> int:
        """Note how large a part of its message is, and return how large all are so far.

        Anything else in the SuperLink does not count: the device may have put it there.
        """
        if name in self._parts:
            self._parts[name] = size
        return sum(self._parts.values())


class Sizes:
    """How large messages have been since the gate was started, all devices together."""

    def __init__(self) -> None:
        self._largest = 0

    def handed_out(self, post: Post, request: bytes, size: int) -> None:
        """Note that a device was sent `size` bytes when it asked for an object."""
        try:
            name = PullObjectRequest.FromString(request).object_id
        except DecodeError:
            return
        self._largest = max(self._largest, post.fetched(name, size))

    @contextmanager
    def room_for(self, post: Post, size: int) -> Iterator[None]:
        """Let a device push `size` bytes in the block, or raise a TooLargeError.

        They do not count where the block raises.
        """
        most = most_bytes_of_answer(self._largest)
        if post.pushed + size > most:
            raise TooLargeError(f"its reply is larger than {most} bytes, and no model here is")
        post.pushed += size
        try:
            yield
        except BaseException:
            post.pushed = max(0, post.pushed - size)
            raise
