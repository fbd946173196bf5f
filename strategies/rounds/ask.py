"""One way to ask clients: a message to each, and what is read of the replies."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from fl_core.text import one_line
from strategies.rounds.replies import NO_ANSWER, error_text

Reading = TypeVar("Reading")


@dataclass
class Traffic:
    """Payload bytes of all clients together, without headers."""

    down: int = 0
    up: int = 0


@dataclass(frozen=True, eq=False)
class Answers(Generic[Reading]):
    """What clients answered, by client index, ascending."""

    values: dict[int, Reading]
    failures: dict[int, str]  # why the others have no value
    unreadable: set[int]  # those of `failures` that sent a reply which could not be read


@dataclass(frozen=True, eq=False)
class Request(Generic[Reading]):
    """One message to each of some clients, and how their replies are read."""

    message_type: str
    nodes: Mapping[int, int]  # node ids, in the order in which messages are sent
    content_of: Callable[[int], RecordDict]
    read: Callable[[int, RecordDict], Reading]  # what it raises makes the client fail
    timeout: float  # seconds, after which nodes no longer get the message
    traffic: Traffic = field(default_factory=Traffic)
    group: str = ""  # the round, for Flower

    def ask(self, grid: Grid) -> Answers[Reading]:
        """Send the messages, wait, and read the replies."""
        return self.answers(grid.send_and_receive(self.messages(), timeout=self.timeout))

    def messages(self) -> list[Message]:
        """Return each client's message."""
        messages = [
            Message(
                self.content_of(client),
                dst_node_id=node,
                message_type=self.message_type,
                group_id=self.group,
                ttl=self.timeout,
            )
            for client, node in self.nodes.items()
        ]
        self.traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        return messages

    def answers(self, replies: Iterable[Message]) -> Answers[Reading]:
        """Read the replies; a client that was sent a message and did not reply has failed."""
        client_at = {node: client for client, node in self.nodes.items()}
        contents: dict[int, RecordDict] = {}
        failures = dict.fromkeys(self.nodes, NO_ANSWER)
        for reply in replies:
            client = client_at.get(reply.metadata.src_node_id)
            if client is None:
                continue
            if reply.has_error():
                failures[client] = error_text(reply)
            else:
                contents[client] = reply.content
        values: dict[int, Reading] = {}
        unreadable = set()
        for client, content in sorted(contents.items()):
            self.traffic.up += protocol.payload_bytes(content)
            try:
                values[client] = self.read(client, content)
            except Exception as error:  # bytes from the network may be anything
                unreadable.add(client)
                reason = one_line(str(error))
                if not isinstance(error, ValueError):
                    reason = f"its answer cannot be read: {reason}"
                failures[client] = reason
            else:
                del failures[client]
        return Answers(values, dict(sorted(failures.items())), unreadable)
