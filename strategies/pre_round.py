"""The server's half of the pre-round: one query to every client, every reply or a name."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fl_core import protocol

logger = logging.getLogger(__name__)


@dataclass
class Traffic:
    """Payload bytes of all clients together, without headers."""

    down: int = 0
    up: int = 0


def error_text(message: Message) -> str:
    """Return what went wrong at the client, without Flower's wrapping of class names."""
    reason = message.error.reason or f"error code {message.error.code}"
    wrapped = re.fullmatch(r"<class '[^']*'>:<'(.*)'>", reason, re.DOTALL)
    return (wrapped.group(1) if wrapped else reason).strip()


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
            failures.setdefault(client, "no answer in time")
    return dict(sorted(answers.items())), dict(sorted(failures.items()))


@dataclass(eq=False)
class PreRound:
    """A conversation with all clients before training.

    Attributes
    ----------
    grid : Grid
        Flower's way to the nodes.
    config : mapping
        Entries of the config record that each query carries (the seed, say).
    timeout : float
        Seconds to wait for the replies to one query.
    nodes : dict of int
        From client index to node id, ascending: the clients still in.
    failures : dict of str
        From client index to why it is out.
    traffic : Traffic
        Bytes so far.
    """

    grid: Grid
    config: Mapping[str, int | float | str]
    timeout: float
    nodes: dict[int, int] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    traffic: Traffic = field(default_factory=Traffic)

    def call_roll(self) -> None:
        """Ask every connected node for its client index.

        Raises
        ------
        ValueError
            If two nodes claim the same index.
        RuntimeError
            If no node answers.
        """
        nodes = {node: node for node in self.grid.get_node_ids()}
        answers, failures = self._exchange(protocol.DESCRIBE, RecordDict(), nodes)
        for node, reason in failures.items():
            logger.warning("node %d is left out, it did not tell its index: %s", node, reason)
        found: dict[int, int] = {}
        for node, content in answers.items():
            metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
            index = metrics.get(protocol.CLIENT_INDEX)
            if not isinstance(index, int) or index < 0:
                logger.warning("node %d is left out, it says that it is client %s", node, index)
                continue
            if index in found:
                raise ValueError(
                    f"nodes {found[index]} and {node} both say that they are client {index}: give "
                    "each SuperNode a partition-id of its own."
                )
            found[index] = node
        if not found:
            raise RuntimeError("no client answered: " + _first_reason(failures))
        self.nodes = dict(sorted(found.items()))

    def ask(
        self,
        action: str,
        content: RecordDict | None = None,
        options: Mapping[str, int | float | str] | None = None,
        check: Callable[[RecordDict], str | None] = lambda _: None,
    ) -> dict[int, RecordDict]:
        """Send one query to every client still in; those that fail are named and left out.

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

        Returns
        -------
        dict of RecordDict
            Good answers by client index, ascending.

        Raises
        ------
        RuntimeError
            If no client answers.
        """
        asked = {node: client for client, node in self.nodes.items()}
        answers, failures = self._exchange(action, content or RecordDict(), asked, options or {})
        for client, answer in list(answers.items()):
            if wrong := check(answer):
                failures[client] = wrong
                del answers[client]
        for client, reason in sorted(failures.items()):
            self.leave_out(client, action, reason)
        if not answers:
            raise RuntimeError(f"every client failed at {action}: " + _first_reason(failures))
        return answers

    def leave_out(self, client: int, action: str, reason: str) -> None:
        """Go on without `client`, and say why."""
        logger.warning("client %d is left out, its %s failed: %s", client, action, reason)
        self.failures[client] = reason
        del self.nodes[client]

    def _exchange(
        self,
        action: str,
        content: RecordDict,
        asked: Mapping[int, int],
        options: Mapping[str, int | float | str] | None = None,
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        messages = [
            Message(
                RecordDict(
                    {**content, protocol.CONFIG: ConfigRecord({**self.config, **(options or {})})}
                ),
                dst_node_id=node,
                message_type=protocol.query(action),
                group_id="pre-round",
            )
            for node in asked
        ]
        self.traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        replies = self.grid.send_and_receive(messages, timeout=self.timeout)
        answers, failures = sort_replies(asked, replies)
        contents = {client: reply.content for client, reply in answers.items()}
        self.traffic.up += sum(protocol.payload_bytes(c) for c in contents.values())
        return contents, failures


def _first_reason(failures: Mapping[int, str]) -> str:
    return next(iter(failures.values()), "no node is connected")
