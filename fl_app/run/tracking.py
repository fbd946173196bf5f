"""The numbers of every round for the tracker of a run."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from fl_app.config.run_config import Config
from fl_app.results.run_result import ari_and_nmi
from fl_app.run.trackers import TRACKER_OF, Tracker
from fl_core.data.settings import name_of_test
from fl_core.messages.protocol import OWN_METRIC
from fl_core.options import Scalar
from fl_core.partitions.federation import Federation
from fl_core.text import one_line
from strategies import RoundReport

_MOST_CLUSTERS = 50  # with a curve each
_log = logging.getLogger(__name__)


class Tracking:
    """Sends every round to `config.track`.

    A tracker that fails before anything is trained is a RuntimeError. One that fails later is a
    warning, and gets nothing more: the training goes on.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open = TRACKER_OF.get(config.track)
        self._tracker: Tracker | None = None
        self._has_worked = False

    def begin_run(
        self, name: str, seed: int, done: int, values: Mapping[str, Scalar] | None = None
    ) -> None:
        """Open a run for a strategy on a seed, with these values of options that it tries."""
        if self._open is None:
            return
        run = {**(values or {}), "strategy": name, "seed": seed}
        options = {**self._config.as_run_config(), **run}
        folder = Path(self._config.output_dir)
        try:
            self._tracker = self._open(f"{name}-seed-{seed}", folder, options, done)
        except Exception as error:
            if not self._has_worked:
                raise RuntimeError(
                    f"track is {self._config.track}, which fails ({one_line(str(error))}): see "
                    "docs/watching.md for what it needs, or set track to none."
                ) from error
            self._give_up(error)
        self._has_worked = True

    def after_round(
        self, report: RoundReport, seconds: float, federation: Federation | None
    ) -> None:
        """Send the numbers of a round."""
        if self._tracker is not None:
            try:
                self._tracker.log(round_values(report, seconds, federation), report.round)
            except Exception as error:  # of a library, a disk or a server
                self._give_up(error)

    def close(self) -> None:
        """End a run that is still open: it failed."""
        self.end_run(failed=True)

    def end_run(self, *, failed: bool = False) -> None:
        """End the run, if one is open."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            try:
                tracker.close(failed=failed)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = self._open = None
        _log.warning(
            "track=%s fails, and gets nothing more of this run, which continues: %s",
            *(self._config.track, one_line(str(error))),
        )


def round_values(
    report: RoundReport, seconds: float, federation: Federation | None
) -> dict[str, float]:
    """Return the numbers of a round that are known, by name.

    `seconds` are those of the strategy so far. The ARI needs the true tasks of a `federation`.
    """
    tested, clusters, main = report.tested, report.clusters, report.metrics.main
    values: dict[str, float] = {
        "loss/train": report.train_loss,
        "loss/test": report.loss,
        "bytes": report.bytes,
        "seconds": seconds,
        "clusters": len(set(clusters.values())),
    }
    if tested:
        values[f"{main.name}/mean"] = report.score
        values[f"{main.name}/worst-client"] = main.worst(tested.values())
        values[f"{OWN_METRIC}/mean"] = report.mean(OWN_METRIC)
        of_cluster: dict[int, list[float]] = {}
        for client, score in tested.items():
            of_cluster.setdefault(clusters[client], []).append(score)
        if len(of_cluster) <= _MOST_CLUSTERS:
            values |= {f"{main.name}/cluster-{c}": fmean(s) for c, s in of_cluster.items()}
    if federation is not None and (others := report.other_scores.get(main.name)):
        values[f"{main.name}/mean-{name_of_test(federation.other_test)}"] = fmean(others.values())
    if federation is not None and federation.knows_tasks:
        tasks = federation.tasks_at(report.round).tolist()
        values["ari"] = ari_and_nmi(tasks, clusters, federation.malicious)[0]
    return {name: value for name, value in values.items() if math.isfinite(value)}
