"""A Grid that runs a ClientApp in this process: strategies are tested with no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp

from fl_app.simulation.in_process_grid import InProcessGrid

Order = Callable[[list[Message]], list[Message]]


class LocalGrid(InProcessGrid):
    """Answers every message at once, and notes it.

    `order` rearranges replies; node ids are unlike client indices and in another order.
    """

    def __init__(
        self,
        app: ClientApp,
        num_clients: int,
        *,
        run_config: Mapping[str, Any] | None = None,
        order: Order = list,
    ) -> None:
        nodes = [
            {"partition-id": client, "num-partitions": num_clients} for client in range(num_clients)
        ]
        super().__init__(app, nodes, run_config or {})
        self.order = order
        self.sent: list[Message] = []

    @staticmethod
    def node_of(index: int) -> int:
        return 9000 - 7 * index

    def get_node_ids(self) -> Iterable[int]:
        return set(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return self.order(list(super().send_and_receive(self._noted(messages), timeout=timeout)))

    def _noted(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            self.sent.append(message)
            yield message


class Visits(LocalGrid):
    """A grid whose nodes come and go. `away`: from client to the rounds in which it is not there.

    Round 0 is the pre-round. Who is away answers nothing.
    """

    def __init__(self, app: ClientApp, num_clients: int, away: Mapping[int, Iterable[int]]) -> None:
        super().__init__(app, num_clients)
        self.away = {self.node_of(client): set(rounds) for client, rounds in away.items()}
        self.round = -1

    def get_node_ids(self) -> Iterable[int]:
        """Return who is there: the strategy looks once in every round."""
        self.round += 1
        return {node for node in self.contexts if self.round not in self.away.get(node, ())}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        there = [m for m in messages if self.round not in self.away.get(m.metadata.dst_node_id, ())]
        return super().send_and_receive(there, timeout=timeout)

    def rounds_of(self, client: int, kind: str = "train") -> list[int]:
        return [
            int(m.metadata.group_id)
            for m in self.sent
            if (m.metadata.dst_node_id, m.metadata.message_type) == (self.node_of(client), kind)
        ]
