"""A run shown elsewhere while it goes on: each strategy and seed is a run of a tracker's own."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fl_app.config.run_config import Config
from fl_app.live.trackers import OPENED_BY, About, Rows, Tracker
from fl_app.results.run_result import RunResult, ari_and_nmi
from fl_core.data.settings import name_of_test
from fl_core.federation.federation import Federation
from fl_core.metrics import OF_CLASSES, Metrics
from fl_core.options import Scalar
from fl_core.text import csv_cell, one_line
from fl_core.wire.protocol import OWN_METRIC
from strategies import RoundReport

_MOST_CLUSTERS = 50  # with a curve each
_log = logging.getLogger(__name__)


class Tracking:
    """Tells `config.track` of every round, once it is over.

    A tracker that fails on the way is a warning, and is told no more: the training goes on.

    Parameters
    ----------
    config : Config
        The resolved one, which is each run's parameters.
    metrics : Metrics
        What tests measure.

    Raises
    ------
    RuntimeError
        By `begin_run`, if the tracker fails before anything has been trained.
    """

    def __init__(self, config: Config, metrics: Metrics = OF_CLASSES) -> None:
        self._config, self._folder = config, Path(config.output_dir)
        self._score = metrics.main.name
        self._open: Callable[[About], Tracker] | None = OPENED_BY.get(config.track)
        self._tracker: Tracker | None = None
        self._has_worked = False

    def close(self) -> None:
        """Say of a run that has not come to its end that it failed."""
        self._tell("close", failed=True)

    def begin_run(
        self, name: str, seed: int, done: int, values: Mapping[str, Scalar] | None = None
    ) -> None:
        """Open a run for a strategy on a seed, of which so many rounds are done already.

        `values` are those that it tries, in place of the configuration's.
        """
        run = {**(values or {}), "strategy": name, "seed": seed}
        options = {**self._config.as_run_config(), **run}
        self._begin(About(f"{name}-seed-{seed}", self._folder, options, done, self._score))

    def after_round(
        self, report: RoundReport, seconds: float, federation: Federation | None
    ) -> None:
        """Tell of a round."""
        if self._tracker is not None:
            self._tell("log", round_values(report, seconds, federation), report.round)

    def end_run(self, run: RunResult) -> None:
        """Tell who is in which cluster, and end the run."""
        self._tell("add_clusters", grouped(run))
        self._end()

    def finish(self, pictures: Sequence[Path]) -> None:
        """Show the PNG files, most of which compare strategies, in a run of their own."""
        if self._open is None or not (shown := [one for one in pictures if one.suffix == ".png"]):
            return
        self._begin(About("pictures", self._folder, {}))
        for path in shown:
            self._tell("add_picture", path)
        self._end()

    def _begin(self, about: About) -> None:
        if self._open is None:
            return
        try:
            self._tracker = self._open(about)
        except Exception as error:
            if not self._has_worked:
                raise RuntimeError(
                    f"track is {self._config.track}, which fails ({one_line(str(error))}): see "
                    "docs/watching.md for what it needs, or set track to none."
                ) from error
            self._give_up(error)
        self._has_worked = True

    def _end(self) -> None:
        self._tell("close")
        self._tracker = None

    def _tell(self, method: str, *what: Any, **how: Any) -> None:
        try:
            if self._tracker is not None:
                getattr(self._tracker, method)(*what, **how)
        except Exception as error:  # of a library, a disk or a server
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = self._open = None
        _log.warning(
            "track=%s fails, and is told no more of this run, which goes on: %s",
            *(self._config.track, one_line(str(error))),
        )


def round_values(
    report: RoundReport, seconds: float, federation: Federation | None
) -> dict[str, float]:
    """Return the numbers of a round, by name; what is not known is not there.

    `seconds` are those of the strategy so far. With the true tasks of a `federation`, there is the
    ARI, too.
    """
    tested, clusters = report.tested, report.clusters
    values: dict[str, float] = {
        "loss/train": report.train_loss,
        "loss/test": report.loss,
        "bytes": report.bytes,
        "seconds": seconds,
        "clusters": len(set(clusters.values())),
    }
    if tested:
        main = report.metrics.main
        values |= {
            f"{main.name}/mean": report.score,
            f"{main.name}/worst-client": main.worst(tested.values()),
        }
        values |= _per_cluster(report)
        values[f"{OWN_METRIC}/mean"] = report.mean(OWN_METRIC)
    score = report.metrics.main.name
    if federation is not None and (others := report.other_scores.get(score)):
        name = name_of_test(federation.other_test)
        values[f"{score}/mean-{name}"] = sum(others.values()) / len(others)
    if federation is not None and federation.knows_tasks:
        tasks = federation.tasks_at(report.round).tolist()
        values["ari"] = ari_and_nmi(tasks, clusters, federation.malicious)[0]
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _per_cluster(report: RoundReport) -> dict[str, float]:
    """Return each cluster's mean score, if there are few enough."""
    tested: dict[int, list[float]] = {}
    for client, score in report.tested.items():
        tested.setdefault(report.clusters[client], []).append(score)
    if len(tested) > _MOST_CLUSTERS:
        return {}
    name = report.metrics.main.name
    return {f"{name}/cluster-{c}": sum(a) / len(a) for c, a in sorted(tested.items())}


def grouped(run: RunResult) -> Rows:
    """Return who is in which cluster at the end; those left out are in cluster −1."""
    known: dict[str, Sequence[Any]] = {"client": range(run.num_clients)}
    if run.names is not None:
        known["name"] = [csv_cell(name) for name in run.names]
    if run.tasks is not None:
        known["task"] = run.tasks
    known |= {"cluster": run.clusters, run.metrics.main.name: run.scores.tolist()}
    rows = zip(*known.values(), strict=True)
    shown = [[None if isinstance(v, float) and math.isnan(v) else v for v in row] for row in rows]
    return [list(known), *shown]
