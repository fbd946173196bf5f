"""The state of a training: what a round leaves for the next one, and for the results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, MetricRecord, RecordDict

from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.metrics import Metrics, metrics_of
from fl_core.models.layers import split, with_layer
from fl_core.objectives.objective import LocalObjective
from strategies.rounds.ask import Reading, Request, Traffic
from strategies.rounds.client_registry import ClientRegistry
from strategies.rounds.failures import FailureLog
from strategies.rounds.means import mean_held_models, models_after_joining
from strategies.rounds.round_state import Clusters, Comparison, Round, Update

logger = logging.getLogger(__name__)

_SAVED_FIELDS = ("num_examples", "identity", "private", "holders", "trained")
_TRAFFIC_FIELDS = ("pre_round_traffic", "train_traffic", "evaluate_traffic", "server_traffic")


@dataclass
class RoundReport:
    """What is known after one round; clients are by index."""

    round: int  # from 1
    num_rounds: int
    train_loss: float = float("nan")  # mean over the clients that trained; NaN if none did
    scores: dict[str, dict[int, float]] = field(default_factory=dict)  # by name, then by client
    other_scores: dict[str, dict[int, float]] = field(default_factory=dict)  # of a second test
    # Under "", the number of compared samples, the score and the loss; under another
    # strategy's label, two numbers (`clients.training.paired_comparison`)
    validated: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    samples: dict[int, float] = field(default_factory=dict)  # of those that trained
    clusters: dict[int, int] = field(default_factory=dict)  # after the round's training
    # Of each cluster at each client, where clients train several models
    shares: dict[int, list[float]] = field(default_factory=dict)
    bytes: int = 0  # payload of all clients so far, for finding clusters and training
    left_out_of_sums: dict[int, str] = field(default_factory=dict)  # why, of secure sums
    is_regression: bool = False  # whether clients predict a number
    user_metric: str = ""  # the name of a user-defined metric

    @property
    def metrics(self) -> Metrics:
        """Return what tests measure."""
        return metrics_of(is_regression=self.is_regression, user_metric=self.user_metric)

    def of(self, score: str) -> dict[int, float]:
        """Return a score by client, of those that have one."""
        return self.scores.get(score, {})

    @property
    def tested(self) -> dict[int, float]:
        """Return the main score of each client that was tested: its accuracy, or RMSE."""
        return self.of(self.metrics.main.name)

    def add_test(
        self,
        client: int,
        scores: Mapping[str, float],
        others: Mapping[str, float],
        compared: Mapping[str, list[float]],
    ) -> None:
        """Store a client's scores, those of a second test, and its comparisons."""
        for stored, sent in ((self.scores, scores), (self.other_scores, others)):
            for name, value in sent.items():
                stored.setdefault(name, {})[client] = value
        if compared:
            self.validated[client] = dict(compared)

    def mean(self, score: str) -> float:
        """Return a score's plain mean over the clients that have one; NaN without any."""
        of_client = self.of(score)
        return float(np.mean(list(of_client.values()))) if of_client else float("nan")

    @property
    def score(self) -> float:
        """Return the mean of the main score over clients (spec section 6); NaN without any."""
        return self.mean(self.metrics.main.name)

    @property
    def loss(self) -> float:
        """Return the mean test loss over clients; NaN without any."""
        return self.mean(protocol.LOSS)

    def as_metrics(self, clients: Iterable[int]) -> MetricRecord | None:
        """Summarise the tests for Flower's result; main scores in the order of `clients`."""
        if not self.tested:
            return None
        name = self.metrics.main.name
        return MetricRecord(
            {
                protocol.LOSS: self.loss,
                name: self.score,
                f"{name}-per-client": [self.tested.get(c, float("nan")) for c in clients],
            }
        )


@dataclass
class Seconds:
    """Wall-clock time spent."""

    pre_round: float = 0.0
    train: float = 0.0
    evaluate: float = 0.0


