"""How much a device may push: the messages that devices fetch show how large a model is.

The gate sees the names of a message's parts when a device pulls it, and the size of each part when
the device fetches it. The SuperLink accepts one reply to a message, so what a device pushes between
two messages is one reply.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from fl_app.devices.gate.pushes import UnsendableError
from fl_core.flower.messages import Message, PullMessagesResponse, iterate_object_tree
from fl_core.messages.protocol import max_answer_bytes


class TooLargeError(UnsendableError):
    """A request is too large; its body is still to come."""


@dataclass(eq=False)
class ReplyTracker:
    """A device's last message and the reply to it."""

    pushed: int = 0  # bytes since the message
    asked: Message | None = None  # the message, until the gate answers it for the device
    reply: str = ""  # the reply's id, once the SuperLink has accepted it
    parts: dict[str, int] = field(default_factory=dict)  # the message's, with their bytes

    def note_message(self, answer: bytes) -> Message | None:
        """Return the message that the SuperLink's answer holds, or None."""
        with suppress(DecodeError):
            found = PullMessagesResponse.FromString(answer)
            if found.messages_list:
                trees = [iterate_object_tree(tree) for tree in found.message_object_trees]
                self.parts = {part.object_id: 0 for tree in trees for part in tree}
                self.pushed, self.asked, self.reply = 0, found.messages_list[0], ""
                return self.asked
        return None


class LargestMessage:
    """The size of the largest message of any device since the gate was started."""

    def __init__(self) -> None:
        self._largest = 0

    def note_fetched(self, tracker: ReplyTracker, name: str, size: int) -> None:
        """Note that a device fetched an object of `size` bytes."""
        if name in tracker.parts:  # it may have put other objects into the SuperLink itself
            tracker.parts[name] = size
            self._largest = max(self._largest, sum(tracker.parts.values()))

    @contextmanager
    def reserve(self, tracker: ReplyTracker, size: int) -> Iterator[None]:
        """Let a device push `size` bytes, or raise a TooLargeError; undone if the block fails."""
        most = max_answer_bytes(self._largest)
        if tracker.pushed + size > most:
            raise TooLargeError(f"its reply is larger than {most} bytes, and no model here is")
        tracker.pushed += size
        try:
            yield
        except BaseException:
            tracker.pushed = max(0, tracker.pushed - size)
            raise
