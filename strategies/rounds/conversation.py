"""Queries to the clients of a training: before it starts, and between its rounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, ConfigRecordValues, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies.rounds.ask import Answers, Reading, Request, Traffic, as_it_is
from strategies.rounds.client_registry import Roster
from strategies.rounds.training import Training


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
    training : Training
        Its clients are asked, its round is sent, and its traffic counts the bytes.
    models_at : dict of sequences
        From client to the models that it was sent in this round and keeps until it has trained.
    """

    grid: Grid
    config: Mapping[str, ConfigRecordValues]
    timeout: float
    training: Training = field(default_factory=Training)
    models_at: dict[int, Sequence[protocol.NDArrays]] = field(default_factory=dict)

    @property
    def roster(self) -> Roster:
        """Return who takes part."""
        return self.training.roster

    @property
    def nodes(self) -> dict[int, int]:
        """Return the clients still in: from client index to node id, ascending."""
        return self.roster.nodes

    def register_clients(self) -> None:
        """Ask every connected node for its client index.

        Of two nodes that claim the same name, the second is left out.

        Raises
        ------
        ValueError
            If two nodes claim the same index.
        RuntimeError
            If no node answers.
        """
        found, failures = self._recognise(twice_is_an_error=True)
        if not found:
            reasons = failures or self.roster.failures
            raise RuntimeError("no client answered: " + _first_reason(reasons))
        self.roster.admit(found)

    def admit_newcomers(self) -> list[int]:
        """Ask nodes that were not connected before for their index, and return those let in.

        A client that was left out is a newcomer, too, when it has reconnected, and once or twice
        more while it stays connected: it may have been slow.
        """
        found, _ = self._recognise(twice_is_an_error=False)
        return self.roster.admit(found)

    def query(
        self,
        action: str,
        read: Callable[[RecordDict], Reading],
        content: RecordDict | Callable[[int], RecordDict] | None = None,
        options: Mapping[str, ConfigRecordValues] | None = None,
        *,
        clients: Collection[int] | None = None,
        for_training: bool = False,
    ) -> dict[int, Reading]:
        """Return what is read of each client's answer to a query; the clients that fail are named.

        In the pre-round and when it joins, a client that fails is left out: nothing is known about
        it. Later, in a round that asks all clients again, it stays in as it was.

        Parameters
        ----------
        action : str
            The query's name.
        read : callable
            From an answer to its value. A ValueError says what is wrong with the answer.
        content : RecordDict or callable, optional
            What all of them are sent, or from client to what it is sent, next to the config record.
        options : mapping, optional
            More entries of the config record.
        clients : collection of int, optional
            Who is asked; all clients still in by default.
        for_training : bool
            Count the bytes as the round's training, in which the asked stay in even if they fail.

        Returns
        -------
        dict
            By client index, ascending.

        Raises
        ------
        RuntimeError
            If no client answers in the pre-round.
        """
        everybody = clients is None
        content_of = content if callable(content) else lambda _: content or RecordDict()
        answers = self.ask(
            action,
            self.nodes if clients is None else sorted(clients),
            content_of,
            lambda _, reply: read(reply),
            options,
            for_training=for_training,
        )
        stay = self.training.round > 0 and (for_training or everybody)
        if stay:
            self.training.warn(answers.failures, failed_at(action))
        for client, reason in answers.failures.items() if not stay else ():
            self.roster.leave_out(client, action, reason)
        if everybody and not answers.values and not stay:
            reason = _first_reason(answers.failures)
            raise RuntimeError(f"every client failed at {action}: {reason}")
        return answers.values

    def ask(
        self,
        action: str,
        clients: Collection[int],
        content_of: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
        options: Mapping[str, ConfigRecordValues] | None = None,
        *,
        for_training: bool = False,
        timeout: float | None = None,
    ) -> Answers[Reading]:
        """Send some clients a query; what follows for those that fail is the caller's decision.

        Parameters are as in `query`, but `read` is given the client, too; `timeout` is the
        conversation's by default.
        """
        training = self.training
        traffic = training.train_traffic if for_training else training.pre_round_traffic
        nodes = {client: self.nodes[client] for client in clients}
        config = {**self.config, **(options or {})}
        return self._ask(action, nodes, content_of, read, config, traffic, timeout)

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

    def _recognise(self, *, twice_is_an_error: bool) -> tuple[dict[int, int], dict[int, str]]:
        """Return the new clients' nodes, and why other new nodes did not answer."""
        new = self.roster.look(self.grid.get_node_ids())
        if not new:
            return {}, {}
        answers = self._ask(
            protocol.DESCRIBE,
            {node: node for node in new},
            lambda _: RecordDict(),
            as_it_is,
            self.config,
            self.training.pre_round_traffic,
        )
        found = self.roster.recognise(
            answers.values, answers.failures, twice_is_an_error=twice_is_an_error
        )
        return found, answers.failures

    def _ask(
        self,
        action: str,
        nodes: Mapping[int, int],
        content_of: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
        config: Mapping[str, ConfigRecordValues],
        traffic: Traffic,
        timeout: float | None = None,
    ) -> Answers[Reading]:
        number = self.training.round
        config = {**config, protocol.SERVER_ROUND: number}
        request = Request(
            protocol.query(action),
            nodes,
            lambda client: RecordDict(
                {**content_of(client), protocol.CONFIG: ConfigRecord(dict(config))}
            ),
            read,
            self.timeout if timeout is None else timeout,
            traffic,
            str(number) if number else protocol.PRE_ROUND,
        )
        return request.ask(self.grid)


def failed_at(action: str) -> str:
    """Return the sentence of `Training.warn` for clients that failed at a query."""
    return f"%s failed at {action} in round %d: %s"


def _first_reason(failures: Mapping[int, str]) -> str:
    return next(iter(failures.values()), "no node is connected")
