"""Flower's grid of a simulation, without its searches: with 10,000 clients they would take hours.

Flower 1.41 searches all nodes' messages for those of each node, ten times a second, and all awaited
messages for replies. Here messages wait in one queue, in the order in which they were sent, and a
reply wakes the thread that waits for it. Flower still decides what is delivered, to which node, and
how often.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from threading import Condition
from typing import Any

from flwr.app import Message

from fl_app.run.quorum import Patience, QuorumGrid
from fl_core.flower.basics import now as flower_now
from fl_core.flower.server import InMemoryGrid

# Seconds between two looks at all awaited messages: Flower's replies to expired messages wake no
# thread.
_LOOK_AT_ALL = 5.0
# Seconds that Flower's thread, which asks for all nodes' messages in turn, waits while there are
# none. It would sleep for a tenth of a second after each turn, and a round's messages with it.
_PATIENCE = 1.0


class SimulatedGrid(QuorumGrid):
    """Wraps Flower's grid of a simulation, and waits for replies itself."""

    def __init__(self, grid: InMemoryGrid, min_answers: float = 1.0) -> None:
        super().__init__(grid, min_answers)
        self._queue = _MessageQueue(grid.state)
        logging.getLogger("flwr").addFilter(_is_no_traceback)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; the first is not handed out before the last is there."""
        with self._queue.arrived:
            return list(super().push_messages(messages))

    def _exchange(
        self, messages: list[Message], patience: Patience
    ) -> tuple[list[Message], dict[str, Message]]:
        pushed = set(self.push_messages(messages))
        awaited = {number: m for m in messages if (number := m.metadata.message_id) in pushed}
        replies = list[Message]()
        looked = time.monotonic()
        while awaited and (now := time.monotonic()) < patience.end:
            due = looked + _LOOK_AT_ALL
            ready = self._queue.wait_for_some(awaited.keys(), min(due, patience.end) - now)
            if time.monotonic() >= due:
                ready, looked = set(awaited), time.monotonic()
            found = list(self.pull_messages(ready)) if ready else []
            replies += found
            patience.count(found)
            for message in found:
                awaited.pop(message.metadata.reply_to_message_id, None)
        return replies, awaited

    def _discard_late_replies(self, late: Mapping[str, Message]) -> list[str]:
        return [m.metadata.reply_to_message_id for m in self.pull_messages(set(late))]


def _is_no_traceback(record: logging.LogRecord) -> bool:
    """Return whether a record is not one of the 147 lines by which Flower logs an exception.

    The server names the client and the cause, in one line.
    """
    return record.levelno != logging.ERROR or record.module not in ("vce_api", "raybackend")


class _MessageQueue:
    """Flower's store of messages, with a queue and conditions in place of searches.

    Flower's methods still decide which message is valid.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._waiting = deque[str]()
        self.arrived = Condition()  # messages have come; while it is locked, none is delivered
        self._news = Condition()  # a reply has come
        self._first = 0
        self._store, self._reply = state.store_message_ins, state.store_message_res
        state.store_message_ins = self._store_message
        state.store_message_res = self._store_reply
        state.get_message_ins = self._next_messages

    def wait_for_some(self, awaited: AbstractSet[str], seconds: float) -> set[str]:
        """Return the awaited messages that have a reply; if none has, wait `seconds` at most."""
        replied: dict[str, str] = self._state.message_ins_id_to_message_res_id
        with self._news:
            if not (ready := awaited & replied.keys()):
                self._news.wait(max(0.0, seconds))
                ready = awaited & replied.keys()
        return ready

    def _store_message(self, message: Message) -> str | None:
        found: str | None = self._store(message)
        if found is not None:
            with self.arrived:
                self._waiting.append(found)
                self.arrived.notify_all()
        return found

    def _store_reply(self, message: Message) -> str | None:
        found: str | None = self._reply(message)
        with self._news:
            self._news.notify_all()
        return found

    def _next_messages(
        self, node_id: int, limit: int | None, *, run_id: int | None = None
    ) -> list[Message]:
        """Return up to `limit` messages that have not been delivered yet, oldest first.

        Flower asks for each node in turn, but gives each message to its destination, so its turns
        only decide the order.
        """
        with self.arrived:
            self._first = self._first or node_id
            if not self._waiting and node_id == self._first:  # once in each turn
                self.arrived.wait(_PATIENCE)
            found: list[Message] = []
            with self._state.lock:
                while self._waiting and (limit is None or len(found) < limit):
                    message_id = self._waiting.popleft()
                    self._state._check_stored_messages({message_id})  # drops expired ones
                    message = self._state.message_ins_store.get(message_id)
                    if message is not None and message.metadata.delivered_at == "":
                        message.metadata.delivered_at = flower_now().isoformat()
                        found.append(message)
        return found
