"""A strategy is a clustering, an aggregation and a local objective: the one Flower Strategy."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

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

from fl_core.masking import FEWEST, Words
from fl_core.messages import protocol
from fl_core.messages.protocol import NDArrays
from fl_core.metrics import OF_CLASSES, Metrics
from fl_core.models.layers import split
from fl_core.objectives.objective import LocalObjective
from fl_core.objectives.plain import Plain
from strategies.aggregations.aggregation import Aggregation, ClusterMean
from strategies.checks import check_parts, check_rounds
from strategies.clusterings.clustering import Clustering
from strategies.rounds.ask import Request
from strategies.rounds.client_registry import ClientRegistry
from strategies.rounds.conversation import Conversation
from strategies.rounds.participants import draw_participants, draw_testers
from strategies.rounds.replies import read_tests, read_update, read_updates
from strategies.rounds.round_state import Clusters, Update
from strategies.rounds.training import RoundReport, Training
from strategies.secure_aggregation import SecureAggregation
from strategies.validation import P, clusters_by, combine, set_models

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class ClusteredStrategy(Strategy):
    """Train one model per cluster, or per client: any clustering, aggregation and local objective.

    Works in any Flower app with a ClientApp that answers the queries of the clustering
    (`clients.handlers`) and trains and evaluates as usual: an ArrayRecord `arrays` and a
    MetricRecord `metrics` with `num-examples`; of a test with `accuracy`, and other metrics if it
    can. The clustering places nodes that connect later when a round starts.

    Parameters
    ----------
    clustering, aggregation, local : Clustering, Aggregation, LocalObjective
        Any objective but `Plain` needs a ClientApp that follows it (`clients.training`).
    fraction_train, fraction_evaluate : float
        Share of the clients that train in a round, and that test their model, in (0, 1].
    evaluate_every : int
        Clients test their model every so many rounds, and after the last.
    seed : int
        Draws the participants of each round, and those of each test.
    on_round : callable, optional
        Called with a RoundReport after each round.
    pre_round_timeout : float, optional
        Seconds to wait for the answers to each query before training; by default, as for training.
    registry : ClientRegistry, optional
        Clients that are registered already: they are not asked for their index again.
    secure_aggregation : bool
        Let clients mask what they train, so that the server learns each cluster's mean alone. The
        ClientApp needs the mod `clients.secure_aggregation.mask_mod`.
    metrics : Metrics
        What tests send: of a number that clients predict, `rmse` in place of `accuracy`.
    """

    clustering: Clustering
    aggregation: Aggregation = field(default_factory=ClusterMean)
    local: LocalObjective = field(default_factory=Plain)
    _: KW_ONLY
    fraction_train: float = 1.0
    evaluate_every: int = 1
    fraction_evaluate: float = 1.0
    seed: int = 0
    on_round: Callable[[RoundReport], None] = lambda report: None
    pre_round_timeout: float | None = None
    registry: ClientRegistry | None = None
    secure_aggregation: bool = False
    metrics: Metrics = OF_CLASSES
    training: Training = field(default_factory=Training, init=False)
    objective_entries: dict[str, ConfigRecordValues] = field(default_factory=dict, init=False)
    _checkpoint: Mapping[str, Any] | None = field(default=None, init=False)
    _secure: SecureAggregation | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Refuse, by a ValueError, values that a run configuration could not have."""
        check_rounds(self.fraction_train, self.evaluate_every, self.fraction_evaluate)
        check_parts(self.clustering, self.aggregation, self.local, self.secure_aggregation)

    @property
    def clusters(self) -> Clusters:
        """Return the clusters as of the last round."""
        return self.training.clusters

    @property
    def model_of_client(self) -> dict[int, int]:
        """Return the index of each client's model in the result: its cluster, or its position."""
        return self.training.model_of_client

    @property
    def reports(self) -> list[RoundReport]:
        """Return a report of each round so far."""
        return self.training.reports

    @property
    def failures(self) -> dict[int, str]:
        """Return the clients that failed before training, and why: they are excluded."""
        return self.training.registry.failures

    def summary(self) -> None:
        """Log the strategy's parts."""
        logger.info("%s × %s × %s", self.clustering, self.aggregation, self.local)

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
        """Find the clusters, then run Flower's rounds; arguments are as in Flower.

        Every cluster starts from `initial_arrays`, unless the clustering draws models. Queries
        carry the scalars of `train_config`, too. The result's `arrays` hold every model under
        `number/parameter` names (`fl_core.messages.protocol.unpack_models`), see `model_of_client`.
        Errors are the clustering's; a RuntimeError also says that all clients fail in a round.
        """
        started = time.perf_counter()
        checkpoint, self._checkpoint = self._checkpoint, None
        self._num_rounds, self._timeout = num_rounds, timeout
        initial = protocol.to_arrays(initial_arrays)
        self.objective_entries = self.local.message_entries(initial)
        if self.local.has_state:
            identity = secrets.token_hex(8) if checkpoint is None else checkpoint["identity"]
            self.objective_entries[protocol.TRAINING] = identity
        self._begin(grid, {**(train_config or {}), **self.objective_entries}, checkpoint)
        training, conversation = self.training, self._conversation
        if checkpoint is None:
            training.identity = str(self.objective_entries.get(protocol.TRAINING, ""))
            initial = training.split(initial, self.local)
            training.start_from(initial, clusters_by(training, self.clustering.find, conversation))
            training.seconds.pre_round = time.perf_counter() - started
        # Flower counts from 1 in a resumed run, too, as does its result; all here counts reports.
        done = training.round
        test = evaluate_fn and (lambda number, arrays: evaluate_fn(number + done, arrays))
        left = num_rounds - done
        models = protocol.pack_models(training.shared_models)
        result = super().start(grid, models, left, timeout, train_config, evaluate_config, test)
        if self._secure is not None and not self._secure.has_summed:
            raise RuntimeError(
                "secure-aggregation is on, and no round had a sum, so nothing was learnt: the "
                "warnings say what was missing."
            )
        result.arrays = protocol.pack_models(training.shared_models)  # of the last clusters
        return result

    def group(
        self, grid: Grid, timeout: float = 3600, config: ConfigRecord | None = None
    ) -> Clusters:
        """Find the clusters, and train nothing; queries carry `config`."""
        started = time.perf_counter()
        self._timeout = timeout
        self._begin(grid, config or {}, None)
        found = clusters_by(self.training, self.clustering.find, self._conversation)
        self.training.clusters = found
        self.training.seconds.pre_round = time.perf_counter() - started
        return self.clusters

    def checkpoint(self) -> dict[str, Any]:
        """Return all that a round leaves for the next one, in `on_round` or after `start`."""
        parts = {"clustering": self.clustering.memory(), "aggregation": self.aggregation.memory()}
        return {**self.training.as_checkpoint(), **parts}

    def resume(self, checkpoint: Mapping[str, Any]) -> None:
        """Let the next `start` continue after the round of a checkpoint of such a strategy.

        The final models are those of a run without an interruption, to the last bit. Clients that
        have connected since are newcomers. With secure sums, this is refused by a ValueError.
        """
        if self.secure_aggregation:
            raise ValueError(
                "secure-aggregation is true, and a round that is trained again can show single "
                "updates: start a new training, or set secure-aggregation to false."
            )
        self._checkpoint = checkpoint

    def _begin(
        self,
        grid: Grid,
        config: Mapping[str, ConfigRecordValues],
        checkpoint: Mapping[str, Any] | None,
    ) -> None:
        """Register the clients, and start a training with them or restore the checkpoint's."""
        self.clustering.forget()
        self.aggregation.forget()
        patience = self._timeout if self.pre_round_timeout is None else self.pre_round_timeout
        registry = ClientRegistry() if self.registry is None else self.registry.copy()
        per_client = self.aggregation.per_client
        sends_all = self.clustering.is_soft
        self.training = Training(registry, per_client, sends_all)
        conversation = self._conversation = Conversation(grid, config, patience, self.training)
        conversation.all_train = self.fraction_train == 1
        if not registry.nodes:
            conversation.register_clients()
        if checkpoint is not None:  # what was sent before does not count a second time
            self.training = Training.from_checkpoint(checkpoint, registry, per_client, sends_all)
            conversation.training = self.training
            self.clustering.recall(checkpoint["clustering"])
            self.aggregation.recall(checkpoint["aggregation"])
        self._secure = None
        if self.secure_aggregation:
            weighted = self.aggregation.weighted
            self._secure = SecureAggregation(conversation, weighted, self._timeout)

    def _regroup(
        self, method: Callable[P, Clusters], *arguments: P.args, **named: P.kwargs
    ) -> None:
        clusters = clusters_by(self.training, method, *arguments, **named)
        self.training.regroup(clusters, self.clustering.retains_models)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Admit newcomers, then send each of this round's participants its model."""
        self._started = time.perf_counter()
        training, conversation = self.training, self._conversation
        training.begin_round(self._num_rounds, self.metrics)
        before = dict(training.registry.nodes)
        newcomers = conversation.admit_newcomers()
        now = training.registry.nodes
        # On another node, nothing that a client stores may be there.
        training.record_participation(
            [client for client, node in before.items() if now.get(client) != node], ()
        )
        if newcomers:
            self._regroup(self.clustering.place, newcomers, training.clusters, conversation)
        untrained, secure = self.clustering.knows_by_training, self._secure
        out, least = (secure.left_out, FEWEST) if secure else ({}, 1)
        share = 1.0 if self.clustering.needs_all_clients(training.round) else self.fraction_train
        drawn = draw_participants(
            training, share, self.seed, untrained=untrained, without=out, at_least=least
        )
        self._regroup(self.clustering.before_training, training.as_compared(drawn), conversation)
        self._participants = [client for client in drawn if client in conversation.nodes]
        if secure:
            self._participants = secure.exchange_keys(training.clusters, self._participants)
        numbers = training.model_of_client
        self._sent = {c: training.models[numbers[c]] for c in self._participants}
        timeout, entries = self._timeout, {**config, **self.objective_entries}
        traffic, config_of = training.train_traffic, self._config_for
        self._request: Request[Any] = training.model_request(
            protocol.TRAIN, self._sent, self._read_trained, entries, timeout, traffic, config_of
        )
        messages = self._request.messages()
        conversation.models_at.clear()
        return messages

    def _read_trained(self, client: int, content: RecordDict) -> Any:
        """Return a client's updates, or its masked update."""
        training = self.training
        if training.sends_all:
            received = [*map(self._returned, training.models)]
            return read_updates(client, content, received, training.initial, self.local)
        model = self._returned(self._sent[client])
        if self._secure is not None:
            return self._secure.read(client, model, content)
        cluster = self.clusters.of_client[client]
        return [read_update(client, cluster, content, model, training.initial)]

    def _returned(self, model: NDArrays) -> NDArrays:
        """Return the arrays of a model that its clients send back."""
        return model if self.local.returns_beside else split(model, [protocol.BESIDE])[0]

    def _config_for(self, client: int) -> dict[str, ConfigRecordValues]:
        """Return the entries of a training message that are for this client alone."""
        entries = self.clustering.training_entries(client)
        if self._secure is not None:
            entries = {**entries, **self._secure.config_for(client)}
        stored = self._conversation.stored_model_index(client, self._sent[client])
        return entries if stored is None else {**entries, protocol.STORED_MODEL: stored}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Combine the models of the replies; a RuntimeError if all took part and none sent one."""
        training, report = self.training, self.reports[-1]
        answers = self._request.answers(replies)
        training.record_failures(answers.failures, protocol.TRAIN)
        if not answers.values:
            training.log_lost_round(self._participants, answers.failures)
        training.record_participation(self._participants, answers.values)
        if self._secure is None:
            losses = self._combine([u for updates in answers.values.values() for u in updates])
        else:
            losses = self._combine_sums(answers.values, self._secure)
        if known := [loss for loss in losses if loss is not None]:
            report.train_loss = float(np.mean(known))
        report.clusters = dict(self.clusters.of_client)
        training.seconds.train += time.perf_counter() - self._started
        return protocol.pack_models(training.shared_models), MetricRecord(
            {protocol.LOSS: report.train_loss, "num-clients": len(losses)}
        )

    def _combine(self, updates: list[Update]) -> list[float | None]:
        """Aggregate the models of the replies, and return the clients' losses."""
        if updates:
            combine(updates, self.training, self.clustering, self.aggregation, self.local)
        report = self.reports[-1]
        report.samples = {update.client: update.num_examples for update in updates}
        if self.training.sends_all:
            report.shares = {**self.reports[-2].shares} if report.round > 1 else {}
            report.shares |= {client: [] for client in report.samples}
            for update in updates:
                report.shares[update.client].append(update.share)
        return [*{update.client: update.loss for update in updates}.values()]

    def _combine_sums(
        self, masked: Mapping[int, Words], secure: SecureAggregation
    ) -> list[float | None]:
        """Take each cluster's mean from a secure sum, and return its mean loss for each client."""
        training = self.training
        totals = secure.unmask(masked, [*map(self._returned, training.models)])
        self.reports[-1].left_out_of_sums = dict(secure.left_out)
        models = [totals[c].model if c in totals else m for c, m in enumerate(training.models)]
        set_models(models, training, self.local, masked)
        return [total.loss for total in totals.values() for _ in range(total.num_clients)]

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Send clients their model, in the rounds with a test."""
        self._started = time.perf_counter()
        training, report = self.training, self.reports[-1]
        clients: Iterable[int] = ()
        if report.round == report.num_rounds or report.round % self.evaluate_every == 0:
            state = training.as_compared(self._participants)
            self._regroup(self.clustering.before_test, state, self._conversation)
            report.clusters = dict(self.clusters.of_client)
            nodes = list(training.registry.nodes)
            clients = draw_testers(nodes, self.fraction_evaluate, self.seed, report.round)
        entries, traffic = {**config, **self.objective_entries}, training.evaluate_traffic
        self._request = training.model_request(
            *(protocol.EVALUATE, clients, lambda _, reply: read_tests(reply, report.metrics)),
            *(entries, self._timeout, traffic),
        )
        return self._request.messages()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Store every client's scores and return the plain means over clients."""
        report = self.reports[-1]
        answers = self._request.answers(replies)
        self.training.record_failures(answers.failures, protocol.EVALUATE)
        for client, found in answers.values.items():
            report.add_test(client, *found)
        report.bytes = self.training.bytes
        self.training.seconds.evaluate += time.perf_counter() - self._started
        self.on_round(report)
        return report.as_metrics(self.training.registry.nodes)
