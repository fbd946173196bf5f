"""A run on devices: registration, agreement on their data, and the models that they store."""

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid

from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import Setting
from fl_app.devices.common_scale import add_common_scale
from fl_app.devices.registry import KnowsRegistrations, refused_names, registered_name
from fl_app.results.run_result import RunResult
from fl_app.results.verdict import NOT_COMPARED, SeedVerdicts
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.client_pool import ClientPool
from fl_app.run.client_states import ConfigValues, save_states
from fl_app.run.log import COURSE, log
from fl_app.run.writer import ResultsFolder
from fl_core.agreement.agreement import Survey
from fl_core.agreement.vote import agree, outvoted, with_whole_numbers
from fl_core.data.settings import ALL_SITES
from fl_core.json_records import to_json
from fl_core.messages import protocol
from strategies import ClientRegistry, ClusteredStrategy, Conversation, RoundReport, Training
from strategies.rounds.ask import Request

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 0.5  # seconds
_ABSENT = "it is not connected"


class DevicePool(ClientPool):
    """The devices of a run, which have agreed on their classes and the shape of samples."""

    def __init__(self, config: Config, grid: Grid, checkpoints: Checkpoints) -> None:
        self._config, self._grid = config, grid
        awaited = config.num_clients or len(checkpoints.took_part)  # all of a resumed run
        wait_for_devices(grid, awaited, config.pre_round_deadline)
        known = self._known = ClientRegistry(by_name=True, names=dict(checkpoints.names))
        if isinstance(grid, KnowsRegistrations):
            known.refused = lambda names: refused_names(grid.registrations(), names)
            known.registered_name = lambda node: registered_name(grid.registrations(), node)
        seed = {protocol.SEED: config.seed}
        conversation = Conversation(grid, seed, config.pre_round_deadline, Training(known))
        self._conversation = conversation
        conversation.register_clients()
        agreement = checkpoints.agreement
        if agreement is None:
            agreement = agree(_surveys(conversation))
            if config.standardise == ALL_SITES:
                agreement = add_common_scale(agreement, conversation)
        self._agreement = checkpoints.agreement = agreement
        self.num_clients, self.num_at_start = len(known.names), len(known.nodes)
        self.message_config = {**agreement.as_config()}

    @property
    def known_clients(self) -> ClientRegistry:
        """Return names and nodes of the devices: strategies need not register them again."""
        return self._known

    def setting(self, seed: int) -> Setting:
        """Return the values that strategies are built from, without tasks."""
        return Setting(self._config.for_samples(self._agreement), self._agreement, seed)

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the devices that take part."""
        return [self._known.names[client] for client in self._known.nodes]

    def start(self, results: ResultsFolder) -> None:
        """Note where results are."""
        self._results = results

    def begin_run(self, setting: Setting, done: int) -> Grid:
        """Register newcomers, so that every strategy starts with all connected devices."""
        if self._results.runs:
            self._conversation.admit_newcomers()
        self._seen: set[int] = set()
        return self._grid

    def save_states(self, strategy: ClusteredStrategy, sent: ConfigValues) -> dict[int, Any]:
        """Let devices save their private state on their disks; the server gets nothing of it."""
        save_states(self._grid, strategy, sent, self._config.round_deadline)
        return {}

    def after_round(self, report: RoundReport, strategy: ClusteredStrategy) -> None:
        """Log the clusters of devices that have joined in a round."""
        clusters = strategy.clusters.of_client
        for client in sorted(clusters.keys() - self._seen) if self._seen else ():
            joined = f"{self._known.names[client]} joined in round {report.round}"
            log.log(COURSE, "%s, in cluster %d", joined, clusters[client])
        self._seen.update(clusters)

    def end_run(self, run: RunResult, strategy: ClusteredStrategy, sent: ConfigValues) -> None:
        """Send devices the models of the first strategy, or of all that they compare."""
        judged = self._config.validation_share > 0
        if self._results.runs and not (judged and run.seed == self._config.seed):
            return
        content = {**sent, protocol.STRATEGY: run.strategy}
        if judged:
            content[protocol.CANDIDATE] = run.label
        of_client, registry = strategy.clusters.of_client, strategy.training.registry
        request = strategy.training.model_request(
            protocol.query(protocol.SAVE_MODEL),
            registry.nodes,
            _check_stored,
            {**content, **strategy.objective_entries},
            self._config.round_deadline,
            config_of=lambda client: {protocol.CLUSTER: of_client[client]},
        )
        failures = request.ask(self._grid).failures
        absent = (of_client.keys() | registry.names.keys()) - registry.nodes.keys()
        failures |= {client: registry.failures.get(client, _ABSENT) for client in absent}
        failures = dict(sorted(failures.items()))
        _note_not_stored(run, failures)
        if not judged:
            _log_delivery(failures, self._known.names)

    def end_seed(self, seed: int, verdicts: SeedVerdicts | None) -> None:
        """Let each device use the model of its verdict, or else of the first strategy with one."""
        if not self._config.validation_share or seed != self._config.seed:
            return
        runs = {run.strategy: run for run in self._results.runs if run.seed == seed}
        first = next(iter(runs.values()))
        judged = {one.client: one for one in verdicts.clients} if verdicts else {}

        def choice_of(client: int) -> RecordDict:
            verdict = judged.get(client)
            had = (run for run in runs.values() if client in run.of_client)
            run = runs[verdict.strategy] if verdict else next(had, first)
            choice: ConfigValues = {
                protocol.SEED: seed,
                protocol.CANDIDATE: run.label,
                protocol.VERDICT: to_json(verdict or {"verdict": NOT_COMPARED}),
            }
            return RecordDict({protocol.CONFIG: ConfigRecord({**self.message_config, **choice})})

        action, deadline = protocol.query(protocol.DEPLOY_MODEL), self._config.round_deadline
        request = Request(action, self._known.nodes, choice_of, _check_stored, deadline)
        failures = request.ask(self._grid).failures
        away = self._known.names.keys() - self._known.nodes.keys()
        failures |= dict.fromkeys(sorted(away), _ABSENT)
        for run in runs.values():  # a failure concerns the model that a device is to use
            _note_not_stored(run, {c: why for c, why in failures.items() if c < run.num_clients})
        _log_delivery(failures, self._known.names)


def _log_delivery(failures: Mapping[int, str], names: Mapping[int, str]) -> None:
    """Log which devices did not store their model, and why."""
    for client, reason in failures.items():
        log.warning("%s did not store its model: %s", names[client], reason)
    stored = len(names) - len(failures)
    log.info("%d of %d devices have stored their model", stored, len(names))


def _check_stored(client: int, content: RecordDict) -> None:
    """Raise a ValueError unless a client has stored, or now uses, its model."""
    if protocol.metrics_of(content).get(protocol.STORED) != 1:
        raise ValueError("it has no model-path")


def _note_not_stored(run: RunResult, failures: Mapping[int, str]) -> None:
    """Note in a run on devices, which has a table for it, which of them do not have its model."""
    if run.models_not_stored is not None:
        run.models_not_stored.clear()
        run.models_not_stored.update(failures)


def wait_for_devices(grid: Grid, expected: int, deadline: float) -> None:
    """Wait `deadline` seconds at most until `expected` devices, or at least one, are connected."""
    end, shown = time.monotonic() + deadline, -1
    while (count := len(list(grid.get_node_ids()))) < max(expected, 1):
        if count != shown:
            shown = count
            there = f"{count} of {expected} devices are" if expected else "no device is"
            log.info("%s connected yet, waiting up to %g seconds", there, deadline)
        if time.monotonic() > end:
            break
        time.sleep(_LOOK_AGAIN)
    if not count:
        raise ValueError(
            f"no SuperNode has connected in {deadline:g} seconds: start some as described in "
            "docs/devices.md, and look at their logs."
        )
    if count < expected:
        logger.warning(
            "the run starts with %d devices of %d, since no more have connected in %g seconds",
            *(count, expected, deadline),
        )


def _surveys(conversation: Conversation) -> dict[str, Survey]:
    """Return devices' descriptions of their data; exclude invalid ones and those of a minority."""
    registry = conversation.registry
    clients: dict[str, int] = {}
    surveys: dict[str, Survey] = {}
    for client, described in list(registry.descriptions.items()):
        try:
            survey = Survey.from_config(described)
        except ValueError as error:
            registry.leave_out(client, "survey", str(error))
            continue
        name = registry.names[client]
        clients[name], surveys[name] = client, survey
    if not surveys:
        why = next(iter(registry.failures.values()), "none is connected")
        raise RuntimeError(f"no device described its data: {why}")
    surveys = with_whole_numbers(surveys)
    for name, reason in outvoted(surveys).items():
        registry.leave_out(clients[name], "survey", reason)
        del surveys[name]
    return surveys
