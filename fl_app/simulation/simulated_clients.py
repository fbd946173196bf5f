"""Simulated clients: one data set for all of them; their tasks and attackers are known."""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.serverapp import Grid

from clients.features.compute import feature_map
from clients.signatures.uninformative import why_little_to_compare
from fl_app.config.run_config import PAPER_CLIENTS, Config
from fl_app.config.strategy_factory import Setting
from fl_app.results.run_result import RunResult, has_personal_models
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.client_pool import ClientPool
from fl_app.run.client_states import ConfigValues, restore_states, save_states, tested_models
from fl_app.run.grid_wrapper import GridWrapper
from fl_app.run.writer import ResultsFolder
from fl_core.data.folders import resolve_data_dir
from fl_core.data.samples import are_images
from fl_core.data.settings import REAL_DEVICES, SYNTHETIC
from fl_core.messages import protocol
from fl_core.partitions.federation import Federation, simulate_federation
from fl_core.partitions.tasks import are_random
from strategies import ClientRegistry, ClusteredStrategy, Conversation, RoundReport, Training

logger = logging.getLogger(__name__)


class Simulation(ClientPool):
    """Simulated clients, one for each connected node; a wrong number of nodes is a ValueError."""

    def __init__(self, config: Config, grid: Grid, checkpoints: Checkpoints) -> None:
        self._config, self._grid = config, grid
        self.num_clients = wait_for_nodes(grid, config.num_clients)
        if checkpoints.num_clients not in (0, self.num_clients):
            raise ValueError(
                f"{self.num_clients} SuperNodes are connected, but the run in {checkpoints.folder} "
                f"was started with {checkpoints.num_clients}: resume it with as many."
            )
        checkpoints.num_clients = self.num_clients
        self.num_at_start = self.num_clients - config.newcomers
        self._uninformative: dict[tuple[int, str], dict[int, str]] = {}
        self.message_config = {protocol.NUM_CLIENTS: self.num_clients}

    @property
    def known_clients(self) -> ClientRegistry:
        """Return clients' names, if they have some, without their nodes.

        Each strategy registers them again: clients then forget the state of an earlier one.
        """
        return ClientRegistry(names=dict(enumerate(self.names)))

    def _federation(self, seed: int) -> Federation:
        return simulate_federation(self._config.federation_settings(self.num_clients, seed))

    def setting(self, seed: int) -> Setting:
        """Return the values that strategies are built from, true tasks included."""
        federation = self._federation(seed)
        config = self._config.for_samples(federation.dataset)
        return Setting(config, federation.dataset, seed, federation)

    def resolved(self, config: Config) -> Config:
        """Return the configuration with the labels of each task and the data's folder.

        Drawn tasks stay as configured, since they differ by seed; so do those of synthetic data,
        which have all labels, and of writers.
        """
        federation = self._federation(config.seed)
        tasks = federation.partition.tasks
        labels = "|".join(",".join(map(str, task)) for task in tasks)
        drawn = (
            config.shift == "concept"
            or config.dataset == SYNTHETIC
            or config.partition == "writer"
            or are_random(config.tasks)
            or federation.dataset.given_partition is not None
        )
        return replace(
            config,
            num_tasks=len(tasks) if federation.knows_tasks else config.num_tasks,
            tasks=config.tasks if drawn else labels,
            data_dir=str(resolve_data_dir(config.data_dir)),
        )

    @property
    def names(self) -> Sequence[str]:
        """Return the names of natural sites; other clients have none."""
        return self._federation(self._config.seed).names

    def start(self, results: ResultsFolder) -> None:
        """Register the clients.

        A worker's first message waits for Ray, imports and data: this time is not part of the
        strategies' seconds.
        """
        self._results, self._saved = results, set[int]()
        entries = {**self.message_config, protocol.SEED: self._config.seed}
        for note in self._federation(self._config.seed).dataset.notes:
            logger.warning(note)
        conversation = Conversation(
            self._grid, entries, self._config.pre_round_deadline, Training(self.known_clients)
        )
        conversation.register_clients()
        self._nodes = conversation.nodes

    def begin_run(self, setting: Setting, done: int) -> Grid:
        """Save each seed's partition once, and hide newcomers' nodes until their round."""
        self._now = self._federation(setting.seed)
        if setting.seed not in self._saved:
            self._saved.add(setting.seed)
            self._results.add_federation(setting.seed, self._now)
        late = [self._nodes[c] for c in self._now.newcomers if c in self._nodes]
        self._arriving = ArrivingNodes(self._grid, late)
        if done:
            self._let_arrive(done + 1)
        return self._arriving

    def save_states(self, strategy: ClusteredStrategy, sent: ConfigValues) -> dict[int, Any]:
        """Return the clients' private layers and models, for a checkpoint."""
        return save_states(self._arriving, strategy, sent, self._config.round_deadline)

    def restore_states(self, states: Mapping[int, Any], sent: ConfigValues) -> None:
        """Give clients back their private state; a RuntimeError if one does not take it."""
        restore_states(self._arriving, self._nodes, states, sent, self._config.round_deadline)

    def after_round(self, report: RoundReport, strategy: ClusteredStrategy) -> None:
        """Remove the scores of malicious clients, which are no success; let newcomers arrive."""
        for client in self._now.malicious:
            report.validated.pop(client, None)
            for of_client in (*report.scores.values(), *report.other_scores.values()):
                of_client.pop(client, None)
        self._let_arrive(report.round + 1)

    def end_run(self, run: RunResult, strategy: ClusteredStrategy, sent: ConfigValues) -> None:
        """Fetch the models that clients tested, where these are not the server's."""
        if has_personal_models(strategy):
            found = tested_models(self._arriving, strategy, sent, self._config.round_deadline)
            run.models.update({f"client-{client}": model for client, model in found.items()})

    def _let_arrive(self, next_round: int) -> None:
        if next_round >= self._config.newcomer_round:
            self._arriving.arrive()

    def note_uninformative(self, setting: Setting, strategy: ClusteredStrategy) -> None:
        """Note which clients' features say little; they are computed once for each seed."""
        clusters, clustering = strategy.clusters, strategy.clustering
        compares_features = clustering.shares == "eigenvectors" and not clustering.compares_raw
        if clusters.uninformative is None and compares_features:
            of = (setting.seed, setting.config.features)
            if of not in self._uninformative:
                federation = self._federation(setting.seed)
                self._uninformative[of] = uninformative_clients(of[1], federation)
            poor = self._uninformative[of]
            strategy.training.clusters = replace(clusters, uninformative=poor)


