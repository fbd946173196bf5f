"""Clients that answer in Ray's workers, on this machine or on a cluster."""

import logging
import time
from collections import deque
from collections.abc import Mapping
from itertools import count
from typing import Any

from flwr.app import Message

from fl_app.run.quorum import Patience, QuorumGrid, failure
from fl_app.simulation.in_process_grid import InProcessGrid
from fl_app.simulation.resources import num_workers
from fl_core.text import one_line

_LOOK_AGAIN = 5.0  # seconds


class RayGrid(QuorumGrid):
    """The nodes of another grid, which answer in Ray's workers: one for each CPU.

    Each is a `worker`, whose method `answer` takes a message and the node's context, and returns
    the answer, the node's state and what was logged. It has the share `gpus` of a GPU. A worker
    whose process ends is replaced; what it was doing is a failure of that client.
    """

    def __init__(self, nodes: InProcessGrid, worker: type, min_answers: float, gpus: float) -> None:
        import ray  # noqa: PLC0415 - of the extra simulation

        super().__init__(nodes, min_answers)
        self._contexts, self._numbers = nodes.contexts, map(str, count())
        self._actor: Any = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=-1)(worker)
        nodes_of_ray: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        workers = sum(num_workers(node, gpus) for node in nodes_of_ray if node["Alive"])
        if not workers:
            raise ValueError(f"no node of Ray has a CPU and {gpus:g} GPUs: start one that has.")
        self._idle: deque[Any] = deque(self._actor.remote() for _ in range(workers))
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
            try:
                found[number], state, records = ray.get(reference)
                self._contexts[message.metadata.dst_node_id].state = state
                for record in records:
                    logging.getLogger(record.name).handle(record)
            except ray.exceptions.RayError as error:
                ray.kill(worker)  # until it is up again, it would fail others
                worker = self._actor.remote()
                found[number] = failure(message, f"its worker ended: {one_line(str(error))}")
            self._idle.append(worker)
        return found

    def _discard_late_replies(self, late: Mapping[str, Message]) -> list[str]:
        self._receive(0)
        running = {number for number, *_ in self._running.values()}
        return [number for number in late if number not in running]
