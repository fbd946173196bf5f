"""One run of the app: every strategy on every seed, on the same partitions, then the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues
from flwr.serverapp import Grid

from clients.features import feature_dimension, feature_map
from fl_app.checkpoints import Checkpoints
from fl_app.config import OWN_IMAGES, Config, output_folder
from fl_app.devices.handing_out import hand_out_models
from fl_app.grids import ArrivingNodes
from fl_app.report.progress import Progress
from fl_app.report.results import Results, RunResult
from fl_app.systems import Setting, build_strategy, initial_model, wanted_clusters
from fl_core import protocol
from fl_core.datasets import resolve_data_dir
from fl_core.extras import need_extra
from fl_core.federation import simulate_federation
from fl_core.models import ImageShape
from fl_core.own_images import Survey, agree
from strategies import ClusteredStrategy, Conversation, Roster, RoundReport
from strategies.base import Options
from strategies.catalogue import system_of
from strategies.flt import SignatureClustering

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 0.5  # seconds


def run_experiment(config: Config, grid: Grid) -> None:
    """Run `config.strategy` for `config.repeats` seeds and write the results.

    What can be checked is checked before the first training; each run's results are written as soon
    as it ends, so a later failure loses none of them.

    Raises
    ------
    ValueError, OSError, RuntimeError, ImportError
        One sentence that says what is wrong and what to do.
    """
    checkpoints = Checkpoints(config, output_folder(config.output_dir, config.resume))
    need_extra("matplotlib", "a server, which draws pictures,")
    if config.dataset == OWN_IMAGES:
        _run_on_devices(config, grid, checkpoints)
    else:
        _simulate(config, grid, checkpoints)


def _simulate(config: Config, grid: Grid, checkpoints: Checkpoints) -> None:
    num_clients = wait_for_nodes(grid, config.num_clients)
    if checkpoints.num_clients not in (0, num_clients):
        raise ValueError(
            f"{num_clients} SuperNodes are connected, but the run in {checkpoints.folder} was "
            f"started with {checkpoints.num_clients}: resume it with as many."
        )
    checkpoints.num_clients = num_clients
    seeds = _seeds(config)

    def setting_of(seed: int) -> Setting:
        federation = simulate_federation(config.federation_settings(num_clients, seed))
        return Setting(config, federation.dataset, seed, federation)

    for seed in reversed(seeds):  # the first seed last: it is still in memory when it is needed
        first = setting_of(seed)
    check(first, num_clients - config.newcomers)
    progress = _progress(config)
    told = {protocol.NUM_CLIENTS: num_clients}
    with checkpoints.only_run():
        results = Results(resolved(first, num_clients, checkpoints.folder))
        progress.begin(config, num_clients, results.folder)
        # The first message to a worker waits for Ray, imports and data: kept out of the
        # strategies' seconds.
        roll = Conversation(grid, {**told, protocol.SEED: config.seed}, config.pre_round_deadline)
        roll.call_roll()
        progress.clients_ready()
        _run_all(setting_of, told, grid, roll, results, progress, checkpoints)


def _run_on_devices(config: Config, grid: Grid, checkpoints: Checkpoints) -> None:
    """Let the devices agree on their classes and the shape of images, then run."""
    known = len(checkpoints.names)  # a run that is resumed waits for those it had
    wait_for_devices(grid, config.num_clients or known, config.pre_round_deadline)
    roll = Conversation(
        grid,
        {protocol.SEED: config.seed},
        config.pre_round_deadline,
        Roster(by_name=True, names=dict(checkpoints.names)),
    )
    roll.call_roll()
    agreement = checkpoints.agreement or agree(_surveys(roll))
    checkpoints.agreement = agreement

    def setting_of(seed: int) -> Setting:
        return Setting(config, agreement, seed)

    first = setting_of(config.seed)
    check(first, len(roll.nodes))
    progress = _progress(config)
    names = [roll.roster.names[client] for client in roll.nodes]
    told: dict[str, ConfigRecordValues] = {**agreement.as_config()}
    with checkpoints.only_run():
        results = Results(resolved(first, len(roll.roster.names), checkpoints.folder))
        progress.meet(names, agreement, config, results.folder)
        _run_all(setting_of, told, grid, roll, results, progress, checkpoints)


def _surveys(roll: Conversation) -> dict[str, Survey]:
    """Return what each device tells of its images; one that tells nothing sensible is left out.

    Raises
    ------
    RuntimeError
        If none is left.
    """
    surveys = {}
    for client, described in list(roll.roster.descriptions.items()):
        try:
            surveys[roll.roster.names[client]] = Survey.from_config(described)
        except ValueError as error:
            roll.leave_out(client, "survey of images", str(error))
    if not surveys:
        raise RuntimeError(
            "no device told of its images: "
            + next(iter(roll.roster.failures.values()), "none is there")
        )
    return surveys


def _run_all(
    setting_of: Callable[[int], Setting],
    told: Mapping[str, ConfigRecordValues],
    grid: Grid,
    roll: Conversation,
    results: Results,
    progress: Progress,
    checkpoints: Checkpoints,
) -> None:
    """Run every strategy on every seed; devices keep the models of the first of them.

    Parameters
    ----------
    setting_of : callable
        From a seed.
    told : mapping
        What every message tells a client, beside the seed.
    roll : Conversation
        In which the clients were met.
    """
    for seed in _seeds(results.config):
        setting = setting_of(seed)
        if setting.federation is not None:
            results.add_federation(seed, setting.federation)
        sent = ConfigRecord({**told, protocol.SEED: seed})
        for name in setting.config.strategy:
            if setting.federation is None and results.runs:
                roll.admit_newcomers()  # so that every strategy begins with all that are there
            run, strategy = run_strategy(name, setting, sent, grid, roll, progress, checkpoints)
            if setting.federation is None and not results.runs:
                card = ConfigRecord({**sent, protocol.STRATEGY: name})
                deadline = setting.config.round_deadline
                run.not_kept.update(hand_out_models(strategy, grid, card, deadline))
                progress.handed_out(run.not_kept, strategy.training.roster.names)
            results.add_run(run, strategy, setting.federation)
    results.finish()


def _seeds(config: Config) -> range:
    return range(config.seed, config.seed + config.repeats)


def _progress(config: Config) -> Progress:
    return Progress(config.repeats * len(config.strategy) * config.num_server_rounds)


def resolved(setting: Setting, num_clients: int, folder: Path) -> Config:
    """Return the configuration with its references replaced by what they stand for."""
    config = replace(
        setting.config,
        num_clients=num_clients,
        num_clusters=wanted_clusters(setting) or setting.config.num_clusters,
        output_dir=str(folder),
    )
    if setting.federation is None:
        return config
    tasks = setting.federation.partition.tasks
    return replace(
        config,
        num_tasks=len(tasks),
        tasks="|".join(",".join(map(str, task)) for task in tasks),
        data_dir=str(resolve_data_dir(config.data_dir)),
    )


def run_strategy(
    name: str,
    setting: Setting,
    sent: ConfigRecord,
    grid: Grid,
    roll: Conversation,
    progress: Progress,
    checkpoints: Checkpoints,
) -> tuple[RunResult, ClusteredStrategy]:
    """Run one strategy on one seed, or what an interruption has left of it.

    Parameters
    ----------
    sent : ConfigRecord
        What every message tells a client.
    roll : Conversation
        In which the clients were met.
    """
    config, seed, federation = setting.config, setting.seed, setting.federation
    malicious, newcomers = (federation.malicious, federation.newcomers) if federation else ((), ())
    arriving = ArrivingNodes(grid, [roll.nodes[c] for c in newcomers if c in roll.nodes])
    report = progress.reporter(name, seed)
    checkpoint = checkpoints.load(name, seed)
    before = 0.0 if checkpoint is None else float(checkpoint["seconds"])
    started = time.perf_counter()

    def seconds() -> float:
        return before + time.perf_counter() - started

    known: set[int] = set()

    def on_round(of_round: RoundReport) -> None:
        # What a malicious client gets is nobody's success.
        for client in malicious:
            of_round.accuracies.pop(client, None)
            of_round.losses.pop(client, None)
        report(of_round)
        clusters = strategy.clusters.of_client
        names = strategy.training.roster.names
        if names and known:
            for client in sorted(clusters.keys() - known):
                progress.joined(names[client], of_round.round, clusters[client])
        known.update(clusters)
        if checkpoints.is_due(of_round):
            checkpoints.save(name, seed, strategy, seconds())
        if of_round.round + 1 >= config.newcomer_round:
            arriving.arrive()

    options: Options = {
        "fraction_train": config.fraction_train,
        "evaluate_every": config.evaluate_every,
        "seed": seed,
        "on_round": on_round,
        "pre_round_timeout": config.pre_round_deadline,
        # In a simulation, clients are asked again: they forget what an earlier strategy left there.
        "met": roll.roster if federation is None else None,
    }
    strategy = build_strategy(name, setting, options)
    if checkpoint is not None:
        strategy.resume(checkpoint["strategy"])
        progress.resumed(name, seed, checkpoint["strategy"]["round"])
        if checkpoint["strategy"]["round"] + 1 >= config.newcomer_round:
            arriving.arrive()
    with _quiet_flower():
        result = strategy.start(
            arriving,
            ArrayRecord(initial_model(setting).state_dict()),
            config.num_server_rounds,
            config.round_deadline,
            train_config=sent,
            evaluate_config=sent,
        )
    return RunResult.of(name, seed, strategy, result.arrays, seconds(), federation), strategy


def wait_for_nodes(grid: Grid, wanted: int, patience: float = 3.0) -> int:
    """Return the number of connected SuperNodes once it is `wanted`, or, for 0, has settled.

    Flower's simulation registers its nodes while the ServerApp is starting.

    Parameters
    ----------
    grid : Grid
        Flower's way to the nodes.
    wanted : int
        The number that must be connected; 0: as many as there are.
    patience : float
        Seconds without a change after which the number counts as settled.

    Raises
    ------
    ValueError
        If another number is connected: it holds the command that fixes it.
    """
    count, since = -1, time.monotonic()
    while True:
        now = len(list(grid.get_node_ids()))
        if now == wanted > 0:
            return now
        if now != count:
            count, since = now, time.monotonic()
        if time.monotonic() - since > patience / (1 if wanted or not count else 3):
            break
        time.sleep(0.05)
    if count and not wanted:
        return count
    need = wanted or 25
    raise ValueError(
        f"num-clients is {wanted or 'all'}, but {count} SuperNodes are connected. In simulation, "
        f'run: flwr run . --stream --federation-config "num-supernodes={need} '
        f'client-resources-num-cpus=1" with your --run-config (or set num-clients to '
        f'{count or 2}); on real devices, set dataset to "{OWN_IMAGES}".'
    )


def wait_for_devices(grid: Grid, wanted: int, deadline: float) -> None:
    """Wait until `wanted` devices are connected, or one; after the deadline, begin with fewer.

    Parameters
    ----------
    grid : Grid
        Flower's way to the nodes.
    wanted : int
        0: as many as there are once the first has come.
    deadline : float
        Seconds.

    Raises
    ------
    ValueError
        If no device has come.
    """
    started = time.monotonic()
    shown = -1
    while (count := len(list(grid.get_node_ids()))) < max(wanted, 1):
        if count != shown:
            shown = count
            there = f"{count} of {wanted} devices are" if wanted else "no device is"
            print(f"{there} connected yet, waiting up to {deadline:g} seconds", flush=True)
        if time.monotonic() - started > deadline:
            break
        time.sleep(_LOOK_AGAIN)
    if not count:
        raise ValueError(
            f"no SuperNode has connected in {deadline:g} seconds: start some, as docs/devices.md "
            "says, and look at their logs."
        )
    if count < wanted:
        logger.warning(
            "num-clients is %d, but %d SuperNodes are connected after %g seconds: they begin",
            *(wanted, count, deadline),
        )


def check(setting: Setting, num_clients: int) -> None:
    """Refuse what no strategy could work with, on any seed, before anything is trained.

    Parameters
    ----------
    setting : Setting
        Of the first seed.
    num_clients : int
        Who are there at the start.

    Raises
    ------
    ValueError, OSError, ImportError
        If the model or the features do not suit the images, weights cannot be had, there are more
        eigenvectors than features, more clusters than clients, or no number of clusters where a
        strategy needs one.
    """
    config = setting.config
    initial_model(setting)
    clusterings = {system_of(name).clustering for name in config.strategy}
    if any(issubclass(clustering, SignatureClustering) for clustering in clusterings):
        need_extra("umap", "the clustering signature (flt)", "use pca-km-hc")
    if any(clustering.shares == "eigenvectors" for clustering in clusterings):
        _check_features(config, setting.images.image_shape)
    for name in config.strategy:
        build_strategy(name, setting, {})
    wanted = wanted_clusters(setting) or 1
    if wanted > num_clients and any(clustering.exact_number for clustering in clusterings):
        raise ValueError(
            f"num-clusters is {wanted}, but there are {num_clients} clients"
            f"{' at the start' if config.newcomers else ''}: choose 1 to {num_clients}."
        )


def _check_features(config: Config, image_shape: ImageShape) -> None:
    weights = Path(config.feature_weights).expanduser() if config.feature_weights else None
    feature_map(config.features, weights=weights)
    dimension = feature_dimension(config.features, image_shape)
    if config.num_eigenvectors > dimension:
        raise ValueError(
            f"num-eigenvectors is {config.num_eigenvectors}, but {config.features} features of "
            f"these images have {dimension} dimensions: choose 1 to {dimension}."
        )


@contextmanager
def _quiet_flower() -> Iterator[None]:
    """Keep Flower's round-by-round log out of the way of ours; its warnings stay."""
    flower = logging.getLogger("flwr")
    level = flower.level
    flower.setLevel(logging.WARNING)
    try:
        yield
    finally:
        flower.setLevel(level)
