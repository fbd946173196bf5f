"""How the server asks clients: one query to each, and every reply or a name."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, ConfigRecordValues, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fl_core import protocol
from fl_core.text import one_line

logger = logging.getLogger(__name__)

_ATTEMPTS = 3  # so often a node is asked to join before it must reconnect
_LONGEST_NAME = 100
_NO_ANSWER = "no answer in time"
# Flower says so, too, if it looks first: messages expire with our deadlines.
_REASONS = {
    ErrorCode.MESSAGE_UNAVAILABLE: _NO_ANSWER,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: _NO_ANSWER,
    ErrorCode.NODE_UNAVAILABLE: "it is no longer connected",
}


@dataclass
class Traffic:
    """Payload bytes of all clients together, without headers."""

    down: int = 0
    up: int = 0


def error_text(message: Message) -> str:
    """Return what went wrong, in a few words and without Flower's wrapping of class names."""
    code = message.error.code
    reason = _REASONS.get(code) or message.error.reason or f"error code {code}"
    wrapped = re.fullmatch(r"<class '[^']*'>:<'(.*)'>", reason, re.DOTALL)
    return one_line(wrapped.group(1) if wrapped else reason)


def sort_replies(
    asked: Mapping[int, int], replies: Iterable[Message]
) -> tuple[dict[int, Message], dict[int, str]]:
    """Tell answers from failures, both by client index in ascending order.

    Parameters
    ----------
    asked : mapping
        From the node ids that were asked to their client indices.
    replies : iterable of Message
        What came back, in any order.

    Returns
    -------
    answers, failures : dict of Message, dict of str
        A client that was asked and did not answer is a failure, too.
    """
    answers: dict[int, Message] = {}
    failures: dict[int, str] = {}
    for reply in replies:
        client = asked.get(reply.metadata.src_node_id)
        if client is None:
            continue
        if reply.has_error():
            failures[client] = error_text(reply)
        else:
            answers[client] = reply
    for client in asked.values():
        if client not in answers:
            failures.setdefault(client, _NO_ANSWER)
    return dict(sorted(answers.items())), dict(sorted(failures.items()))


