"""A Grid that runs a ClientApp in this process: strategies are tested with no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

Order = Callable[[list[Message]], list[Message]]


class LocalGrid(Grid):
    """Answers every message at once.

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
        self.app = app
        self.order = order
        self.sent: list[Message] = []
        self.contexts = {
            self.node_of(client): Context(
                run_id=1,
                node_id=self.node_of(client),
                node_config={"partition-id": client, "num-partitions": num_clients},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for client in range(num_clients)
        }

    @staticmethod
    def node_of(client: int) -> int:
        return 9000 - 7 * client

    def get_node_ids(self) -> Iterable[int]:
        return set(self.contexts)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            self.sent.append(message)
            context = self.contexts[message.metadata.dst_node_id]
            try:
                replies.append(self.app(message, context))
            except Exception as error:
                reason = f"{type(error)}:<'{error}'>"
                replies.append(Message(Error(code=1, reason=reason), reply_to=message))
        return self.order(replies)

    def set_run(self, run: Any) -> None:
        raise AssertionError("not used")

    @property
    def run(self) -> Any:
        raise AssertionError("not used")

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise AssertionError("not used")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise AssertionError("not used")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise AssertionError("not used")


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
