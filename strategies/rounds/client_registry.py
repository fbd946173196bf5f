"""The clients of a training: their nodes and names, and why some are excluded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from flwr.app import ConfigRecord, RecordDict

from fl_core.messages import protocol
from fl_core.text import name_if_readable, one_line
from strategies.rounds.failures import FailureLog

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # so often a node is asked to join before it must reconnect


class Refusal(NamedTuple):
    """Why a node may not use the name that it gives."""

    called: str  # the name to use in messages
    reason: str


@dataclass(eq=False)
class ClientRegistry:
    """The clients of a training, which may fail, leave and reconnect.

    With `by_name`, nodes give names. These get indices in alphabetical order, newcomers the next.
    """

    nodes: dict[int, int] = field(default_factory=dict)  # from client index to node id, ascending
    by_name: bool = False
    names: dict[int, str] = field(default_factory=dict)  # of the clients that gave one
    descriptions: dict[int, ConfigRecord] = field(default_factory=dict)  # of the nodes that joined
    failures: dict[int, str] = field(default_factory=dict)  # why clients are excluded
    log: FailureLog = field(default_factory=FailureLog)  # also of clients that take part
    round: int = 0  # in which failures happen now; 0 before training
    unknown: dict[int, str] = field(default_factory=dict)  # why nodes without a name are excluded
    # Which nodes may not use the name that they give; and that with which a node was registered.
    refused: Callable[[Mapping[int, str]], Mapping[int, Refusal]] = lambda given: {}
    registered_name: Callable[[int], str] = lambda node: ""
    _connected: set[int] = field(default_factory=set)
    _attempts: Counter[int] = field(default_factory=Counter)

    def copy(self) -> ClientRegistry:
        """Return a copy for another training; the indices of names are shared by both."""
        return replace(
            self,
            nodes=dict(self.nodes),
            descriptions=dict(self.descriptions),
            failures=dict(self.failures),
            log=self.log.copy(),
            _connected=set(self._connected),
            _attempts=Counter(self._attempts),
        )

    def name_of(self, client: int) -> str:
        """Return how messages to people name a client."""
        return self.names.get(client, f"client {client}")

    def name_of_node(self, node: int) -> str:
        """Return how messages to people name a node: by its name, if one is known."""
        client = next((client for client, one in self.nodes.items() if one == node), None)
        name = self.registered_name(node) if client is None else self.name_of(client)
        return name or f"node {node}"

    @property
    def unknown_by_name(self) -> dict[str, str]:
        """Return why nodes are excluded that are no client, by what messages name them."""
        return dict(
            zip(self._distinct_names(list(self.unknown)), self.unknown.values(), strict=True)
        )

    def _distinct_names(self, nodes: Sequence[int]) -> list[str]:
        """Name nodes, two of which may be registered with one name."""
        names = [self.name_of_node(node) for node in nodes]
        return [
            name if names.count(name) == 1 else f"{name} (node {node})"
            for node, name in zip(nodes, names, strict=True)
        ]

    def connected(self) -> list[int]:
        """Return the clients at connected nodes."""
        return [client for client, node in self.nodes.items() if node in self._connected]

    def update_connected(self, connected: Iterable[int]) -> list[int]:
        """Store which nodes are connected, and return the new ones, ascending."""
        now = set(connected)
        new, self._connected = now - self._connected, now
        return sorted(new)

    def identify_clients(
        self, answers: Mapping[int, RecordDict], failures: Mapping[int, str], *, is_start: bool
    ) -> dict[int, int]:
        """Return each client's node, by the nodes' answers; failures are by node, too.

        Nodes that failed will be asked again. Of two nodes with one index, the second is excluded,
        or, at the start, a ValueError is raised.
        """
        for node, reason in failures.items():
            called = self.name_of_node(node)
            logger.warning("%s is left out, it could not take part: %s", called, reason)
            self._record_unknown(node, reason)
            self._ask_again_later(node)
        found: dict[int, int] = {}
        for node in answers:
            self.unknown.pop(node, None)
        kind = "name" if self.by_name else "partition-id"
        for node, index in self._indices(answers).items():
            if index is None:
                reason = f"it gave no {kind} that can be used"
                logger.warning("%s is left out, %s", self.name_of_node(node), reason)
                self._record_unknown(node, reason)
            elif index in found:
                first, second = self._distinct_names([found[index], node])
                problem = (
                    f"{first} and {second} both say that they are {self.name_of(index)}: give each "
                    f"SuperNode a {kind} that no other has."
                )
                if is_start and not self.by_name:
                    raise ValueError(problem)
                logger.warning("%s The second is left out.", problem)
                self._ask_again_later(node)
            else:
                found[index] = node
                sent = answers[node].config_records
                self.descriptions[index] = sent.get(protocol.CONFIG, ConfigRecord())
        return dict(sorted(found.items()))

    def admit(self, found: Mapping[int, int]) -> list[int]:
        """Add clients, by their nodes, unless another connected node is one; return the new."""
        newcomers = []
        client_at = {node: client for client, node in self.nodes.items()}
        for client, node in found.items():
            if client not in self.nodes:
                newcomers.append(client)
            elif self.nodes[client] != node and self.nodes[client] in self._connected:
                called, _ = self._distinct_names([node, self.nodes[client]])
                logger.warning(
                    "%s is left out, it says that it is %s, which takes part from another node",
                    *(called, self.name_of(client)),
                )
                self._ask_again_later(node)
                continue
            if client_at.get(node, client) != client:
                self._remove(node, f"its node says now that it is {self.name_of(client)}", client)
            self.failures.pop(client, None)
            self.nodes[client] = node
        self.nodes = dict(sorted(self.nodes.items()))
        return newcomers

    def leave_out(self, client: int, action: str, reason: str) -> None:
        """Exclude a client, and log why."""
        reason = one_line(reason)
        logger.warning("%s is left out, its %s failed: %s", self.name_of(client), action, reason)
        self._exclude(client, action, reason)
        self._ask_again_later(self.nodes.pop(client))

    def restore(self, placed: Container[int], failures: Mapping[int, str]) -> None:
        """Restore an interrupted training: clients without a cluster in it become newcomers."""
        for client, reason in failures.items():
            if client not in self.nodes:
                self.failures[client] = reason
        for client in [client for client in self.nodes if client not in placed]:
            self.failures[client] = failures.get(client, "it came after the checkpoint")
            self._connected.discard(self.nodes.pop(client))

    def _indices(self, answers: Mapping[int, RecordDict]) -> dict[int, int | None]:
        """Return each node's client index; None: it gave none."""
        if not self.by_name:
            return {node: _given_index(content) for node, content in answers.items()}
        given = {node: _given_name(content) for node, content in answers.items()}
        refused = self.refused({node: name for node, name in given.items() if name is not None})
        allowed = {node: name for node, name in given.items() if node not in refused}
        index_of = self._known(filter(None, allowed.values()))
        for node, refusal in sorted(refused.items()):
            self._refuse(node, refusal)
        return {node: None if name is None else index_of[name] for node, name in allowed.items()}

    def _known(self, names: Iterable[str]) -> dict[str, int]:
        """Return the client index of every name, adding those that are new."""
        for fresh in sorted(set(names) - set(self.names.values())):
            self.names[len(self.names)] = fresh
        return {name: client for client, name in self.names.items()}

    def _refuse(self, node: int, refusal: Refusal) -> None:
        """Exclude a node that gives a name which it may not use."""
        logger.warning("%s (node %d) is left out: %s", refusal.called, node, refusal.reason)
        client = self._known([refusal.called])[refusal.called]
        self._remove(node, refusal.reason)
        if client not in self.nodes:  # the name may be that of one that is in, at another node
            self._exclude(client, protocol.DESCRIBE, refusal.reason)
        self._ask_again_later(node)

    def _record_unknown(self, node: int, reason: str) -> None:
        """Store why a node is excluded that is no client; with indices, each node is a client."""
        if self.by_name and node not in self.nodes.values():
            self.unknown[node] = one_line(reason)

    def _remove(self, node: int, reason: str, but: int | None = None) -> None:
        """Exclude the clients that a node was, all but one."""
        for other in [c for c, n in self.nodes.items() if n == node and c != but]:
            self._exclude(other, protocol.DESCRIBE, reason)
            logger.warning("%s is left out: %s", self.name_of(other), reason)
            del self.nodes[other]

    def _exclude(self, client: int, step: str, reason: str) -> None:
        self.failures[client] = reason
        self.log.add(client, step, self.round, reason)

    def _ask_again_later(self, node: int) -> None:
        """Treat a node that failed as new when newcomers are admitted, a few times."""
        self._attempts[node] += 1
        if self._attempts[node] < _ATTEMPTS:
            self._connected.discard(node)


def _given_index(content: RecordDict) -> int | None:
    index = protocol.metrics_of(content).get(protocol.CLIENT_INDEX)
    return index if isinstance(index, int) and index >= 0 else None


def _given_name(content: RecordDict) -> str | None:
    return name_if_readable(
        content.config_records.get(protocol.CONFIG, ConfigRecord()).get(protocol.NAME)
    )
