"""A strategy is a clustering times an aggregation: the one Flower Strategy all others are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_core import protocol
from strategies.aggregation import Aggregation, ClusterMean, Update
from strategies.clustering import Clustering, Clusters
from strategies.pre_round import PreRound, Traffic, sort_replies

logger = logging.getLogger(__name__)

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
    loss : float
        Mean test loss over these clients; NaN without evaluation.
    """

    round: int
    num_rounds: int
    train_loss: float = float("nan")
    accuracies: dict[int, float] = field(default_factory=dict)
    loss: float = float("nan")

    @property
    def accuracy(self) -> float:
        """Return the mean over clients (spec section 6); NaN without evaluation."""
        return float(np.mean(list(self.accuracies.values()))) if self.accuracies else float("nan")


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


class ClusteredStrategy(Strategy):
    """Train one model per cluster: any clustering times any aggregation.

    Works in any Flower app whose ClientApp answers the pre-round's queries
    (`clients.answer_pre_round`) and trains and evaluates the usual way: an ArrayRecord `arrays` and
    a MetricRecord `metrics` with `num-examples`, and `accuracy` when it evaluates.

    Parameters
    ----------
    clustering : Clustering
        Asked once, before the first round.
    aggregation : Aggregation
        From clients' models to clusters' models.
    fraction_train : float
        Share of the clients that train in a round, in (0, 1]; at least one does.
    evaluate_every : int
        Clients test their cluster's model every so many rounds, and after the last.
    seed : int
        Draws the participants of each round.
    on_round : callable, optional
        Called with a RoundReport after each round.

    Attributes
    ----------
    clusters : Clusters
        Known after the pre-round.
    reports : list of RoundReport
        One for each round so far.
    failures : dict of str
        Clients that failed in the pre-round, and why: they take no part.
    pre_round_traffic, train_traffic, evaluate_traffic : Traffic
        Payload bytes of all clients together.
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
    ) -> None:
        self.clustering = clustering
        self.aggregation = aggregation or ClusterMean()
        self.fraction_train = fraction_train
        self.evaluate_every = evaluate_every
        self.seed = seed
        self.on_round = on_round
        self._forget()

    def _forget(self) -> None:
        """Start afresh, so that one strategy object can be started again."""
        self.reports: list[RoundReport] = []
        self.failures: dict[int, str] = {}
        self.pre_round_traffic = Traffic()
        self.train_traffic = Traffic()
        self.evaluate_traffic = Traffic()
        self.seconds = Seconds()
        self.clusters = Clusters({})
        self._nodes: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._models: list[ArrayRecord] = []
        self._num_rounds = 0
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
            One model: every cluster starts from it.
        grid, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
            As in Flower. The pre-round's queries carry `train_config`, too.

        Returns
        -------
        Result
            `arrays` holds every cluster's model under `cluster/parameter` names
            (`fl_core.protocol.unpack_models`).

        Raises
        ------
        ValueError, RuntimeError
            As the clustering says; RuntimeError if all clients fail in a round.
        """
        self._forget()
        self._num_rounds = num_rounds
        self._find_clusters(grid, train_config or ConfigRecord(), timeout)
        packed = protocol.pack_models([initial_arrays] * self.clusters.count)
        return super().start(
            grid, packed, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def _find_clusters(self, grid: Grid, config: ConfigRecord, timeout: float) -> None:
        started = time.perf_counter()
        scalars = {k: v for k, v in config.items() if isinstance(v, int | float | str)}
        pre_round = PreRound(grid, scalars, timeout)
        pre_round.call_roll()
        self.clusters = self.clustering.find(pre_round)
        self._nodes = pre_round.nodes
        self.failures = pre_round.failures
        self.pre_round_traffic = pre_round.traffic
        self.seconds.pre_round = time.perf_counter() - started

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send this round's participants the model of their own cluster."""
        self._started = time.perf_counter()
        self.reports.append(RoundReport(server_round, self._num_rounds))
        clients = list(self._nodes)
        count = max(1, round(self.fraction_train * len(clients)))
        drawn = np.random.default_rng([self.seed, server_round, 0xDEA1]).choice(
            clients, size=count, replace=False
        )
        return self._messages(
            protocol.TRAIN, server_round, arrays, config, sorted(drawn.tolist()), self.train_traffic
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Combine the models that came back; a client whose model is unusable is named.

        Raises
        ------
        RuntimeError
            If no client sent a usable model.
        """
        answers = self._collect(replies, self.train_traffic)
        updates, losses = [], []
        for client, content in answers.items():
            cluster = self.clusters.of_client[client]
            try:
                updates.append(_read_update(client, cluster, content, self._models[cluster]))
            except ValueError as error:
                self._warn(client, str(error))
                continue
            losses.append(protocol.number(content.metric_records[protocol.METRICS], protocol.LOSS))
        if not updates:
            raise RuntimeError(f"no client sent a usable model in round {server_round}.")
        known = [loss for loss in losses if loss is not None]
        self.reports[-1].train_loss = float(np.mean(known)) if known else float("nan")
        models = self.aggregation([protocol.to_arrays(m) for m in self._models], updates)
        packed = protocol.pack_models([protocol.to_record(model) for model in models])
        self.seconds.train += time.perf_counter() - self._started
        return packed, MetricRecord(
            {protocol.LOSS: self.reports[-1].train_loss, "num-clients": len(updates)}
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send every client the model of its own cluster, in the rounds that are evaluated."""
        self._started = time.perf_counter()
        self._asked = {}
        if server_round % self.evaluate_every and server_round != self._num_rounds:
            return []
        return self._messages(
            protocol.EVALUATE,
            server_round,
            arrays,
            config,
            list(self._nodes),
            self.evaluate_traffic,
        )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Keep every client's accuracy and return the plain mean over clients."""
        report, losses = self.reports[-1], []
        for client, content in self._collect(replies, self.evaluate_traffic).items():
            metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
            accuracy = protocol.number(metrics, protocol.ACCURACY)
            if accuracy is None or not 0 <= accuracy <= 1:
                shown = metrics.get(protocol.ACCURACY)
                self._warn(client, f"its accuracy is {shown}, not a number in [0, 1]")
                continue
            report.accuracies[client] = accuracy
            loss = protocol.number(metrics, protocol.LOSS)
            losses.append(float("nan") if loss is None else loss)
        self.seconds.evaluate += time.perf_counter() - self._started
        if losses:
            report.loss = float(np.mean(losses))
        self.on_round(report)
        if not report.accuracies:
            return None
        return MetricRecord(
            {
                protocol.LOSS: report.loss,
                protocol.ACCURACY: report.accuracy,
                ACCURACY_PER_CLIENT: [
                    report.accuracies.get(client, float("nan")) for client in self._nodes
                ],
            }
        )

    def _messages(
        self,
        message_type: str,
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        clients: list[int],
        traffic: Traffic,
    ) -> list[Message]:
        self._models = protocol.unpack_models(arrays)
        self._asked = {self._nodes[client]: client for client in clients}
        messages = [
            Message(
                RecordDict(
                    {
                        protocol.ARRAYS: self._models[self.clusters.of_client[client]],
                        # One record a message: what is shared between messages is shared state.
                        protocol.CONFIG: ConfigRecord(
                            {**config, protocol.SERVER_ROUND: server_round}
                        ),
                    }
                ),
                dst_node_id=self._nodes[client],
                message_type=message_type,
                group_id=str(server_round),
            )
            for client in clients
        ]
        traffic.down += sum(protocol.payload_bytes(m.content) for m in messages)
        return messages

    def _collect(self, replies: Iterable[Message], traffic: Traffic) -> dict[int, RecordDict]:
        answers, failures = sort_replies(self._asked, replies)
        for client, reason in failures.items():
            self._warn(client, reason)
        traffic.up += sum(protocol.payload_bytes(a.content) for a in answers.values())
        return {client: answer.content for client, answer in answers.items()}

    def _warn(self, client: int, reason: str) -> None:
        logger.warning(
            "client %d failed in round %d and is left out of it: %s",
            client,
            self.reports[-1].round,
            reason,
        )


def _read_update(client: int, cluster: int, content: RecordDict, expected: ArrayRecord) -> Update:
    """Return a client's update, or raise ValueError with what is wrong with it."""
    record = content.array_records.get(protocol.ARRAYS)
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    if record is None or record.keys() != expected.keys():
        raise ValueError("its model's parameters are not those it was sent")
    examples = protocol.number(metrics, protocol.NUM_EXAMPLES)
    if examples is None or examples <= 0:
        raise ValueError(f"its {protocol.NUM_EXAMPLES} is {metrics.get(protocol.NUM_EXAMPLES)}")
    arrays = {}
    for name, sent in expected.items():
        array = record[name].numpy()
        if array.dtype != sent.dtype or array.shape != tuple(sent.shape):
            raise ValueError(
                f"its {name} is {array.dtype} of shape {array.shape}, not {sent.dtype} of "
                f"{tuple(sent.shape)}"
            )
        if not np.isfinite(array).all():
            raise ValueError(f"its {name} holds NaN or infinity")
        arrays[name] = array
    return Update(client, cluster, arrays, examples)
