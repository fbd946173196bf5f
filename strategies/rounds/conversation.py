"""Queries to the clients of a training: before it starts, and between its rounds."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, ConfigRecordValues, RecordDict
from flwr.serverapp import Grid

from fl_core.messages import protocol
from strategies.rounds.ask import Answers, Reading, Request, Traffic
from strategies.rounds.client_registry import ClientRegistry
from strategies.rounds.training import Training


@dataclass(eq=False)
class Conversation:
    """The server's way to ask clients, before training and between rounds."""

    grid: Grid
    config: Mapping[str, ConfigRecordValues]  # entries of every query's config record
    timeout: float  # seconds to wait for the replies to one query
    training: Training = field(default_factory=Training)
    all_train: bool = True  # in each round, not a share of the clients
    # The models that clients were sent in this round and store until they have trained.
    models_at: dict[int, Sequence[protocol.NDArrays]] = field(default_factory=dict)

    @property
    def registry(self) -> ClientRegistry:
        """Return the clients."""
        return self.training.registry

    @property
    def nodes(self) -> dict[int, int]:
        """Return the clients that take part: from client index to node id, ascending."""
        return self.registry.nodes

    def register_clients(self) -> None:
        """Ask every connected node for its client index.

        A ValueError says that two nodes have the same index, a RuntimeError that no node answers.
        """
        found, failures = self._identify_new_nodes(is_start=True)
        if not found:
            reasons = failures or self.registry.failures
            raise RuntimeError("no client answered: " + _first_reason(reasons))
        self.registry.admit(found)

    def admit_newcomers(self) -> list[int]:
        """Ask newly connected nodes, and those that were slow, and return the clients admitted."""
        found, _ = self._identify_new_nodes(is_start=False)
        return self.registry.admit(found)

    def query(
        self,
        action: str,
        read: Callable[[RecordDict], Reading],
        content: RecordDict | Callable[[int], RecordDict] | None = None,
        options: Mapping[str, ConfigRecordValues] | None = None,
        *,
        clients: Collection[int] | None = None,
        traffic: Traffic | None = None,
    ) -> dict[int, Reading]:
        """Return what is read of each client's answer to a query, by client index, ascending.

        A client that fails before training, or when it joins, is excluded: nothing is known about
        it. In a round that asks all clients again, or counts bytes in `traffic`, it stays. A
        RuntimeError says that all clients are asked and fail before training. `content` is what all
        clients, or each one, are sent beside the config record, which has `options`, too. By
        default all `clients` are asked.
        """
        all_asked = clients is None
        content_of = content if callable(content) else lambda _: content or RecordDict()
        answers = self.ask(
            action,
            self.nodes if clients is None else {c: self.nodes[c] for c in sorted(clients)},
            content_of,
            lambda _, reply: read(reply),
            options,
            traffic=traffic,
        )
        stay = self.training.round > 0 and (traffic is not None or all_asked)
        if stay:
            self.training.record_failures(answers.failures, action)
        for client, reason in answers.failures.items() if not stay else ():
            self.registry.leave_out(client, action, reason)
        if all_asked and not answers.values and not stay:
            reason = _first_reason(answers.failures)
            raise RuntimeError(f"every client failed at {action}: {reason}")
        return answers.values

    def ask(
        self,
        action: str,
        nodes: Mapping[int, int],
        content_of: Callable[[int], RecordDict],
        read: Callable[[int, RecordDict], Reading],
        options: Mapping[str, ConfigRecordValues] | None = None,
        *,
        traffic: Traffic | None = None,
        timeout: float | None = None,
    ) -> Answers[Reading]:
        """Send a query to nodes, by client; parameters are as in `query`."""
        training = self.training
        number = training.round
        config = {**self.config, **(options or {}), protocol.SERVER_ROUND: number}
        request = Request(
            protocol.query(action),
            nodes,
            lambda client: RecordDict(
                {**content_of(client), protocol.CONFIG: ConfigRecord(dict(config))}
            ),
            read,
            self.timeout if timeout is None else timeout,
            training.pre_round_traffic if traffic is None else traffic,
            str(number) if number else protocol.PRE_ROUND,
        )
        return request.ask(self.grid)

    def exclude_uncommon_sizes(
        self, action: str, sizes: Mapping[int, int], described: str
    ) -> list[int]:
        """Exclude the clients without the most common size of answer, and return the others.

        `described` has `{}` for a client's size.
        """
        counted = list(sizes.values())
        common = max(sorted(set(counted)), key=counted.count, default=0)
        for client, size in sizes.items():
            if size != common:
                reason = f"{described.format(size)}, the others' {common}"
                self.registry.leave_out(client, action, reason)
        return [client for client, size in sizes.items() if size == common]

    def stored_model_index(self, client: int, model: protocol.NDArrays) -> int | None:
        """Return the index of `model` among those that a client stores in this round, if any."""
        models = self.models_at.get(client, ())
        return next((place for place, sent in enumerate(models) if sent is model), None)

    def _identify_new_nodes(self, *, is_start: bool) -> tuple[dict[int, int], dict[int, str]]:
        """Return the new clients' nodes, and why other new nodes did not answer."""
        new = self.registry.update_connected(self.grid.get_node_ids())
        if not new:
            return {}, {}
        by_node = {node: node for node in new}
        answers = self.ask(
            protocol.DESCRIBE, by_node, lambda _: RecordDict(), lambda _, reply: reply
        )
        values, failures = answers.values, answers.failures
        return self.registry.identify_clients(values, failures, is_start=is_start), failures


def _first_reason(failures: Mapping[int, str]) -> str:
    return next(iter(failures.values()), "no node is connected")
