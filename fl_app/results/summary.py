"""The numbers of a run: summary.json, metrics.csv and clients.csv."""

import csv
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fl_app.config.run_config import Config
from fl_app.results.layout import CLIENTS, METRICS, SUMMARY
from fl_app.results.run_result import RunResult, ari_and_nmi, table_rows
from fl_app.results.schema import Summary
from fl_app.results.verdict import SeedVerdicts
from fl_core.data.settings import name_of_test
from fl_core.files import replacing
from fl_core.json_records import to_json
from fl_core.messages import protocol
from fl_core.text import csv_cell

_CLIENT_COLUMNS = ("strategy", "seed", "round", "client", "name", "cluster", "task", "samples")
VERDICT_COLUMNS = (
    *("seed", "client", "name", "verdict", "strategy", "cluster", "validation-samples", "compared"),
    *("gain", "gain-low", "gain-high", "gain-observed", "probability", "samples-needed"),
)
_SOFTWARE = ("fedkin", "flwr", "torch", "torchvision", "numpy", "scipy", "scikit-learn")


def write_tables(
    folder: Path,
    config: Config,
    runs: Sequence[RunResult],
    sample: str = "image",
    columns: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
    verdicts: Sequence[SeedVerdicts] = (),
) -> None:
    """Write summary.json, metrics.csv and clients.csv of the runs so far."""
    summary = Summary(
        version=1,
        config=config.as_run_config(),
        versions=versions(),
        sample=sample,
        left_out=dict(left_out or {}),
        privacy=config.spent(),
        columns=list(columns),
        runs=list(runs),
        table=table_rows(runs),
        verdicts=list(verdicts),
    )
    with replacing(folder / SUMMARY) as path:
        path.write_text(to_json(summary, indent=1) + "\n", encoding="utf-8")
    known = ["ari"] if any(run.tasks is not None for run in runs) else []
    metrics = runs[0].metrics
    score, others = metrics.main.name, [one.name for one in metrics.others]
    columns = ["strategy", "seed", "round", score, f"{score}-variance", *known]
    columns += ["loss", "train-loss", "bytes"]
    columns += [protocol.USER_METRIC] if metrics.user_metric else []
    _write_csv(folder / METRICS, columns, map(_metric_rows, runs))
    scores = (score, protocol.LOSS, *others)
    second = {name_of_test(run.other_test) for run in runs if run.other_test}
    columns = [*_CLIENT_COLUMNS, *scores, "left-out-of-sums"]
    columns += [f"{one}-{name}" for name in second for one in scores]
    _write_csv(folder / CLIENTS, columns, (_client_rows(run, scores) for run in runs))


def write_verdicts(path: Path, verdicts: Sequence[SeedVerdicts], names: Sequence[str]) -> None:
    """Write a row for each client and seed; unknown values are empty."""
    rows = [
        [
            *(of_seed.seed, one.client, csv_cell(names[one.client]) if names else ""),
            *(one.verdict, one.strategy, one.cluster, one.validation_samples, one.compared),
            *(one.gain.mean, one.gain.low, one.gain.high, one.gain.observed, one.gain.probability),
            "" if one.samples_needed is None else one.samples_needed,
        ]
        for of_seed in verdicts
        for one in of_seed.clients
    ]
    _write_csv(path, VERDICT_COLUMNS, [rows])


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Sequence[Any]]]) -> None:
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(chain.from_iterable(rows))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for name in _SOFTWARE:
        with suppress(PackageNotFoundError):  # Flower may have brought the app itself
            versions[name] = version(name)
    return versions


def _metric_rows(run: RunResult) -> Iterable[list[Any]]:
    for index, report in enumerate(run.reports):
        variance = float(np.var(list(report.tested.values()))) if report.tested else math.nan
        numbers = [report.score, variance, report.loss, report.train_loss, report.bytes]
        if report.user_metric:
            numbers.append(report.mean(protocol.USER_METRIC))
        if run.tasks_per_round:
            tasks = run.tasks_per_round[index]
            numbers.insert(2, ari_and_nmi(tasks, report.clusters, run.malicious)[0])
        cells = ("" if math.isnan(number) else number for number in numbers)
        yield [run.strategy, run.seed, report.round, *cells]


def _client_rows(run: RunResult, scores: Sequence[str]) -> Iterable[list[Any]]:
    """Yield a row for each client in each evaluated round; unknown values are empty."""
    for index, report in enumerate(run.reports):
        if not report.tested:
            continue
        for client, cluster in report.clusters.items():
            samples = report.samples.get(client)
            yield [
                *(run.strategy, run.seed, report.round, client),
                csv_cell(run.given_names[client]) if run.given_names else "",
                cluster,
                run.tasks_per_round[index][client] if run.tasks_per_round else "",
                "" if samples is None else f"{samples:.15g}",
                *(report.of(score).get(client, "") for score in scores),
                csv_cell(report.left_out_of_sums.get(client, "")),
                *(
                    report.other_scores.get(score, {}).get(client, "")
                    for score in (scores if run.other_test else ())
                ),
            ]