@dataclass(eq=False)
class Conversation:
    """The server's way to ask clients, before training and between rounds.

    Attributes
    ----------
    grid : Grid
        Flower's way to the nodes.
    config : mapping
        Entries of the config record that each query carries (the seed, say).
    timeout : float
        Seconds to wait for the replies to one query; after that, nodes no longer get it.
    nodes : dict of int
        From client index to node id, ascending: the clients still in.
    by_name : bool
        Whether nodes give a name instead of an index. Names get indices in alphabetical order,
        newcomers' the next ones; a name keeps its index.
    names : dict of str
        From client index to name.
    descriptions : dict of ConfigRecord
        From client index to what else its node said in the roll call.
    failures : dict of str
        From client index to why it is out.
    traffic, training_traffic : Traffic
        Bytes of queries so far: those that find clusters, and those that are part of a round's
        training (IFCA's models).
    server_round : int
        Told to the clients; 0 before training.
    models_at : dict of sequences
        From client to the models that it was sent in this round and keeps until it has trained.
    """

    grid: Grid
    config: Mapping[str, ConfigRecordValues]
    timeout: float
    nodes: dict[int, int] = field(default_factory=dict)
    by_name: bool = False
    names: dict[int, str] = field(default_factory=dict)
    descriptions: dict[int, ConfigRecord] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)
    training_traffic: Traffic = field(default_factory=Traffic)
    server_round: int = 0
    models_at: dict[int, Sequence[protocol.NDArrays]] = field(default_factory=dict)
    _connected: set[int] = field(default_factory=set)
    _attempts: Counter[int] = field(default_factory=Counter)

    def call_roll(self) -> None:
        """Ask every connected node for its client index.

        Of two nodes that claim the same name, the second is left out.

        Raises
        ------
        ValueError
            If two nodes claim the same index.
        RuntimeError
            If no node answers.
        """
        found, failures = self._new_clients(twice_is_an_error=True)
        if not found:
            raise RuntimeError("no client answered: " + _first_reason(failures))
        self.nodes = found

    def go_on_from(self, roll: Conversation) -> None:
        """Take over the clients that answered another conversation's roll call."""
        self.by_name = roll.by_name
        self.nodes = dict(roll.nodes)
        self.failures.update(roll.failures)
        self._connected = set(roll._connected)
        self._attempts = Counter(roll._attempts)

    def connected(self) -> list[int]:
        """Return the clients whose nodes were connected when one looked last."""
        return [client for client, node in self.nodes.items() if node in self._connected]

    def admit_newcomers(self) -> list[int]:
        """Ask nodes that were not connected before for their index, and return those let in.

        A client that was left out is a newcomer, too, when it has reconnected, and once or twice
        more while it stays connected: it may have been slow. An index that another node has is
        refused, unless that node is gone.
        """
        found, _ = self._new_clients(twice_is_an_error=False)
        newcomers = []
        for client, node in found.items():
            if client not in self.nodes:
                newcomers.append(client)
            elif self.nodes[client] != node and self.nodes[client] in self._connected:
                logger.warning(
                    "node %d is left out, it says that it is %s, which node %d is already",
                    *(node, self.name_of(client), self.nodes[client]),
                )
                self._ask_again_later(node)
                continue
            for other in [c for c, n in self.nodes.items() if n == node and c != client]:
                self.failures[other] = f"its node says now that it is {self.name_of(client)}"
                logger.warning("%s is left out: %s", self.name_of(other), self.failures[other])
                del self.nodes[other]
            self.failures.pop(client, None)
            self.nodes[client] = node
        self.nodes = dict(sorted(self.nodes.items()))
        return newcomers

    def name_of(self, client: int) -> str:
        """Return how to call a client in a message to people."""
        return self.names.get(client, f"client {client}")

    def _new_clients(self, *, twice_is_an_error: bool) -> tuple[dict[int, int], dict[int, str]]:
        connected = set(self.grid.get_node_ids())
        new, self._connected = connected - self._connected, connected
        if not new:
            return {}, {}
        nodes = {node: node for node in sorted(new)}
        answers, failures = self._exchange(protocol.DESCRIBE, RecordDict(), nodes, {}, self.traffic)
        for node, reason in failures.items():
            logger.warning("node %d is left out, it could not take part: %s", node, reason)
            self._ask_again_later(node)
        found: dict[int, int] = {}
        for node, index in self._indices(answers).items():
            if index is None:
                logger.warning(
                    "node %d is left out, it gave no %s that can be used",
                    *(node, "name" if self.by_name else "index"),
                )
                continue
            if index in found:
                problem = (
                    f"nodes {found[index]} and {node} both say that they are "
                    f"{self.name_of(index)}: give each SuperNode a "
                    f"{'name' if self.by_name else 'partition-id'} of its own."
                )
                if twice_is_an_error and not self.by_name:
                    raise ValueError(problem)
                logger.warning("%s Node %d is left out.", problem, node)
                continue
            found[index] = node
            said = answers[node].config_records
            self.descriptions[index] = said.get(protocol.CONFIG, ConfigRecord())
        return dict(sorted(found.items())), failures

    def _indices(self, answers: Mapping[int, RecordDict]) -> dict[int, int | None]:
        """Return which client each node says it is; None: it does not say."""
        if not self.by_name:
            return {node: _given_index(content) for node, content in answers.items()}
        given = {node: _given_name(content) for node, content in answers.items()}
        for fresh in sorted(set(filter(None, given.values())) - set(self.names.values())):
            self.names[len(self.names)] = fresh
        index_of = {name: client for client, name in self.names.items()}
        return {node: None if name is None else index_of[name] for node, name in given.items()}

    def _ask_again_later(self, node: int) -> None:
        """Take a node that failed for a new one when newcomers are let in, but not for ever."""
        self._attempts[node] += 1
        if self._attempts[node] < _ATTEMPTS:
            self._connected.discard(node)

    def ask(
        self,
        action: str,
        content: RecordDict | None = None,
        options: Mapping[str, ConfigRecordValues] | None = None,
        check: Callable[[RecordDict], str | None] = lambda _: None,
        *,
        clients: Collection[int] | None = None,
        for_training: bool = False,
    ) -> dict[int, RecordDict]:
        """Send one query; those that fail are named.

        In the pre-round and when it joins, a client that fails is left out: nothing is known about
        it. Later, in a round that asks all clients again, it stays in as it was.

        Parameters
        ----------
        action : str
            The query's name.
        content : RecordDict, optional
            What all of them are sent, next to the config record.
        options : mapping, optional
            More entries of the config record.
        check : callable
            Says what is wrong with an answer, or None.
        clients : collection of int, optional
            Who is asked; all clients still in by default.
        for_training : bool
            Count the bytes as the round's training, in which the asked stay in even if they fail.

        Returns
        -------
        dict of RecordDict
            Good answers by client index, ascending.

        Raises
        ------
        RuntimeError
            If no client answers in the pre-round.
        """
        everybody = clients is None
        traffic = self.training_traffic if for_training else self.traffic
        chosen = self.nodes if clients is None else sorted(clients)
        asked = {self.nodes[client]: client for client in chosen}
        answers, failures = self._exchange(
            action, content or RecordDict(), asked, options or {}, traffic
        )
        for client, answer in list(answers.items()):
            if wrong := _problem(answer, check):
                failures[client] = wrong
                del answers[client]
        stay = self.server_round > 0 and (for_training or everybody)
        for client, reason in sorted(failures.items()):
            if stay:
                logger.warning(
                    "%s failed at %s in round %d: %s",
                    *(self.name_of(client), action, self.server_round, reason),
                )
            else:
                self.leave_out(client, action, reason)
        if everybody and not answers and not stay:
            raise RuntimeError(f"every client failed at {action}: " + _first_reason(failures))
        return answers

    def keep_common_size(self, action: str, sizes: Mapping[int, int], described: str) -> list[int]:
        """Leave out, and name, clients whose size is not the most common one; return the others.

        Parameters
        ----------
        action : str
            The query they answered.
        sizes : mapping of int
            By client index.
        described : str
            How to say a client's size, with `{}` for the number.
        """
        counted = list(sizes.values())
        common = max(sorted(set(counted)), key=counted.count, default=0)
        for client, size in sizes.items():
            if size != common:
                self.leave_out(client, action, f"{described.format(size)}, the others' {common}")
        return [client for client, size in sizes.items() if size == common]

    def leave_out(self, client: int, action: str, reason: str) -> None:
        """Go on without `client`, and say why."""
        reason = one_line(reason)
        logger.warning("%s is left out, its %s failed: %s", self.name_of(client), action, reason)
        self.failures[client] = reason
        self._ask_again_later(self.nodes.pop(client))

    def postpone(self, client: int, reason: str) -> None:
        """Leave a client out until the next round, in which it is a newcomer."""
        self.failures[client] = reason
        self._connected.discard(self.nodes.pop(client))

    def _exchange(
        self,
        action: str,
        content: RecordDict,
        asked: Mapping[int, int],
        options: Mapping[str, ConfigRecordValues],
        traffic: Traffic,
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        config = {**self.config, protocol.SERVER_ROUND: self.server_round, **options}
        messages = [
            Message(
                RecordDict({**content, protocol.CONFIG: ConfigRecord(dict(config))}),
                dst_node_id=node,
                message_type=protocol.query(action),
                group_id=str(self.server_round) if self.server_round else "pre-round",
                ttl=self.timeout,
            )
            for node in asked
        ]
        traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        answers, failures = sort_replies(asked, replies)
        contents = {client: reply.content for client, reply in answers.items()}
        traffic.up += sum(protocol.payload_bytes(c) for c in contents.values())
        return contents, failures


def _given_index(content: RecordDict) -> int | None:
    index = protocol.metrics_of(content).get(protocol.CLIENT_INDEX)
    return index if isinstance(index, int) and index >= 0 else None


def _given_name(content: RecordDict) -> str | None:
    """Return the name by which a node wants to be called, if it gives one that can be printed."""
    name = content.config_records.get(protocol.CONFIG, ConfigRecord()).get(protocol.NAME)
    if isinstance(name, str) and name.isprintable() and 0 < len(name) <= _LONGEST_NAME:
        return name
    return None


def _problem(answer: RecordDict, check: Callable[[RecordDict], str | None]) -> str | None:
    """Return what `check` says; an answer that it cannot even read is a problem, too."""
    try:
        return check(answer)
    except Exception as error:  # bytes from the network may be anything
        return f"its answer cannot be read: {one_line(str(error))}"


def _first_reason(failures: Mapping[int, str]) -> str:
    return next(iter(failures.values()), "no node is connected")
