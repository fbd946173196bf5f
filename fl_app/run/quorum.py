"""A round that goes on once a share of the clients has answered."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fl_app.run.grid_wrapper import GridAround
from fl_core.messages import protocol

# Without these answers a client stays what it is: in its cluster, with its cluster's model. Whoever
# does not answer a query that finds clusters is left out, so those wait for everybody, and so does
# whatever is asked before the first round.
_MAY_END_EARLY = {
    protocol.TRAIN,
    protocol.EVALUATE,
    protocol.query(protocol.LOSSES),
    protocol.query(protocol.PUBLIC_KEYS),
    protocol.query(protocol.SHARE_KEYS),
    protocol.query(protocol.UNMASK),
}
_FAILURE = 1  # Flower's code of an error without a code of its own


def _may_end_early(message: Message) -> bool:
    about = message.metadata
    return about.message_type in _MAY_END_EARLY and about.group_id != protocol.PRE_ROUND


class Listener:
    """Hears how an exchange goes on; this one takes no notice (`fl_app.run.status` does)."""

    def asked(self, messages: Sequence[Message], late: Iterable[Message], timeout: float) -> None:
        """Hear what has been asked, which earlier messages lack an answer, and how long one waits.

        `timeout` is in seconds, infinite for ever.
        """

    def heard(self, replies: Iterable[Message]) -> None:
        """Hear which answers and failures have come."""

    def over(self, late: Iterable[Message]) -> None:
        """Hear that one waits no longer, and which messages lack an answer then."""


@dataclass
class Patience:
    """How long to wait for answers: until a deadline, or as long again as a quorum of them took.

    Attributes
    ----------
    asked : int
        How many clients were asked.
    started, end : float
        When they were asked, and when to stop, by `time.monotonic`.
    quorum : int
        So many answers that are no failures shorten the wait; with `asked`, none do.
    tell : callable
        Is told of all answers and failures that come.
    answered : int
        So many answers have come.
    """

    asked: int
    started: float
    end: float
    quorum: int
    tell: Callable[[Sequence[Message]], None] = lambda replies: None
    answered: int = 0

    @property
    def has_quorum(self) -> bool:
        """Whether so many have answered that the others need not be waited for."""
        return self.quorum <= self.answered < self.asked

    def hear(self, replies: Sequence[Message]) -> None:
        """Count answers that have come now."""
        self.tell(replies)
        had = self.has_quorum
        self.answered += sum(not reply.has_error() for reply in replies)
        if self.has_quorum and not had:
            self.end = min(self.end, 2 * time.monotonic() - self.started)


class QuorumGrid(GridAround):
    """A grid before another, the real one, that need not wait for everybody.

    Once a share of the asked clients have trained, tested, told their losses, or taken a step of a
    secure sum, it waits for the others as long again at most. Those who are late are failures with
    that reason. Until they have answered, or the time of that message is over, they are not asked
    again: a client that takes messages one after the other would never catch up. A late answer is
    thrown away.

    Parameters
    ----------
    grid : Grid
        Flower's.
    min_answers : float
        That share, in (0, 1]; 1: wait for all until the timeout.

    Attributes
    ----------
    listener : Listener
        Is told how each exchange goes on; may be set at any time.
    """

    def __init__(self, grid: Grid, min_answers: float = 1.0) -> None:
        super().__init__(grid)
        self.listener = Listener()
        self._min_answers = min_answers
        self._late: dict[str, Message] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return the answers and failures that come within `timeout` seconds."""
        asked, busy = list(messages), list[Message]()
        quorum = len(asked)
        if self._min_answers < 1 and all(map(_may_end_early, asked)):
            # 0.55 of 20 is 11, and no rounding error more.
            quorum = math.ceil(round(self._min_answers * len(asked), 9))
            asked, busy = self._without_late(asked)
        now = time.monotonic()
        end = math.inf if timeout is None else now + timeout
        patience = Patience(len(asked) + len(busy), now, end, quorum, self.listener.heard)
        self.listener.asked(asked, self._late.values(), end - now)
        replies, waiting = self._exchange(asked, patience)
        replies += [failure(m, "it is still busy with an earlier message") for m in busy]
        if patience.has_quorum:
            self._late |= waiting
            reason = f"no answer when {patience.answered} of {patience.asked} had answered"
            replies += [failure(message, reason) for message in waiting.values()]
        self.listener.over(self._late.values())
        return replies

    def _without_late(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return the messages to those who owe no answer, and the others."""
        now = time.time()
        self._late = {
            number: message
            for number, message in self._late.items()
            if now < message.metadata.created_at + message.metadata.ttl
        }
        if self._late:
            for number in self._throw_away(self._late):
                del self._late[number]
        owing = {message.metadata.dst_node_id for message in self._late.values()}
        free, busy = list[Message](), list[Message]()
        for message in messages:
            (busy if message.metadata.dst_node_id in owing else free).append(message)
        return free, busy

    @abstractmethod
    def _exchange(
        self, messages: list[Message], patience: Patience
    ) -> tuple[list[Message], dict[str, Message]]:
        """Send messages, and wait for answers no longer than `patience`, which hears of each.

        Returned are the answers, and the messages without one by Flower's numbers for them.
        """

    @abstractmethod
    def _throw_away(self, late: Mapping[str, Message]) -> list[str]:
        """Return which of these messages have an answer by now, or will never have one."""


def failure(message: Message, reason: str) -> Message:
    """Return the reply that a message has failed."""
    return Message(Error(_FAILURE, reason), reply_to=message)
