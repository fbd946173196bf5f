"""Grids before Flower's own: for newcomers, and for devices that nobody trusts."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future, wait

import httpx
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_UNREADABLE = 1  # Flower's code of an error without a code of its own
_PAUSE = 1.0  # seconds between two looks for answers
_HANDOVER = 0.2  # seconds an answer that is there may take before the next is fetched beside it


class GridAround(Grid):
    """A grid that passes everything on to another.

    Parameters
    ----------
    grid : Grid
        The real one.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def get_node_ids(self) -> Iterable[int]:
        """Pass on."""
        return self._grid.get_node_ids()

    def set_run(self, run: Run) -> None:
        """Pass on."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Pass on."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Pass on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Pass on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class ArrivingNodes(GridAround):
    """A grid without the nodes that have not arrived yet.

    Flower's simulation connects all nodes at the start; on devices, this is not needed.

    Parameters
    ----------
    grid : Grid
        The real one.
    late : collection of int
        Ids of the nodes that are not shown until `arrive` is called.
    """

    def __init__(self, grid: Grid, late: Collection[int]) -> None:
        super().__init__(grid)
        self._late = set(late)

    def arrive(self) -> None:
        """Show all nodes from now on."""
        self._late = set()

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that have arrived."""
        return [node for node in self._grid.get_node_ids() if node not in self._late]


class DeviceGrid(GridAround):
    """A grid on which one device's answer cannot cost another's.

    Flower fetches all answers in one go: one that cannot be fetched or unpacked ends the run, and
    while one is still being sent, or its device died over it, all wait for minutes, in which the
    others' answers expire. And it takes from the answer who sent it. Here, each answer is fetched
    by itself, an unreadable one is that device's failure, one that is still being sent keeps nobody
    waiting, and an answer is from whoever was asked.
    """

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send each message and return the answers that are there within `timeout` seconds."""
        asked = list(messages)
        # None stands for a message that could not be pushed, and an empty list for all of them.
        pushed = zip(self._grid.push_messages(asked), asked, strict=False)
        waiting = {number: message for number, message in pushed if number}
        fetched: dict[str, Future[Message | None]] = {}
        replies: list[Message] = []
        started = time.monotonic()
        while waiting:
            for number, message in list(waiting.items()):
                if number not in fetched:
                    fetched[number] = self._fetch(number, message)
                    wait([fetched[number]], _HANDOVER)
                if not fetched[number].done():
                    continue
                answer = fetched.pop(number).result()
                if answer is not None:
                    replies.append(answer)
                    del waiting[number]
            if timeout is not None and time.monotonic() - started + _PAUSE > timeout:
                break
            if waiting:
                time.sleep(_PAUSE)
        return replies

    def _fetch(self, number: str, message: Message) -> Future[Message | None]:
        """Look for an answer in a thread of its own."""
        answer: Future[Message | None] = Future()

        def look() -> None:
            try:
                answer.set_result(self._answer(number, message))
            except BaseException as error:  # raised again where the answer is asked for
                answer.set_exception(error)

        # An executor's threads would keep the process alive until Flower gives such an answer up.
        threading.Thread(target=look, daemon=True).start()
        return answer

    def _answer(self, number: str, message: Message) -> Message | None:
        try:
            found = next(iter(self._grid.pull_messages([number])), None)
            if found is None:
                return None
            if found.has_error():
                return Message(found.error, reply_to=message)
            return Message(found.content, reply_to=message)
        except httpx.TransportError:
            raise  # no device can do that: the SuperLink is gone
        except Exception as error:  # bytes from the network may be anything
            first_line, _, _ = str(error).partition("\n")
            reason = f"its answer cannot be fetched: {first_line}"
            return Message(Error(_UNREADABLE, reason), reply_to=message)
