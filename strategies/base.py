"""A strategy is a clustering times an aggregation: the one Flower Strategy all others are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    ConfigRecordValues,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from fl_core import protocol
from fl_core.protocol import NDArrays
from fl_core.text import one_line
from strategies.aggregation import Aggregation, ClusterMean, carry_over
from strategies.clustering import Clustering
from strategies.conversation import Conversation, Traffic, sort_replies
from strategies.rounds import Clusters, Round, Update

logger = logging.getLogger(__name__)

_TRAFFICS = ("pre_round_traffic", "train_traffic", "evaluate_traffic", "server_traffic")
_LEFT_OUT = "%s failed in round %d and is left out of it: %s"
_UNTESTED = "%s could not be tested in round %d: %s"
_MOST_GROWTH = 1e3  # of a model's largest number, or of 1 if that is more, in a round
_MOST_EXAMPLES = 1e12  # more is no number of samples, and would drown everybody else's
ACCURACY_PER_CLIENT = "accuracy-per-client"


@dataclass
class RoundReport:
    """What is known after one round.

    Attributes
    ----------
    round, num_rounds : int
        From 1.
    train_loss : float
        Mean over the clients that trained; NaN if none did.
    accuracies : dict of float
        Test accuracy by client index; empty in rounds without evaluation.
    losses : dict of float
        Test loss by client index, of those that sent one.
    clusters : dict of int
        The cluster of each client after the round's training.
    """

    round: int
    num_rounds: int
    train_loss: float = float("nan")
    accuracies: dict[int, float] = field(default_factory=dict)
    losses: dict[int, float] = field(default_factory=dict)
    clusters: dict[int, int] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Return the mean over clients (spec section 6); NaN without evaluation."""
        return float(np.mean(list(self.accuracies.values()))) if self.accuracies else float("nan")

    @property
    def loss(self) -> float:
        """Return the mean test loss over clients; NaN without any."""
        return float(np.mean(list(self.losses.values()))) if self.losses else float("nan")


@dataclass
class Seconds:
    """Wall-clock time spent."""

    pre_round: float = 0.0
    train: float = 0.0
    evaluate: float = 0.0


class Options(TypedDict, total=False):
    """Keyword arguments that every strategy takes; see `ClusteredStrategy`."""

    fraction_train: float
    evaluate_every: int
    seed: int
    on_round: Callable[[RoundReport], None]
    pre_round_timeout: float | None
    roll: Conversation | None


