"""A grid whose rounds end once a share of the clients has answered (`min-answers`)."""

import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fl_app.run.grid_wrapper import GridWrapper
from fl_core.messages import protocol

# Without these answers, a client stays in its cluster, with its cluster's model. A client that does
# not answer a query that finds clusters is excluded, so these queries wait for all clients, and so
# do messages before the first round.
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
    """Is notified of messages and answers; this one does nothing (see `fl_app.run.progress`)."""

    def sent(self, messages: Sequence[Message], late: Iterable[Message], timeout: float) -> None:
        """Note messages that were sent, earlier ones without an answer, and the seconds left."""

    def received(self, replies: Iterable[Message]) -> None:
        """Note answers and failures that have arrived."""

    def ended(self, late: Iterable[Message]) -> None:
        """Note the end of the waiting, and which messages lack an answer."""


@dataclass
class Patience:
    """How long to wait for answers: until a deadline, or twice as long as a quorum of them took."""

    asked: int  # number of clients
    started: float  # by time.monotonic
    end: float  # by time.monotonic
    quorum: int  # number of answers without failures that shorten the wait; `asked`: none does
    notify: Callable[[Sequence[Message]], None] = lambda replies: None
    answered: int = 0  # answers without failures so far

    @property
    def has_quorum(self) -> bool:
        """Whether there are enough answers, and not all."""
        return self.quorum <= self.answered < self.asked

    def count(self, replies: Sequence[Message]) -> None:
        """Count answers that have arrived."""
        self.notify(replies)
        had = self.has_quorum
        self.answered += sum(not reply.has_error() for reply in replies)
        if self.has_quorum and not had:
            self.end = min(self.end, 2 * time.monotonic() - self.started)


class QuorumGrid(GridWrapper):
    """A grid that passes messages on to Flower's, and does not wait for all clients.

    Once a share of the clients have trained, tested, sent their losses, or done a step of a secure
    sum, it waits for the others as long again at most. Late clients are failures. They get no
    message until they have answered or the earlier message has expired: a client that answers
    messages one after the other would never catch up. A late answer is discarded. The share,
    `min_answers`, is in (0, 1]; 1: wait for all until the timeout.
    """

    def __init__(self, grid: Grid, min_answers: float = 1.0) -> None:
        super().__init__(grid)
        self.listener = Listener()  # may be replaced at any time
        self._min_answers = min_answers
        self._late: dict[str, Message] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; return the answers and failures that arrive within `timeout` seconds."""
        asked, busy = list(messages), list[Message]()
        quorum = len(asked)
        if self._min_answers < 1 and all(map(_may_end_early, asked)):
            # 0.55 of 20 is 11, and no rounding error more.
            quorum = math.ceil(round(self._min_answers * len(asked), 9))
            asked, busy = self._without_late(asked)
        now = time.monotonic()
        end = math.inf if timeout is None else now + timeout
        patience = Patience(len(asked) + len(busy), now, end, quorum, self.listener.received)
        self.listener.sent(asked, self._late.values(), end - now)
        replies, waiting = self._exchange(asked, patience)
        replies += [failure(m, "it is still busy with an earlier message") for m in busy]
        if patience.has_quorum:
            self._late |= waiting
            reason = f"no answer when {patience.answered} of {patience.asked} had answered"
            replies += [failure(message, reason) for message in waiting.values()]
        self.listener.ended(self._late.values())
        return replies

    def _without_late(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Return the messages to clients without a late answer, and those to the others."""
        now = time.time()
        self._late = {
            number: message
            for number, message in self._late.items()
            if now < message.metadata.created_at + message.metadata.ttl
        }
        if self._late:
            for number in self._discard_late_replies(self._late):
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
        """Send messages and wait for answers until `patience.end`, counting each by `patience`.

        Returns the answers, and the messages without one by their ids.
        """

    @abstractmethod
    def _discard_late_replies(self, late: Mapping[str, Message]) -> list[str]:
        """Return the ids of messages that have an answer by now, or will never have one."""


def failure(message: Message, reason: str) -> Message:
    """Return the reply that a message has failed."""
    return Message(Error(_FAILURE, reason), reply_to=message)
