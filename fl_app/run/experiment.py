"""One run of the app: every strategy on every seed, on the same partitions, then the results."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from clients.settings import AUTO
from fl_app.config.data_checks import check_fits
from fl_app.config.rules import check_num_clusters, one_shot, shares_eigenvectors
from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import (
    Setting,
    able_strategies,
    build_strategy,
    initial_model,
    tried_settings,
    wanted_clusters,
    with_values,
)
from fl_app.config.tuning import (
    OF_TRAINING,
    combinations,
    label_of,
    num_trainings,
)
from fl_app.results.layout import output_folder
from fl_app.results.run_result import RunResult
from fl_app.results.tuning import best_of
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.client_pool import Meet, World
from fl_app.run.early_stopping import EnoughRounds, Reports, why_enough
from fl_app.run.personal_store import compare_again
from fl_app.run.progress import Progress
from fl_app.run.quorum import QuorumGrid
from fl_app.run.status import Status
from fl_app.run.tracking import Tracking, check_tracker
from fl_app.run.writer import ResultsFolder
from fl_core.extras import DRAWING, need_extra
from fl_core.messages import protocol
from fl_core.metrics import Metrics, metrics_of
from fl_core.options import Scalar
from strategies import ClusteredStrategy, Clusters, RoundReport
from strategies.catalogue import ALONE

Redraw = Callable[[ClusteredStrategy, Config, int], Clusters]
"""From a strategy that has grouped its clients, the configuration and the seed to its clusters, and
how they would be on data drawn again."""


def run_experiment(
    config: Config,
    grid: Grid,
    meet: Meet,
    *,
    redraw: Redraw | None = None,
    command: str = "",
) -> Path:
    """Run `config.strategy` for `config.repeats` seeds, write the results and return their folder.

    What can be checked is checked before the first training; each run's results are written as soon
    as it ends, so a later failure loses none of them. Without any round, clients are only grouped.

    Parameters
    ----------
    meet : callable
        Waits for the clients: a `Simulation`, or `fl_app.devices.devices_run.Devices`.
    redraw : callable, optional
        Says how sure clusters are, where clients are only grouped and their images are at hand;
        otherwise the server does, by what it was told.
    command : str
        That does the same again; by default, made from the configuration.

    Raises
    ------
    ValueError, OSError, RuntimeError, ImportError
        One sentence that says what is wrong and what to do.
    """
    checkpoints = Checkpoints(config, output_folder(config.output_dir, config.resume))
    for package in DRAWING:
        need_extra(package, "a server, which draws pictures,")
    check_tracker(config.track)
    status = Status()
    if isinstance(grid, QuorumGrid):
        grid.listener = status
    with status.running():
        status.doing("meeting the clients")
        world = meet(config, grid, checkpoints)
        _run_all(config, world, checkpoints, status, redraw, command)
    return checkpoints.folder


def _run_all(
    config: Config,
    world: World,
    checkpoints: Checkpoints,
    status: Status,
    redraw: Redraw | None,
    command: str,
) -> None:
    seeds = range(config.seed, config.seed + config.repeats)
    status.doing(f"reading {config.dataset}")
    for seed in reversed(seeds):  # the first seed last: it is still in memory when it is needed
        setting = world.setting(seed)
    status.doing("preparing what strategies need")
    is_automatic = config.features == AUTO
    config, left_out = able_strategies(setting)
    setting = setting._replace(config=config)
    check(setting, world.num_at_start)
    trainings = num_trainings(config.tune, config.strategy)
    progress = Progress(len(seeds) * trainings * config.num_server_rounds)
    if is_automatic and shares_eigenvectors(config.strategy):
        progress.took_features(setting.config.features, setting.images)
    with checkpoints.only_run():
        status.write_to(checkpoints.folder)
        results = ResultsFolder(resolved(setting, world, checkpoints.folder), command, left_out)
        for name, why in left_out.items():
            print(f"{name} is left out: {why}", flush=True)
        status.doing("waiting until all clients have started and have their data")
        world.begin(results, progress)
        if not config.num_server_rounds:
            for name in one_shot(config.strategy):
                grouped = group_only(name, setting, world, status, redraw)
                results.add_grouping_alone(
                    name, setting.seed, grouped, setting.images, setting.federation
                )
            results.finish_grouping()
            return
        with closing(Tracking(results.config)) as tracking:
            watchers = Watchers(progress, status, tracking)
            for seed in seeds:
                setting = world.setting(seed)
                for name in config.strategy:
                    # Staying alone is what all others are compared with: none of them ends it.
                    before = [run.reports for run in results.runs if run.seed == seed]
                    rivals = [] if name == ALONE else before
                    run, strategy = run_best(name, setting, world, watchers, checkpoints, rivals)
                    world.note_uninformative(setting, strategy)
                    results.add_run(run, strategy, setting.images, setting.federation)
                if config.validation_share:
                    world.end_seed(seed, results.judge(seed))
                    results.end_seed()
            status.doing("drawing pictures")
            results.finish()


def measured(setting: Setting) -> Metrics:
    """Return what tests of a run measure."""
    own = setting.config.metric.partition(":")[2]
    return metrics_of(is_regression=setting.images.is_regression, own=own)


class Watchers(NamedTuple):
    """Who is told of every round."""

    progress: Progress
    status: Status
    tracking: Tracking


def group_only(
    name: str, setting: Setting, world: World, status: Status, redraw: Redraw | None
) -> ClusteredStrategy:
    """Run a strategy's pre-round, and nothing else."""
    config, seed = setting.config, setting.seed
    grid = world.begin_run(setting, 0)
    status.begin_run(name, seed, 0, 0)
    options = {
        "seed": seed,
        "pre_round_timeout": config.pre_round_deadline,
        "met": world.met,
    }
    strategy = build_strategy(name, setting, options)
    status.watch(lambda: strategy.training.roster)
    with _quiet_flower():
        strategy.group(grid, config.round_deadline, told_to_all(world, seed, {}))
    if redraw is not None:
        status.doing(f"{name}, seed {seed}, how sure its clusters are")
        strategy.training.clusters = redraw(strategy, config, seed)
    else:
        world.note_uninformative(setting, strategy)
    return strategy