class ClusteredStrategy(Strategy):
    """Train one model per cluster, or per client: any clustering times any aggregation.

    Works in any Flower app whose ClientApp answers the queries of the clustering
    (`clients.handlers`) and trains and evaluates the usual way: an ArrayRecord `arrays` and a
    MetricRecord `metrics` with `num-examples`, and `accuracy` when it evaluates.

    Nodes that connect later are asked for their index at the beginning of a round and placed into
    a cluster, as the clustering does it.

    Parameters
    ----------
    clustering : Clustering
        Asked before the first round, and around each training.
    aggregation : Aggregation
        From clients' models to the next models.
    fraction_train : float
        Share of the clients that train in a round, in (0, 1]; at least one does.
    evaluate_every : int
        Clients test their model every so many rounds, and after the last.
    seed : int
        Draws the participants of each round.
    on_round : callable, optional
        Called with a RoundReport after each round.
    pre_round_timeout : float, optional
        Seconds to wait for the answers to each query that finds clusters; by default, as long as
        for training.
    roll : Conversation, optional
        In which the clients have told their indices already: they are not asked again, and the
        names of newcomers are added to its names.

    Attributes
    ----------
    clusters : Clusters
        Known after the pre-round; as of the last round.
    model_of_client : dict of int
        From client to the number under which the result holds its model: its cluster, or, where
        the aggregation gives every client its own, its place.
    reports : list of RoundReport
        One for each round so far.
    failures : dict of str
        Clients that failed in the pre-round, and why: they take no part.
    names : dict of str
        From client to its name, of those that gave one.
    pre_round_traffic, train_traffic, evaluate_traffic : Traffic
        Payload bytes of all clients together: for finding clusters, training and evaluation.
    server_traffic : Traffic
        Payload bytes between servers (MT-HFL's LPSs and GPS), all LPSs together.
    seconds : Seconds
        Wall-clock time of pre-round, training and evaluation.
    """

    def __init__(
        self,
        clustering: Clustering,
        aggregation: Aggregation | None = None,
        *,
        fraction_train: float = 1.0,
        evaluate_every: int = 1,
        seed: int = 0,
        on_round: Callable[[RoundReport], None] = lambda report: None,
        pre_round_timeout: float | None = None,
        roll: Conversation | None = None,
    ) -> None:
        self.clustering = clustering
        self.aggregation = aggregation or ClusterMean()
        self.fraction_train = fraction_train
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.on_round = on_round
        self.pre_round_timeout = pre_round_timeout
        self.roll = roll
        self.names: dict[int, str] = {} if roll is None else roll.names
        self._checkpoint: Mapping[str, Any] | None = None
        self._forget()

    def _forget(self) -> None:
        """Start afresh, so that one strategy object can be started again."""
        self.reports: list[RoundReport] = []
        self.failures: dict[int, str] = {}
        self.pre_round_traffic = Traffic()
        self.train_traffic = Traffic()
        self.evaluate_traffic = Traffic()
        self.server_traffic = Traffic()
        self.seconds = Seconds()
        self.clusters = Clusters({})
        self.model_of_client: dict[int, int] = {}
        self._models: list[NDArrays] = []
        self._records: list[ArrayRecord] = []
        self._num_examples: dict[int, float] = {}
        self._asked: dict[int, int] = {}
        self._sent: dict[int, NDArrays] = {}
        self._participants: tuple[int, ...] = ()
        self._num_rounds = 0
        self._done = 0
        self._timeout = 0.0
        self._started = 0.0

    def summary(self) -> None:
        """Log what the strategy is made of."""
        logger.info("%s × %s", self.clustering, self.aggregation)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Find the clusters, then run Flower's rounds.

        Parameters
        ----------
        initial_arrays : ArrayRecord
            One model: every cluster starts from it, unless the clustering draws models of its own.
        grid, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
            As in Flower. Queries carry the scalars of `train_config`, too.

        Returns
        -------
        Result
            `arrays` holds every model under `number/parameter` names, see `model_of_client`
            (`fl_core.protocol.unpack_models`).

        Raises
        ------
        ValueError, RuntimeError
            As the clustering says; RuntimeError if all clients fail in a round.
        """
        self._forget()
        self._num_rounds, self._timeout = num_rounds, timeout
        checkpoint, self._checkpoint = self._checkpoint, None
        if checkpoint is not None:
            self.names.update(checkpoint["names"])
        started = time.perf_counter()
        self._begin_conversation(grid, train_config or ConfigRecord())
        if checkpoint is None:
            self._find_clusters(initial_arrays)
            self.seconds.pre_round = time.perf_counter() - started
        else:
            self._recall(checkpoint)
        done = self._done
        result = super().start(
            grid,
            self._packed(),
            num_rounds - done,
            timeout,
            train_config,
            evaluate_config,
            evaluate_fn and (lambda number, arrays: evaluate_fn(number + done, arrays)),
        )
        for metrics in (
            result.train_metrics_clientapp,
            result.evaluate_metrics_clientapp,
            result.evaluate_metrics_serverapp,
        ):
            later = {number + done: record for number, record in metrics.items()}
            metrics.clear()
            metrics.update(later)
        result.arrays = self._packed()  # clusters may have changed after the last training
        return result

    def checkpoint(self) -> dict[str, Any]:
        """Return all that a round leaves for the next one, for `fl_core.checkpoint`.

        To be called in `on_round`, or after `start`.
        """
        unique = {id(model): model for model in (self._initial, *self._models)}
        places = {identity: place for place, identity in enumerate(unique)}
        return {
            "round": len(self.reports),
            "models": list(unique.values()),
            "model-numbers": [places[id(model)] for model in self._models],
            "model-of-client": dict(self.model_of_client),
            "clusters": dict(vars(self.clusters)),
            "clustering": self.clustering.memory(),
            "reports": [dict(vars(report)) for report in self.reports],
            "failures": dict(self.failures),
            "names": dict(self.names),
            "num-examples": dict(self._num_examples),
            "participants": self._participants,
            "seconds": dict(vars(self.seconds)),
            **{name: dict(vars(getattr(self, name))) for name in _TRAFFICS},
        }

    def resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Let the next `start` go on after the round of `checkpoint`.

        With the same clients and arguments, the models in the end are those of a run without an
        interruption, to the last bit. Clients that have connected since are newcomers.

        Parameters
        ----------
        checkpoint : mapping
            From `checkpoint`, of a strategy made in the same way.
        """
        self._checkpoint = checkpoint

    def hand_out_models(self, grid: Grid, config: ConfigRecord) -> dict[int, str]:
        """Send each client the model that is its own in the end, to be kept (`keep_model`).

        Parameters
        ----------
        grid : Grid
            As in `start`, which must have ended.
        config : ConfigRecord
            Entries of the messages' config records; the client's cluster is added.

        Returns
        -------
        dict of str
            From client to why it did not keep its model, of those that did not.
        """
        clients = list(self._conversation.nodes)
        action = protocol.query(protocol.KEEP_MODEL)
        messages = self._messages(
            action,
            self._num_rounds,
            config,
            clients,
            Traffic(),
            lambda client: {protocol.CLUSTER: self.clusters.of_client[client]},
        )
        replies = grid.send_and_receive(messages, timeout=self._timeout)
        answers, failures = sort_replies(self._asked, replies)
        for client, answer in answers.items():
            if protocol.metrics_of(answer.content).get(protocol.KEPT) != 1:
                failures[client] = "it has no model-path"
        absent = (set(self.clusters.of_client) | set(self.names)) - set(clients)
        failures |= {c: self.failures.get(c, "it is not connected") for c in absent}
        return dict(sorted(failures.items()))

    def _begin_conversation(self, grid: Grid, config: ConfigRecord) -> None:
        waiting = self._timeout if self.pre_round_timeout is None else self.pre_round_timeout
        self._conversation = Conversation(
            grid,
            config,
            waiting,
            names=self.names,
            failures=self.failures,
            traffic=self.pre_round_traffic,
            training_traffic=self.train_traffic,
        )
        if self.roll is None:
            self._conversation.call_roll()
        else:
            self._conversation.go_on_from(self.roll)

    def _find_clusters(self, initial: ArrayRecord) -> None:
        self.clusters = self.clustering.find(self._conversation)
        self._initial = protocol.to_arrays(initial)
        models = self.clustering.first_models(self._initial, self.clusters.count)
        self.model_of_client = self._numbers(self.clusters)
        if self.aggregation.per_client:
            models = [models[cluster] for cluster in self.clusters.of_client.values()]
        self._hold(models)

    def _recall(self, checkpoint: Mapping[str, Any]) -> None:
        """Take over a checkpoint, and find the clients again."""
        models = checkpoint["models"]
        self._initial = models[0]
        self._hold([models[place] for place in checkpoint["model-numbers"]])
        self.model_of_client = dict(checkpoint["model-of-client"])
        self.clusters = Clusters(**checkpoint["clusters"])
        self.clustering.recall(checkpoint["clustering"])
        self.reports = [RoundReport(**report) for report in checkpoint["reports"]]
        self._num_examples = dict(checkpoint["num-examples"])
        self._participants = checkpoint["participants"]
        self.seconds = Seconds(**checkpoint["seconds"])
        for name in _TRAFFICS:
            vars(getattr(self, name)).update(checkpoint[name])
        self._done = checkpoint["round"]
        conversation = self._conversation
        conversation.server_round = self._done
        for client, reason in checkpoint["failures"].items():
            if client not in conversation.nodes:
                self.failures[client] = reason
        # Clients that had failed are newcomers once more, and so are those that came since.
        strangers = [
            client for client in conversation.nodes if client not in self.clusters.of_client
        ]
        for client in strangers:
            reason = checkpoint["failures"].get(client, "it came after the checkpoint")
            conversation.postpone(client, reason)

    def _numbers(self, clusters: Clusters) -> dict[int, int]:
        """Return which of the models each client holds."""
        if self.aggregation.per_client:
            return {client: number for number, client in enumerate(clusters.of_client)}
        return dict(clusters.of_client)

    def _hold(self, models: list[NDArrays]) -> None:
        """Keep models and, of each different one, the record that is sent."""
        known = {id(m): record for m, record in zip(self._models, self._records, strict=True)}
        for model in models:
            if id(model) not in known:
                known[id(model)] = protocol.to_record(model)
        self._models = models
        self._records = [known[id(model)] for model in models]

    def _packed(self) -> ArrayRecord:
        return protocol.pack_models(self._records)

    def _regroup(self, clusters: Clusters) -> None:
        """Go over to other clusters, and give each the model it starts with."""
        clusters = clusters.with_everybody(list(self._conversation.nodes))
        if clusters is self.clusters:
            return
        held = {client: self._models[i] for client, i in self.model_of_client.items()}
        self.clusters, self.model_of_client = clusters, self._numbers(clusters)
        if self.aggregation.per_client:
            members = [
                [client] if client in held else clusters.members(cluster)
                for client, cluster in clusters.of_client.items()
            ]
            self._hold(carry_over(held, members, self._initial))
        elif self.clustering.keeps_models:
            missing = clusters.count - len(self._models)
            self._hold([*self._models, *[self._initial] * missing])
        else:
            members = [clusters.members(cluster) for cluster in range(clusters.count)]
            self._hold(carry_over(held, members, self._initial))

    def _state(self, participants: Iterable[int] = (), updates: Iterable[Update] = ()) -> Round:
        return Round(
            number=self._conversation.server_round,
            clusters=self.clusters,
            models=self._models,
            updates=tuple(updates),
            num_examples=self._num_examples,
            participants=tuple(participants),
            per_client=self.aggregation.per_client,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let newcomers in, then send this round's participants their own model only."""
        server_round += self._done
        self._started = time.perf_counter()
        self.reports.append(RoundReport(server_round, self._num_rounds))
        conversation = self._conversation
        conversation.server_round = server_round
        if newcomers := conversation.admit_newcomers():
            self._regroup(self.clustering.place(newcomers, self.clusters, conversation))
        clients = conversation.connected() or list(conversation.nodes)
        if not clients:
            raise RuntimeError(
                "no client is left to train: start those that are missing, then resume the run"
            )
        for client in sorted(set(conversation.nodes) - set(clients)):
            self._warn(client, "it is not connected")
        count = max(1, round(self.fraction_train * len(clients)))
        drawn = np.random.default_rng([self.seed, server_round, 0xDEA1]).choice(
            clients, size=count, replace=False
        )
        participants = sorted(drawn.tolist())
        state = self._state(participants)
        self._regroup(self.clustering.before_training(state, conversation))
        participants = [client for client in participants if client in conversation.nodes]
        self._participants = tuple(participants)
        messages = self._messages(
            protocol.TRAIN,
            server_round,
            config,
            participants,
            self.train_traffic,
            self.clustering.told_for_training,
        )
        conversation.models_at.clear()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Combine the models that came back; a client whose model is unusable is named.

        Raises
        ------
        RuntimeError
            If all clients took part and none sent a usable model.
        """
        server_round += self._done
        answers = self._collect(replies, self.train_traffic)
        updates, losses = [], []
        for client, content in answers.items():
            cluster = self.clusters.of_client[client]
            try:
                updates.append(_read_update(client, cluster, content, self._sent[client]))
            except Exception as error:  # bytes from the network may be anything
                self._warn(client, str(error))
                continue
            losses.append(protocol.number(content.metric_records[protocol.METRICS], protocol.LOSS))
        if not updates and set(self._participants) >= set(self._conversation.nodes):
            raise RuntimeError(f"no client sent a usable model in round {server_round}.")
        known = [loss for loss in losses if loss is not None]
        self.reports[-1].train_loss = float(np.mean(known)) if known else float("nan")
        if updates:
            self._combine(updates)
        else:
            logger.warning("round %d is lost: no participant sent a usable model", server_round)
        self.reports[-1].clusters = dict(self.clusters.of_client)
        self.seconds.train += time.perf_counter() - self._started
        return self._packed(), MetricRecord(
            {protocol.LOSS: self.reports[-1].train_loss, "num-clients": len(updates)}
        )

    def _combine(self, updates: list[Update]) -> None:
        """Let the clustering look at the updates, then aggregate them."""
        self._num_examples.update({u.client: u.num_examples for u in updates})
        participants = [u.client for u in updates]
        self._regroup(self.clustering.after_training(self._state(participants, updates)))
        of_client = self.clusters.of_client
        state = self._state(
            participants, [replace(u, cluster=of_client[u.client]) for u in updates]
        )
        self._hold(self.aggregation(state))
        sent = self.aggregation.bytes_between_servers(state)
        self.server_traffic.up += sent
        self.server_traffic.down += sent

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every client its own model, in the rounds that are evaluated."""
        server_round += self._done
        self._started = time.perf_counter()
        self._asked = {}
        if server_round % self.evaluate_every and server_round != self._num_rounds:
            return []
        if server_round == self._num_rounds:
            state = self._state(self._participants)
            self._regroup(self.clustering.after_last_round(state, self._conversation))
            self.reports[-1].clusters = dict(self.clusters.of_client)
        clients = list(self._conversation.nodes)
        return self._messages(
            protocol.EVALUATE, server_round, config, clients, self.evaluate_traffic
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Keep every client's accuracy and return the plain mean over clients."""
        report = self.reports[-1]
        tested = self._collect(replies, self.evaluate_traffic, _UNTESTED)
        for client, content in tested.items():
            metrics = protocol.metrics_of(content)
            accuracy = protocol.number(metrics, protocol.ACCURACY)
            if accuracy is None or not 0 <= accuracy <= 1:
                shown = metrics.get(protocol.ACCURACY)
                reason = f"its accuracy is {shown}, not a number in [0, 1]"
                self._warn(client, reason, _UNTESTED)
                continue
            report.accuracies[client] = accuracy
            loss = protocol.number(metrics, protocol.LOSS)
            if loss is not None:
                report.losses[client] = loss
        self.seconds.evaluate += time.perf_counter() - self._started
        self.on_round(report)
        if not report.accuracies:
            return None
        return MetricRecord(
            {
                protocol.LOSS: report.loss,
                protocol.ACCURACY: report.accuracy,
                ACCURACY_PER_CLIENT: [
                    report.accuracies.get(client, float("nan"))
                    for client in self._conversation.nodes
                ],
            }
        )

    def _messages(
        self,
        message_type: str,
        server_round: int,
        config: ConfigRecord,
        clients: list[int],
        traffic: Traffic,
        told: Callable[[int], Mapping[str, ConfigRecordValues]] = lambda client: {},
    ) -> list[Message]:
        """Return each client's message: its own model, and what it alone is `told`."""
        nodes = self._conversation.nodes
        self._asked = {nodes[client]: client for client in clients}
        self._sent = {client: self._models[self.model_of_client[client]] for client in clients}
        messages = []
        for client in clients:
            # One config record a message: what is shared between messages is shared state.
            own_config = {**config, protocol.SERVER_ROUND: server_round, **told(client)}
            content = RecordDict()
            kept = self._place_of_kept_model(client) if message_type == protocol.TRAIN else None
            if kept is None:
                content[protocol.ARRAYS] = self._records[self.model_of_client[client]]
            else:
                own_config[protocol.KEPT_MODEL] = kept
            content[protocol.CONFIG] = ConfigRecord(own_config)
            messages.append(
                Message(
                    content,
                    dst_node_id=nodes[client],
                    message_type=message_type,
                    group_id=str(server_round),
                    ttl=self._timeout,
                )
            )
        traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        return messages

    def _place_of_kept_model(self, client: int) -> int | None:
        """Return where among the models that a client was sent in this round its own is."""
        models = self._conversation.models_at.get(client, ())
        return next((i for i, m in enumerate(models) if m is self._sent[client]), None)

    def _collect(
        self, replies: Iterable[Message], traffic: Traffic, failed: str = _LEFT_OUT
    ) -> dict[int, RecordDict]:
        answers, failures = sort_replies(self._asked, replies)
        for client, reason in failures.items():
            self._warn(client, reason, failed)
        traffic.up += sum(protocol.payload_bytes(a.content) for a in answers.values())
        return {client: answer.content for client, answer in answers.items()}

    def _warn(self, client: int, reason: str, failed: str = _LEFT_OUT) -> None:
        name = self._conversation.name_of(client)
        logger.warning(failed, name, self.reports[-1].round, one_line(reason))


def _read_update(client: int, cluster: int, content: RecordDict, received: NDArrays) -> Update:
    """Return a client's update, or raise ValueError with what is wrong with it."""
    record = content.array_records.get(protocol.ARRAYS)
    metrics = protocol.metrics_of(content)
    if record is None or record.keys() != received.keys():
        raise ValueError("its model's parameters are not those it was sent")
    examples = protocol.number(metrics, protocol.NUM_EXAMPLES)
    if examples is None or not 0 < examples <= _MOST_EXAMPLES:
        raise ValueError(f"its {protocol.NUM_EXAMPLES} is {metrics.get(protocol.NUM_EXAMPLES)}")
    arrays = {}
    for name, sent in received.items():
        array = record[name].numpy()
        if array.dtype != sent.dtype or array.shape != sent.shape:
            raise ValueError(
                f"its {name} is {array.dtype} of shape {array.shape}, not {sent.dtype} of "
                f"{sent.shape}"
            )
        if problem := _implausible(array, sent):
            raise ValueError(f"its {name} holds {problem}")
        arrays[name] = array
    changed = metrics.get(protocol.CHANGED) == 1
    return Update(client, cluster, arrays, examples, received, changed)


def _implausible(array: NDArray[Any], sent: NDArray[Any]) -> str | None:
    """Return what in a trained array would spoil a mean for good, or None.

    Finite is not enough: means of numbers near the largest of float32 make all who are sent them
    answer NaN, in every later round.
    """
    if array.dtype.kind != "f":
        return None
    largest = np.abs(array).max(initial=0)
    if not np.isfinite(largest):
        return "NaN or infinity"
    # What was sent is looked at only where it can matter: all clients of a cluster were sent it.
    if largest > _MOST_GROWTH and largest > _MOST_GROWTH * np.abs(sent).max():
        return f"{largest:.3g}, which no training makes of what it was sent"
    return None
