"""One run of the app: every strategy on every seed, on the same partitions, then the results."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp import Grid

from clients.settings import AUTO
from fl_app.config.data_checks import check_samples
from fl_app.config.rules import check_num_clusters, one_shot, shares_eigenvectors
from fl_app.config.run_config import Config
from fl_app.config.strategy_factory import (
    Setting,
    build_strategy,
    fixed_num_clusters,
    initial_model,
    runnable_strategies,
    tried_settings,
    with_values,
)
from fl_app.config.tuning import OF_TRAINING, combinations, label_of
from fl_app.results.falls import describe_falls, find_falls
from fl_app.results.layout import output_folder
from fl_app.results.run_result import RunResult
from fl_app.results.tuning import best_of
from fl_app.run.checkpoints import Checkpoints
from fl_app.run.client_pool import ClientPool, ConnectClients
from fl_app.run.client_states import repeat_test
from fl_app.run.early_stopping import StopEarly, has_stopped_improving
from fl_app.run.log import COURSE, log, log_to_console, log_to_file
from fl_app.run.progress import Progress, kind_of
from fl_app.run.quorum import QuorumGrid
from fl_app.run.tracking import Tracking, check_tracker
from fl_app.run.writer import ResultsFolder
from fl_core.extras import DRAWING, need_extra
from fl_core.messages import protocol
from fl_core.metrics import metrics_of
from fl_core.options import Scalar
from strategies import ClusteredStrategy, Clusters, RoundReport

Redraw = Callable[[ClusteredStrategy, Config, int], Clusters]
"""From a strategy that has grouped its clients, the configuration and the seed to its clusters, and
how they would be on data drawn again."""


def run_experiment(
    config: Config,
    grid: Grid,
    connect: ConnectClients,
    *,
    redraw: Redraw | None = None,
    command: str = "",
) -> Path:
    """Run `config.strategy` for `config.repeats` seeds, write the results and return their folder.

    What can be checked is checked before the first training; each run's results are written as soon
    as it ends, so a later failure loses none of them. Without any round, clients are only grouped;
    where their samples are at hand, `redraw` computes how certain the clusters are. `command` does
    the same again; by default, it is made from the configuration.
    """
    checkpoints = Checkpoints(config, output_folder(config.output_dir, config.resume))
    for package in DRAWING:
        need_extra(package, "a server, which draws pictures,")
    check_tracker(config.track)
    progress = Progress()
    if isinstance(grid, QuorumGrid):
        grid.listener = progress
    with log_to_console(), progress.running():
        progress.doing("waiting for the clients")
        clients = connect(config, grid, checkpoints)
        _Experiment(clients, checkpoints, progress).run(config, redraw, command)
    return checkpoints.folder


class _Experiment:
    """A run with connected clients."""

    def __init__(self, clients: ClientPool, checkpoints: Checkpoints, progress: Progress) -> None:
        self._clients, self._checkpoints, self._progress = clients, checkpoints, progress

    def run(self, config: Config, redraw: Redraw | None, command: str) -> None:
        clients, progress, folder = self._clients, self._progress, self._checkpoints.folder
        seeds = range(config.seed, config.seed + config.repeats)
        progress.doing(f"reading {config.dataset}")
        for seed in reversed(seeds):  # the first seed last: it is still in memory when it is needed
            setting = clients.setting(seed)
        progress.doing("preparing what strategies need")
        is_automatic = config.features == AUTO
        config, left_out = runnable_strategies(setting)
        setting = setting._replace(config=config)
        _check(setting, clients.num_at_start)
        config = replace(config, validation_folds=_num_folds(setting))
        with self._checkpoints.only_run(), log_to_file(folder):
            progress.write_to(folder)
            agreed = setting._replace(config=config.for_strategies(*config.strategy))
            resolved = replace(
                config,
                num_clients=clients.num_clients,
                num_clusters=fixed_num_clusters(agreed) or agreed.config.num_clusters,
                output_dir=str(folder),
            )
            results = ResultsFolder(clients.resolved(resolved), command, left_out)
            for name, why in left_out.items():
                log.info("%s is left out: %s", name, why)
            if is_automatic and shares_eigenvectors(config.strategy):
                kind = kind_of(setting.data)
                log.log(COURSE, "features=auto: %s, since samples are %s", config.features, kind)
            progress.show_plan(config, clients.names, clients.num_clients, setting.data, folder)
            progress.doing("waiting until all clients have started and have their data")
            clients.start(results)
            progress.start_rounds()
            if not config.num_server_rounds:
                for name in one_shot(config.strategy):
                    grouped = self._group(name, setting, redraw)
                    results.add_grouping_alone(
                        name, setting.seed, grouped, setting.data, setting.federation
                    )
                results.finish_grouping()
                return
            self._tracking = Tracking(results.config)
            for seed in seeds:
                self._run_seed(config.strategy, clients.setting(seed), results)
            progress.doing("drawing pictures")
            results.finish()

    def _run_seed(self, names: tuple[str, ...], setting: Setting, results: ResultsFolder) -> None:
        for name in names:
            run, strategy = self._run_best(name, setting)
            self._clients.note_uninformative(setting, strategy)
            results.add_run(run, strategy, setting.data, setting.federation)
        if setting.config.validation_share:
            folds = [
                self._run_fold(names, setting, fold)
                for fold in range(1, results.config.validation_folds)
            ]
            self._clients.end_seed(setting.seed, results.judge(setting.seed, folds))
            results.end_seed()

    def _run_fold(self, names: tuple[str, ...], setting: Setting, fold: int) -> list[RunResult]:
        """Run all strategies where another fold validates, for comparisons and failures."""
        config = replace(setting.config, validation_fold=fold)
        runs = []
        for name in names:
            run, _ = self._run_best(name, setting._replace(config=config))
            run.models.clear()
            reason = "validation-fold={}: {}".format
            failures = [replace(one, reason=reason(fold, one.reason)) for one in run.failures]
            runs.append(replace(run, failures=failures))
        return runs

    def _group(self, name: str, setting: Setting, redraw: Redraw | None) -> ClusteredStrategy:
        """Run a strategy's pre-round, and nothing else."""
        config, seed = setting.config, setting.seed
        grid = self._clients.begin_run(setting, 0)
        self._progress.begin_run(name, seed, 0, 0)
        strategy = self._build(name, setting)
        with _quiet_flower():
            strategy.group(grid, config.round_deadline, self._message_config(setting, {}))
        if redraw is not None:
            self._progress.doing(f"{name}, seed {seed}, how certain its clusters are")
            strategy.training.clusters = redraw(strategy, config, seed)
        else:
            self._clients.note_uninformative(setting, strategy)
        return strategy

    def _build(self, name: str, setting: Setting, **options: Any) -> ClusteredStrategy:
        options |= {
            "seed": setting.seed,
            "pre_round_timeout": setting.config.pre_round_deadline,
            "registry": self._clients.known_clients,
        }
        strategy = build_strategy(name, setting, options)
        self._progress.registry = lambda: strategy.training.registry
        return strategy

    def _message_config(self, setting: Setting, values: Mapping[str, Scalar]) -> ConfigRecord:
        """Return what every message of a strategy holds, with the values that clients train by."""
        sent = ConfigRecord({**self._clients.message_config, protocol.SEED: setting.seed})
        if fold := setting.config.validation_fold:
            sent[protocol.VALIDATION_FOLD] = fold
        if of_training := {key: value for key, value in values.items() if key in OF_TRAINING}:
            sent[protocol.TUNED] = json.dumps(of_training)
        return sent

    def _run_best(self, name: str, setting: Setting) -> tuple[RunResult, ClusteredStrategy]:
        """Run one strategy on one seed with each of the values that it tries; return the best."""
        runs: list[RunResult] = []
        strategies: dict[str, ClusteredStrategy] = {}
        tried = combinations(setting.config.tune, name)
        for values in tried:
            run, strategy = self._run_strategy(name, with_values(setting, values), values)
            sent = self._message_config(setting, values)
            self._clients.end_run(run, strategy, sent)
            runs.append(run)
            strategies[run.label] = strategy
            best = best_of(runs, tried[: len(runs)])
            for one in runs:
                if one.label != best.label:  # models of many clients fill the memory
                    one.models.clear()
                    strategies.pop(one.label, None)
        if len(runs) == 1:
            return run, strategy
        best_of_all = f"is the best of {len(runs)} on validation samples"
        log.log(COURSE, "%s", f"{best.label}, seed {best.seed}, {best_of_all}")
        return best, strategies[best.label]

    def _run_strategy(
        self, name: str, setting: Setting, values: Mapping[str, Scalar]
    ) -> tuple[RunResult, ClusteredStrategy]:
        """Run one strategy on one seed, or what an interruption has left of it.

        The setting has the `values` that it tries, which are part of its label.
        """
        config, seed, clients = setting.config, setting.seed, self._clients
        checkpoints, progress = self._checkpoints, self._progress
        fold = {protocol.VALIDATION_FOLD: config.validation_fold} if config.validation_fold else {}
        label = label_of(name, {**values, **fold})
        checkpoint = checkpoints.load(label, seed, setting.data)
        done, before, rounds = 0, 0.0, config.num_server_rounds
        if checkpoint is not None:
            done, before = checkpoint["strategy"]["round"], float(checkpoint["seconds"])
        sent = self._message_config(setting, values)
        grid = clients.begin_run(setting, done)
        progress.begin_run(label, seed, done, rounds)
        started = time.perf_counter()

        def seconds() -> float:
            return before + time.perf_counter() - started

        def on_round(report: RoundReport) -> None:
            clients.after_round(report, strategy)
            registry, falls = strategy.training.registry, find_falls(strategy.reports)
            fell = describe_falls(falls, registry.name_of, report.metrics.main)
            progress.after_round(report, registry, fell)
            self._tracking.after_round(report, seconds(), setting.federation)
            if checkpoints.is_due(report):
                states = clients.save_states(strategy, sent) if strategy.local.has_state else {}
                checkpoints.save(label, seed, strategy, seconds(), setting.data, states)
            if report.round < rounds and has_stopped_improving(
                strategy.reports, config.early_stopping
            ):
                progress.end_run_early(report)
                raise StopEarly

        strategy = self._build(
            name,
            setting,
            fraction_train=config.fraction_train,
            evaluate_every=config.evaluate_every,
            fraction_evaluate=config.fraction_evaluate,
            on_round=on_round,
            secure_aggregation=config.secure_aggregation,
            metrics=metrics_of(
                is_regression=setting.data.is_regression,
                user_metric=config.metric.partition(":")[2],
            ),
        )
        if checkpoint is not None:
            strategy.resume(checkpoint["strategy"])
            if strategy.local.has_state:
                theirs = {**sent, protocol.TRAINING: checkpoint["strategy"]["identity"]}
                clients.restore_states(checkpoint["states"], theirs)
            reports = [RoundReport(**report) for report in checkpoint["strategy"]["reports"]]
            if done < rounds and has_stopped_improving(reports, config.early_stopping):
                progress.end_run_early(reports[-1])
                rounds = done
        tested = sent
        if config.validation_share:  # clients compare the strategies' models
            tested = ConfigRecord({**sent, protocol.CANDIDATE: label})
        tracked = self._tracking.run(label, seed, done, values)
        with _quiet_flower(), tracked, suppress(StopEarly):
            strategy.start(
                grid,
                ArrayRecord(initial_model(setting).state_dict()),
                rounds,
                config.round_deadline,
                train_config=sent,
                evaluate_config=tested,
            )
        options = config.options_of_line(name)
        run = RunResult.of(name, seed, strategy, seconds(), setting.federation, label, options)
        if done == rounds and config.validation_share:
            repeat_test(grid, strategy, tested, config.round_deadline)
        return run, strategy


def _num_folds(setting: Setting) -> int:
    """Return how often a strategy trains: once if the samples of all clients are in time."""
    given = setting.federation and setting.federation.dataset.given_partition
    in_time = given and len(given.in_time) == len(given.train)
    return 1 if in_time else setting.config.validation_folds


def _check(setting: Setting, num_clients: int) -> None:
    """Refuse what no strategy could work with, before `num_clients` clients begin to train."""
    check_samples(setting.config, setting.data, setting.federation)
    for name in setting.config.strategy:
        for tried in tried_settings(setting, name):
            build_strategy(name, tried, {})
            check_num_clusters([name], fixed_num_clusters(tried) or 1, num_clients)


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
