"""How the server asks clients: one query to each, and every reply or a name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, Message, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from fl_core.text import one_line
from strategies.rounds.client_registry import Roster
from strategies.rounds.replies import sort_replies

logger = logging.getLogger(__name__)


@dataclass
class Traffic:
    """Payload bytes of all clients together, without headers."""

    down: int = 0
    up: int = 0


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
    roster : Roster
        Who is asked.
    traffic, training_traffic : Traffic
        Bytes of queries so far: those that find clusters, and those that are part of a round's
        training (IFCA's models).
    server_round : int
        Told to the clients; 0 before training.
    models_at : dict of sequences
        From client to the models that it was sent in this round and keeps until it has trained.
    private_of : callable
        From client to the records that make a shared model whole for it (`Training.private_of`).
    private : mapping of arrays
        Those layers: models that are sent do not have them.
    """

    grid: Grid
    config: Mapping[str, ConfigRecordValues]
    timeout: float
    roster: Roster = field(default_factory=Roster)
    traffic: Traffic = field(default_factory=Traffic)
    training_traffic: Traffic = field(default_factory=Traffic)
    server_round: int = 0
    models_at: dict[int, Sequence[protocol.NDArrays]] = field(default_factory=dict)
    private_of: Callable[[int], Mapping[str, ArrayRecord]] = lambda client: {}
    private: protocol.NDArrays = field(default_factory=dict)

    @property
    def nodes(self) -> dict[int, int]:
        """Return the clients still in: from client index to node id, ascending."""
        return self.roster.nodes

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
        found, failures = self._meet(twice_is_an_error=True)
        if not found:
            reasons = failures or self.roster.failures
            raise RuntimeError("no client answered: " + _first_reason(reasons))
        self.roster.admit(found)

    def admit_newcomers(self) -> list[int]:
        """Ask nodes that were not connected before for their index, and return those let in.

        A client that was left out is a newcomer, too, when it has reconnected, and once or twice
        more while it stays connected: it may have been slow.
        """
        found, _ = self._meet(twice_is_an_error=False)
        return self.roster.admit(found)

    def ask(
        self,
        action: str,
        content: RecordDict | Callable[[int], RecordDict] | None = None,
        options: Mapping[str, ConfigRecordValues] | None = None,
        check: Callable[[RecordDict], str | None] = lambda _: None,
        *,
        clients: Collection[int] | None = None,
        for_training: bool = False,
        timeout: float | None = None,
    ) -> dict[int, RecordDict]:
        """Send one query; those that fail are named.

        In the pre-round and when it joins, a client that fails is left out: nothing is known about
        it. Later, in a round that asks all clients again, it stays in as it was.

        Parameters
        ----------
        action : str
            The query's name.
        content : RecordDict or callable, optional
            What all of them are sent, or from client to what it is sent, next to the config record.
        options : mapping, optional
            More entries of the config record.
        check : callable
            Says what is wrong with an answer, or None.
        clients : collection of int, optional
            Who is asked; all clients still in by default.
        for_training : bool
            Count the bytes as the round's training, in which the asked stay in even if they fail.
        timeout : float, optional
            Seconds to wait for the replies; the conversation's by default.

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
        content_of = content if callable(content) else lambda _: content or RecordDict()
        answers, failures = self._exchange(
            action, content_of, asked, options or {}, traffic, timeout
        )
        for client, answer in list(answers.items()):
            if wrong := _problem(answer, check):
                failures[client] = wrong
                del answers[client]
        stay = self.server_round > 0 and (for_training or everybody)
        for client, reason in sorted(failures.items()):
            if stay:
                self.warn(client, action, reason)
            else:
                self.roster.leave_out(client, action, reason)
        if everybody and not answers and not stay:
            raise RuntimeError(f"every client failed at {action}: " + _first_reason(failures))
        return answers

    def warn(self, client: int, action: str, reason: str) -> None:
        """Log that a client failed at a query of the present round, and stays in."""
        logger.warning(
            "%s failed at %s in round %d: %s",
            *(self.roster.name_of(client), action, self.server_round, one_line(reason)),
        )

    def keep_common_size(self, action: str, sizes: Mapping[int, int], described: str) -> list[int]:
        """Leave out, and name, clients whose size is not the most common one; return the others.

        `action` is the query they answered; `described` says a client's size, `{}` is the number.
        """
        counted = list(sizes.values())
        common = max(sorted(set(counted)), key=counted.count, default=0)
        for client, size in sizes.items():
            if size != common:
                reason = f"{described.format(size)}, the others' {common}"
                self.roster.leave_out(client, action, reason)
        return [client for client, size in sizes.items() if size == common]

    def place_of_kept(self, client: int, model: protocol.NDArrays) -> int | None:
        """Return where `model` is among those that a client was sent in this round, if it is."""
        models = self.models_at.get(client, ())
        return next((place for place, sent in enumerate(models) if sent is model), None)

    def _meet(self, *, twice_is_an_error: bool) -> tuple[dict[int, int], dict[int, str]]:
        """Return the new clients' nodes, and why other new nodes did not answer."""
        new = self.roster.look(self.grid.get_node_ids())
        if not new:
            return {}, {}
        asked = {node: node for node in new}
        answers, failures = self._exchange(
            protocol.DESCRIBE, lambda _: RecordDict(), asked, {}, self.traffic
        )
        found = self.roster.recognise(answers, failures, twice_is_an_error=twice_is_an_error)
        return found, failures

    def _exchange(
        self,
        action: str,
        content_of: Callable[[int], RecordDict],
        asked: Mapping[int, int],
        options: Mapping[str, ConfigRecordValues],
        traffic: Traffic,
        timeout: float | None = None,
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        timeout = self.timeout if timeout is None else timeout
        config = {**self.config, protocol.SERVER_ROUND: self.server_round, **options}
        messages = [
            Message(
                RecordDict({**content_of(client), protocol.CONFIG: ConfigRecord(dict(config))}),
                dst_node_id=node,
                message_type=protocol.query(action),
                group_id=str(self.server_round) if self.server_round else protocol.PRE_ROUND,
                ttl=timeout,
            )
            for node, client in asked.items()
        ]
        traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        replies = self.grid.send_and_receive(messages, timeout=timeout)
        answers, failures = sort_replies(asked, replies)
        traffic.up += sum(protocol.payload_bytes(answer) for answer in answers.values())
        return answers, failures


def _problem(answer: RecordDict, check: Callable[[RecordDict], str | None]) -> str | None:
    """Check an answer; one that `check` cannot even read is a problem, too."""
    try:
        return check(answer)
    except Exception as error:  # bytes from the network may be anything
        return f"its answer cannot be read: {one_line(str(error))}"


def _first_reason(failures: Mapping[int, str]) -> str:
    return next(iter(failures.values()), "no node is connected")