class ArrivingNodes(GridWrapper):
    """A grid that hides the nodes of late clients: a simulation connects all at the start."""

    def __init__(self, grid: Grid, late: Collection[int]) -> None:
        super().__init__(grid)
        self._late = set(late)

    def arrive(self) -> None:
        """Show all nodes from now on."""
        self._late = set()

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that have arrived."""
        return [node for node in self._grid.get_node_ids() if node not in self._late]


def uninformative_clients(features: str, federation: Federation) -> dict[int, str]:
    """Return why clients' features say little, of samples that are no images."""
    data = federation.dataset
    if are_images(data.sample_shape, is_float=data.is_float):
        return {}
    phi, found = feature_map(features), {}
    for client in range(federation.partition.num_clients):
        samples = federation.training_data(client, 0)[0].cpu()
        both = samples.numpy(), phi(samples).numpy()
        found[client] = why_little_to_compare(features, *both, data.column_names)
    return {client: why for client, why in found.items() if why}


def wait_for_nodes(grid: Grid, expected: int, patience: float = 3.0) -> int:
    """Return the number of connected SuperNodes once it is `expected`, or, for 0, stays the same.

    Flower's simulation registers its nodes while the ServerApp is starting: for `patience` seconds
    nothing may change. Another number is a ValueError with the command that mends it.
    """
    count, since = -1, time.monotonic()
    while (now := len(list(grid.get_node_ids()))) != expected or not expected:
        if now != count:
            count, since = now, time.monotonic()
        if time.monotonic() - since > patience / (1 if expected or not count else 3):
            break
        time.sleep(0.05)
    if now and now == (expected or now):
        return now
    raise ValueError(
        f"num-clients is {expected or 'all'}, but {now} SuperNodes are connected. In simulation, "
        f'run: flwr run . --stream --federation-config "num-supernodes={expected or PAPER_CLIENTS} '
        f'client-resources-num-cpus=1" with your --run-config (or set num-clients to '
        f'{now or 2}); on real devices, set dataset to "{REAL_DEVICES}".'
    )
