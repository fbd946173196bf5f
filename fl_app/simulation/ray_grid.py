"""Clients that answer in Ray's workers, on this machine or on a cluster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Any

from flwr.app import Context, Message, RecordDict

from fl_app.run.quorum import Patience, QuorumGrid, failure
from fl_app.simulation.in_process_grid import InProcessGrid, answer
from fl_app.simulation.resources import num_workers
from fl_core.text import one_line

_LOOK_AGAIN = 5.0  # seconds


class Worker:
    """Answers messages of any client, one after the other, in a process of Ray's."""

    def __init__(self) -> None:
        from fl_app.client_app import app  # noqa: PLC0415 - where the messages are answered

        self._app = app

    def answer(self, message: Message, context: Context) -> tuple[Message, RecordDict]:
        """Return the answer to a message, and the node's state after it."""
        return answer(self._app, message, context), context.state


class RayGrid(QuorumGrid):
    """The nodes of another grid, which answer in Ray's workers: one for each CPU.

    Each worker has the share `gpus` of a GPU. A worker whose process ends is started again; what it
    was doing is a failure of that client.
    """

    def __init__(self, nodes: InProcessGrid, min_answers: float, gpus: float) -> None:
        import ray  # noqa: PLC0415 - of the extra simulation

        super().__init__(nodes, min_answers)
        self._contexts, self._numbers = nodes.contexts, map(str, count())
        worker = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1)(Worker)
        workers = sum(num_workers(node, gpus) for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
        self._idle = deque(worker.remote() for _ in range(workers))
        self._running: dict[Any, tuple[str, Message, Any]] = {}  # by Ray's reference to the answer

    def _exchange(
        self, messages: list[Message], patience: Patience
    ) -> tuple[list[Message], dict[str, Message]]:
        waiting = {next(self._numbers): message for message in messages}
        queue, replies = deque(waiting.items()), list[Message]()
        while waiting and (left := patience.end - time.monotonic()) > 0:
            while queue and self._idle:
                number, message = queue.popleft()
                worker, context = self._idle.popleft(), self._contexts[message.metadata.dst_node_id]
                reference = worker.answer.remote(message, context)
                self._running[reference] = number, message, worker
            received = self._receive(min(left, _LOOK_AGAIN))
            found = [reply for number, reply in received.items() if waiting.pop(number, None)]
            replies += found
            patience.count(found)
        return replies, waiting

    def _receive(self, seconds: float) -> dict[str, Message]:
        """Return answers that come within some seconds, at least one if possible."""
        import ray  # noqa: PLC0415

        found = {}
        for reference in ray.wait([*self._running], timeout=seconds)[0] if self._running else ():
            number, message, worker = self._running.pop(reference)
            self._idle.append(worker)
            try:
                found[number], state = ray.get(reference)
                self._contexts[message.metadata.dst_node_id].state = state
            except ray.exceptions.RayError as error:
                found[number] = failure(message, f"its worker ended: {one_line(str(error))}")
        return found

    def _discard_late_replies(self, late: Mapping[str, Message]) -> list[str]:
        self._receive(0)
        running = {number for number, *_ in self._running.values()}
        return [number for number in late if number not in running]
