"""One run of the app: every strategy on every seed, on the same partitions, then the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from clients.features import feature_dimension, feature_map
from fl_app.arrivals import ArrivingNodes
from fl_app.config import Config, output_folder
from fl_app.progress import Progress
from fl_app.results import Results, RunResult
from fl_app.systems import (
    Setting,
    build_strategy,
    clusterings_of,
    initial_model,
    wanted_clusters,
)
from fl_core import protocol
from fl_core.datasets import resolve_data_dir
from fl_core.federation import Federation, simulate_federation
from strategies import ClusteredStrategy, Conversation, RoundReport
from strategies.base import Options

TIMEOUT = 3600.0
"""Seconds to wait for the replies to one message; Flower's default."""


def run_experiment(config: Config, grid: Grid) -> None:
    """Run `config.strategy` for `config.repeats` seeds and write the results.

    What can be checked is checked before the first message; each run's results are written as soon
    as it ends, so a later failure loses none of them.

    Raises
    ------
    ValueError, OSError, RuntimeError
        One sentence that says what is wrong and what to do.
    """
    num_clients = wait_for_nodes(grid, config.num_clients)
    seeds = range(config.seed, config.seed + config.repeats)

    def federation_of(seed: int) -> Federation:
        return simulate_federation(config.federation_settings(num_clients, seed))

    for seed in reversed(seeds):  # the first seed last: it is still in memory when it is needed
        first = federation_of(seed)
    check(config, first)
    results = Results(resolved(config, first))
    progress = Progress(len(seeds) * len(config.strategy) * config.num_server_rounds)
    progress.begin(config, num_clients, results.folder)
    # The first message to a worker waits for Ray, imports and data: kept out of the strategies'
    # seconds.
    roll = Conversation(grid, _sent(config.seed, num_clients), TIMEOUT)
    roll.call_roll()
    progress.clients_ready()
    for seed in seeds:
        federation = federation_of(seed)
        results.add_federation(seed, federation)
        for name in config.strategy:
            run, strategy = run_strategy(
                name, Setting(config, federation, seed), grid, roll.nodes, progress
            )
            results.add_run(run, strategy, federation)
    results.finish()


def resolved(config: Config, federation: Federation) -> Config:
    """Return the configuration with its references replaced by what they stand for."""
    partition = federation.partition
    return replace(
        config,
        num_clients=partition.num_clients,
        num_tasks=len(partition.tasks),
        tasks="|".join(",".join(map(str, task)) for task in partition.tasks),
        num_clusters=wanted_clusters(config, federation) or config.num_clusters,
        data_dir=str(resolve_data_dir(config.data_dir)),
        output_dir=str(output_folder(config.output_dir)),
    )


def run_strategy(
    name: str,
    setting: Setting,
    grid: Grid,
    nodes: Mapping[int, int],
    progress: Progress,
) -> tuple[RunResult, ClusteredStrategy]:
    """Run one strategy on one seed.

    Parameters
    ----------
    nodes : mapping of int
        From client index to node id, for those that appear late.
    """
    config, federation, seed = setting
    arriving = ArrivingNodes(grid, [nodes[c] for c in federation.newcomers if c in nodes])
    report = progress.reporter(name, seed)

    def on_round(of_round: RoundReport) -> None:
        # What a malicious client gets is nobody's success.
        for client in federation.malicious:
            of_round.accuracies.pop(client, None)
            of_round.losses.pop(client, None)
        report(of_round)
        if of_round.round + 1 == config.newcomer_round:
            arriving.arrive()

    options: Options = {
        "fraction_train": config.fraction_train,
        "evaluate_every": config.evaluate_every,
        "seed": seed,
        "on_round": on_round,
    }
    strategy = build_strategy(name, setting, options)
    model = initial_model(config, federation, seed)
    sent = _sent(seed, federation.partition.num_clients)
    started = time.perf_counter()
    with _quiet_flower():
        result = strategy.start(
            arriving,
            ArrayRecord(model.state_dict()),
            config.num_server_rounds,
            TIMEOUT,
            train_config=ConfigRecord({**sent}),
            evaluate_config=ConfigRecord({**sent}),
        )
    total = time.perf_counter() - started
    return RunResult.of(name, seed, strategy, federation, result.arrays, total), strategy


def _sent(seed: int, num_clients: int) -> dict[str, int]:
    """Return what every message tells a client, for it to know which data it holds."""
    return {protocol.SEED: seed, protocol.NUM_CLIENTS: num_clients}


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
        f"{count or 2}); on devices, start {'more' if count < need else 'fewer'} SuperNodes."
    )


# Clusterings that make exactly as many clusters as they are told.
_EXACT_NUMBER = {"spectral", "signature", "linear-signature", "loss-inhabited"}


def check(config: Config, federation: Federation) -> None:
    """Refuse what no strategy could work with, on any seed, before anything is sent.

    Raises
    ------
    ValueError, OSError, ImportError
        If the model or the features do not suit the images, weights cannot be had, there are more
        eigenvectors than features, more clusters than clients, or no number of clusters where a
        strategy needs one.
    """
    initial_model(config, federation, config.seed)
    clusterings = clusterings_of(config.strategy)
    if "spectral" in clusterings:
        _check_features(config, federation)
    for name in config.strategy:
        build_strategy(name, Setting(config, federation, config.seed), {})
    wanted = wanted_clusters(config, federation) or 1
    clients = federation.partition.num_clients - config.newcomers
    if wanted > clients and clusterings & _EXACT_NUMBER:
        raise ValueError(
            f"num-clusters is {wanted}, but there are {clients} clients"
            f"{' at the start' if config.newcomers else ''}: choose 1 to {clients}."
        )


def _check_features(config: Config, federation: Federation) -> None:
    weights = Path(config.feature_weights).expanduser() if config.feature_weights else None
    feature_map(config.features, weights=weights)
    dimension = feature_dimension(config.features, federation.dataset.image_shape)
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