def resolved(setting: Setting, world: World, folder: Path) -> Config:
    """Return the configuration with its references replaced by what they stand for."""
    config = replace(
        setting.config,
        num_clients=world.num_clients,
        num_clusters=wanted_clusters(setting) or setting.config.num_clusters,
        output_dir=str(folder),
    )
    return world.resolved(config)


def run_best(
    name: str,
    setting: Setting,
    world: World,
    watchers: Watchers,
    checkpoints: Checkpoints,
    rivals: Sequence[Reports],
) -> tuple[RunResult, ClusteredStrategy]:
    """Run one strategy on one seed with each of the values that it tries, and take the best.

    What the values before one have come to is a rival of it, too (`why_enough`).
    """
    runs: list[RunResult] = []
    strategies: dict[str, ClusteredStrategy] = {}
    tried = combinations(setting.config.tune, name)
    for values in tried:
        beaten_by = [*rivals, *(run.reports for run in runs)]
        run, strategy = run_strategy(
            name,
            with_values(setting, values),
            world,
            watchers,
            checkpoints,
            beaten_by,
            values,
        )
        watchers.tracking.end_run()
        world.end_run(run, strategy)
        runs.append(run)
        strategies[run.label] = strategy
    if len(runs) == 1:
        return run, strategy
    best = best_of(runs, tried)
    watchers.progress.chose(best.label, best.seed, len(runs))
    return best, strategies[best.label]