@dataclass(eq=False)
class Training:
    """The state of a training."""

    registry: ClientRegistry = field(default_factory=ClientRegistry)
    per_client: bool = False  # whether each client has a separate model
    sends_all: bool = False  # whether each client is sent the models of all clusters
    initial: NDArrays = field(default_factory=dict)  # the model that the training started from
    clusters: Clusters = field(default_factory=lambda: Clusters({}))  # as of the last round
    identity: str = ""  # by which clients know which personal state belongs to it
    private: NDArrays = field(default_factory=dict)  # first private layers: clients get them once
    holders: set[int] = field(default_factory=set)  # clients that have private layers
    trained: set[int] = field(default_factory=set)  # clients that have trained in some round
    # One per cluster, or per client, in the order of `clusters`; and as they are sent
    models: list[NDArrays] = field(default_factory=list, init=False)
    records: list[ArrayRecord] = field(default_factory=list, init=False)
    num_examples: dict[int, float] = field(default_factory=dict)  # of those that have trained
    reports: list[RoundReport] = field(default_factory=list)
    pre_round_traffic: Traffic = field(default_factory=Traffic)
    train_traffic: Traffic = field(default_factory=Traffic)
    evaluate_traffic: Traffic = field(default_factory=Traffic)
    server_traffic: Traffic = field(default_factory=Traffic)  # between MT-HFL's servers
    seconds: Seconds = field(default_factory=Seconds)

    @property
    def round(self) -> int:
        """Return the number of the present round, from 1; 0 before training."""
        return len(self.reports)

    @property
    def bytes(self) -> int:
        """Return the bytes of finding clusters and of training so far, both ways."""
        both = (self.pre_round_traffic, self.train_traffic)
        return sum(traffic.up + traffic.down for traffic in both)

    @property
    def model_of_client(self) -> dict[int, int]:
        """Return the index of each client's model."""
        if self.per_client:
            return {client: number for number, client in enumerate(self.clusters.of_client)}
        return dict(self.clusters.of_client)

    def begin_round(self, num_rounds: int, metrics: Metrics) -> None:
        """Add the report of the next round."""
        report = RoundReport(self.round + 1, num_rounds)
        report.is_regression, report.user_metric = metrics.is_regression, metrics.user_metric
        self.reports.append(report)
        self.registry.round = self.round

    def as_checkpoint(self) -> dict[str, Any]:
        """Return it as plain values and arrays, for `fl_core.models.checkpoint`."""
        unique = {id(model): model for model in (self.initial, *self.models)}
        places = list(unique)
        return {
            "round": self.round,
            "models": list(unique.values()),
            "model-numbers": [places.index(id(model)) for model in self.models],
            "clusters": _plain(self.clusters),
            "failures": dict(self.registry.failures),
            "failure-log": dict(self.registry.log.rounds),
            "reports": [dict(vars(report)) for report in self.reports],
            **{name: copy(getattr(self, name)) for name in _SAVED_FIELDS},
            "seconds": dict(vars(self.seconds)),
            **{name: dict(vars(getattr(self, name))) for name in _TRAFFIC_FIELDS},
        }

    @classmethod
    def from_checkpoint(
        cls, saved: Mapping[str, Any], registry: ClientRegistry, per_client: bool, sends_all: bool
    ) -> Training:
        """Restore the training of a checkpoint, with the clients that are connected now."""
        models = saved["models"]
        stored: dict[str, Any] = {name: copy(saved[name]) for name in _SAVED_FIELDS}
        stored |= {name: Traffic(**saved[name]) for name in _TRAFFIC_FIELDS}
        training = cls(
            registry,
            per_client,
            sends_all,
            initial=models[0],
            clusters=_clusters(saved["clusters"]),
            reports=[RoundReport(**report) for report in saved["reports"]],
            seconds=Seconds(**saved["seconds"]),
            **stored,
        )
        training.set_models([models[place] for place in saved["model-numbers"]])
        registry.restore(training.clusters.of_client, saved["failures"])
        registry.log = FailureLog({**saved["failure-log"], **registry.log.rounds})
        registry.round = training.round
        return training

    def model_request(
        self,
        message_type: str,
        clients: Iterable[int],
        read: Callable[[int, RecordDict], Reading],
        config: Mapping[str, ConfigRecordValues],
        timeout: float,
        traffic: Traffic | None = None,
        config_of: Callable[[int], Mapping[str, ConfigRecordValues]] = lambda client: {},
    ) -> Request[Reading]:
        """Return a request that sends clients their models, that with the most samples first.

        In a simulation, no long training then starts when other workers have nothing left to do.
        A client that is sent `protocol.STORED_MODEL` has the model already (IFCA).
        """
        numbers, known = self.model_of_client, self.num_examples
        all_models = protocol.pack_models(self.records) if self.sends_all else None

        def content_of(client: int) -> RecordDict:
            # One config record a message: what is shared between messages is shared state.
            entries = {**config, protocol.SERVER_ROUND: self.round, **config_of(client)}
            content = RecordDict({**self.private_of(client)})
            if protocol.STORED_MODEL not in entries:
                content[protocol.ARRAYS] = all_models or self.records[numbers[client]]
            content[protocol.CONFIG] = ConfigRecord(entries)
            return content

        ordered = sorted(clients, key=lambda client: -known.get(client, 0))
        nodes = {client: self.registry.nodes[client] for client in ordered}
        counted = Traffic() if traffic is None else traffic
        return Request(message_type, nodes, content_of, read, timeout, counted, str(self.round))

    def record_failures(self, failures: Mapping[int, str], step: str) -> None:
        """Record which clients failed at a step of the present round; they stay in the training."""
        for client, reason in failures.items():
            failure = self.registry.log.add(client, step, self.round, reason)
            logger.warning("%s", failure.describe(self.registry.name_of(client)))

    def log_lost_round(self, asked: Collection[int], failures: Mapping[int, str]) -> None:
        """Log that no participant sent a usable model; a RuntimeError if all clients took part."""
        # All may have lost their private layers, in a run that goes on: they are sent them again.
        again = self.private and self.holders.issuperset(asked)
        if self.registry.nodes.keys() <= set(asked) and not again:
            why = next(iter(failures.values()), "no client answered")
            raise RuntimeError(f"no client sent a usable model in round {self.round}: {why}")
        logger.warning("round %d is lost: no participant sent a usable model", self.round)

    def private_of(self, client: int) -> Mapping[str, ArrayRecord]:
        """Return a message's other records: first private layers, where a client needs them."""
        if not self.private or client in self.holders:
            return {}
        return {protocol.PRIVATE: protocol.to_record(self.private)}

    def record_participation(self, asked: Iterable[int], trained: Iterable[int]) -> None:
        """Record who has trained: the other asked clients may have lost their private layers."""
        self.holders = self.holders.difference(asked).union(trained)
        self.trained.update(trained)

    def split(self, initial: NDArrays, local: LocalObjective) -> NDArrays:
        """Store the first private layers; return what is shared, and what travels beside it."""
        shared, self.private = split(initial, local.private_layers_of(initial))
        return {**shared, **with_layer(protocol.BESIDE, local.first_beside(shared))}

    def start_from(self, initial: NDArrays, clusters: Clusters) -> None:
        """Start from clusters, with their models or else the initial one."""
        self.initial, self.clusters = initial, replace(clusters, models=())
        models = clusters.models or [initial] * clusters.count
        if clusters.models and (beside := split(initial, [protocol.BESIDE])[1]):
            models = [{**beside, **model} for model in models]
        chosen = clusters.of_client.values() if self.per_client else range(len(models))
        self.set_models([models[cluster] for cluster in chosen])

    def set_models(self, models: list[NDArrays]) -> None:
        """Set the models, and the record that is sent of each different one."""
        known = {id(m): record for m, record in zip(self.models, self.records, strict=True)}
        for model in models:
            if id(model) not in known:
                known[id(model)] = protocol.to_record(model)
        self.models = models
        self.records = [known[id(model)] for model in models]

    def regroup(self, clusters: Clusters, retains_models: bool) -> None:
        """Change to other clusters, with all clients, and give each the model it starts with."""
        clusters = clusters.with_all_clients(list(self.registry.nodes))
        if clusters is self.clusters:
            return
        if clusters.models:
            self.start_from(self.initial, clusters)
            return
        held = {client: self.models[number] for client, number in self.model_of_client.items()}
        unheld = {k: {**self.initial, **model} for k, model in clusters.unheld.items()}
        clusters = replace(clusters, unheld=unheld)
        before, self.clusters = self.clusters, replace(clusters, unheld={})
        if retains_models and self.per_client:
            self.set_models(models_after_joining(held, before, clusters, self.initial))
            return
        if retains_models:
            new = range(len(self.models), clusters.count)
            self.set_models([*self.models, *[unheld.get(k, self.initial) for k in new]])
            return
        members = [clusters.members(cluster) for cluster in range(clusters.count)]
        if self.per_client:
            members = [
                [client] if client in held else members[cluster]
                for client, cluster in clusters.of_client.items()
            ]
        self.set_models(mean_held_models(held, members, self.initial))

    @property
    def shared_models(self) -> list[ArrayRecord]:
        """Return the record of each model, without what travels beside it."""
        return [ArrayRecord(split(one, [protocol.BESIDE])[0]) for one in self.records]

    def as_compared(self, participants: Iterable[int], updates: Iterable[Update] = ()) -> Round:
        """Return the view that clusterings have of it: models, without what travels beside them."""
        updates = tuple(updates)
        whole = self.as_round(participants, updates)
        if not split(self.initial, [protocol.BESIDE])[1]:
            return whole

        def alone(arrays: NDArrays) -> NDArrays:
            return split(arrays, [protocol.BESIDE])[0]

        updates = [
            replace(one, arrays=alone(one.arrays), received=alone(one.received)) for one in updates
        ]
        models = [alone(model) for model in whole.models]
        return replace(whole, models=models, initial=alone(self.initial), updates=tuple(updates))

    def as_round(self, participants: Iterable[int], updates: Iterable[Update] = ()) -> Round:
        """Return the view that aggregations have of it."""
        return Round(
            *(self.round, self.clusters, self.models, tuple(updates), self.num_examples),
            *(tuple(participants), self.per_client, self.initial),
        )


def _plain(clusters: Clusters) -> dict[str, Any]:
    comparison = clusters.comparison and dict(vars(clusters.comparison))
    values = {one.name: getattr(clusters, one.name) for one in fields(clusters)}
    return {**values, "comparison": comparison}


def _clusters(saved: Mapping[str, Any]) -> Clusters:
    comparison = saved["comparison"]
    return Clusters(**{**saved, "comparison": comparison and Comparison(**comparison)})