def run_strategy(
    name: str,
    setting: Setting,
    world: World,
    watchers: Watchers,
    checkpoints: Checkpoints,
    rivals: Sequence[Reports],
    values: Mapping[str, Scalar],
) -> tuple[RunResult, ClusteredStrategy]:
    """Run one strategy on one seed, or what an interruption has left of it.

    The setting has the `values` that it tries, which are part of what it is called on the way. It
    ends early if its `rivals` are better for everybody.
    """
    config, seed = setting.config, setting.seed
    progress, status, tracking = watchers
    label = label_of(name, values)
    show = progress.reporter(label, seed)
    checkpoint = checkpoints.load(label, seed, setting.images)
    done, before, rounds = 0, 0.0, config.num_server_rounds
    if checkpoint is not None:
        done, before = checkpoint["strategy"]["round"], float(checkpoint["seconds"])
    told = told_to_all(world, seed, values)
    grid = world.begin_run(setting, done)
    status.begin_run(label, seed, done, config.num_server_rounds)
    tracking.begin_run(label, seed, done, values)
    started = time.perf_counter()
    why_it_ends = partial(why_enough, patience=config.early_stopping, rivals=rivals)

    def seconds() -> float:
        return before + time.perf_counter() - started

    def on_round(report: RoundReport) -> None:
        world.after_round(report, strategy, show)
        status.after_round(
            report, strategy.training.roster, progress.rounds_left, progress.seconds_left()
        )
        tracking.after_round(report, seconds(), setting.federation)
        if checkpoints.is_due(report):
            if strategy.local.keeps_state:
                states = world.keep_states(strategy, told)
                checkpoints.save_personal(label, seed, report.round, states)
            checkpoints.save(label, seed, strategy, seconds(), setting.images)
        if report.round < report.num_rounds and (why := why_it_ends(strategy.reports)):
            progress.ended(label, seed, report, why)
            raise EnoughRounds

    strategy = build_strategy(
        name,
        setting,
        {
            "fraction_train": config.fraction_train,
            "evaluate_every": config.evaluate_every,
            "fraction_evaluate": config.fraction_evaluate,
            "seed": seed,
            "on_round": on_round,
            "pre_round_timeout": config.pre_round_deadline,
            "met": world.met,
            "secure_aggregation": config.secure_aggregation,
            "metrics": measured(setting),
        },
    )
    if checkpoint is not None:
        strategy.resume(checkpoint["strategy"])
        if strategy.local.keeps_state:
            theirs = {**told, protocol.TRAINING: checkpoint["strategy"]["identity"]}
            world.restore_states(checkpoints.load_personal(label, seed, done), theirs)
        progress.resumed(label, seed, done)
        if done < rounds and (why := why_it_ends(reports := _reports_in(checkpoint))):
            progress.ended(label, seed, reports[-1], why)
            rounds = done
    tested = candidate_of(label, told) if config.validation_share else told
    status.watch(lambda: strategy.training.roster)
    with _quiet_flower(), suppress(EnoughRounds):
        strategy.start(
            grid,
            ArrayRecord(initial_model(setting).state_dict()),
            rounds,
            config.round_deadline,
            train_config=told,
            evaluate_config=tested,
        )
    run = RunResult.of(name, seed, strategy, seconds(), setting.federation, label)
    if done == rounds and config.validation_share:
        compare_again(grid, strategy, tested, config.round_deadline)
    return run, strategy


def _reports_in(checkpoint: Mapping[str, Any]) -> list[RoundReport]:
    return [RoundReport(**report) for report in checkpoint["strategy"]["reports"]]


def told_to_all(world: World, seed: int, values: Mapping[str, Scalar]) -> ConfigRecord:
    """Return what every message of a strategy tells, with the values that clients train by."""
    told = ConfigRecord({**world.told, protocol.SEED: seed})
    if of_training := {key: value for key, value in values.items() if key in OF_TRAINING}:
        told[protocol.TUNED] = json.dumps(of_training)
    return told


def candidate_of(label: str, told: ConfigRecord) -> ConfigRecord:
    """Return what tests are told where clients compare the strategies' models."""
    return ConfigRecord({**told, protocol.CANDIDATE: label})


def check(setting: Setting, num_clients: int) -> None:
    """Refuse what no strategy could work with, before `num_clients` clients begin to train.

    Raises
    ------
    ValueError, OSError, ImportError
        As `check_fits`; if an encoder cannot be had, or there are more clusters than clients.
    """
    check_fits(setting.config, setting.images, setting.federation)
    for name in setting.config.strategy:
        for tried in tried_settings(setting, name):
            build_strategy(name, tried, {})
            check_num_clusters([name], wanted_clusters(tried) or 1, num_clients)


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
