"""The result of one run: its entry of summary.json, its rounds and its models."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from fl_app.results.falls import find_falls
from fl_app.results.schema import Run, Tested
from fl_app.results.statistics import is_still_improving, known_mean
from fl_core.data.settings import TESTS, name_of_test
from fl_core.messages import protocol
from fl_core.options import Scalar
from fl_core.partitions.federation import Federation
from strategies import ClusteredStrategy, Failure, RoundReport


@dataclass(frozen=True, eq=False, kw_only=True)
class RunResult(Run):
    """A run that has just ended: its entry of summary.json, and the source of its other files."""

    reports: list[RoundReport]  # one per round
    # Those that clients tested last: `cluster-C`, or `client-N` if each client has one
    models: dict[str, ArrayRecord]
    label: str = ""  # its name at clients, distinct for each strategy and values of `tune`
    # The true task of each client, for each report; empty where tasks are unknown
    tasks_per_round: list[list[int]] = field(default_factory=list)
    other_test: str = ""  # the second test of `reports`, as `client-test` calls it

    @classmethod
    def of(
        cls,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        seconds: float,
        federation: Federation | None = None,
        label: str = "",
        options: Mapping[str, Scalar] | None = None,
    ) -> "RunResult":
        """Return the result of a strategy that has ended."""
        training = strategy.training
        known: dict[str, Any]
        if federation is None:
            names = training.registry.names
            num_clients = len(names)
            known = {"given_names": [names[c] for c in range(num_clients)], "models_not_stored": {}}
        else:
            num_clients = federation.partition.num_clients
            rounds = [report.round for report in strategy.reports]
            known = {"given_names": list(federation.names), "other_test": federation.other_test}
            if federation.knows_tasks:
                tasks = [federation.tasks_at(r).tolist() for r in (0, federation.drift_round)]
                known["tasks_per_round"] = [tasks[r >= federation.drift_round] for r in rounds]
        traffic = {
            "pre-round": training.pre_round_traffic,
            "train": training.train_traffic,
            "evaluate": training.evaluate_traffic,
            "between-servers": training.server_traffic,
        }
        spent, failures = training.seconds, list(training.registry.log)
        # A client without a cluster that has no failure has not registered.
        seen = {failure.client for failure in failures}.union(strategy.clusters.of_client)
        absent = sorted({*range(num_clients)} - seen)
        failures += [Failure(c, protocol.DESCRIBE, (0,), "it did not register") for c in absent]
        result = cls.of_reports(
            name,
            seed,
            num_clients,
            dict(strategy.clusters.of_client),
            strategy.reports,
            label=label,
            models=_named_models(strategy),
            bytes={
                f"{what}-{way}": count
                for what, both in traffic.items()
                for way, count in (("up", both.up), ("down", both.down))
            },
            seconds={
                "pre-round": spent.pre_round,
                "train": spent.train,
                "evaluate": spent.evaluate,
                "total": seconds,
            },
            failures=failures,
            outliers=dict(strategy.clusters.outliers),
            options=dict(options or {}),
            note=strategy.clustering.note,
            unknown_nodes=training.registry.unknown_by_name,
            **known,
        )
        malicious = () if federation is None else federation.malicious
        failed = {one.client for one in result.failures if one.step != protocol.EVALUATE}
        never = failed - training.trained - set(malicious)
        result = replace(result, never_trained=tuple(sorted(never)))
        return result if federation is None else replace(result, **_events(result, federation))

    @classmethod
    def of_reports(
        cls,
        strategy: str,
        seed: int,
        num_clients: int,
        of_client: Mapping[int, int],
        reports: list[RoundReport],
        **known: Any,
    ) -> "RunResult":
        """Return a result with the scores of the last round; `known` has the other fields."""
        last = reports[-1]
        known = {"models": {}, "bytes": {}, "seconds": {}, "failures": [], **known}
        main = last.metrics.main
        known["still_improving"] = last.round == last.num_rounds and is_still_improving(
            {report.round: report.tested for report in reports if report.tested},
            is_share=main.is_share,
            lower_is_better=main.lower_is_better,
        )
        scores = {one.name: last.of(one.name) for one in last.metrics.all}
        others = {name: scores for name, scores in last.other_scores.items() if scores}
        if others and (test := known.get("other_test")):
            tested = Tested(**_scores_of(last, others, num_clients))
            known[name_of_test(test).replace("-", "_")] = tested
        result = cls(
            strategy=strategy,
            seed=seed,
            num_clients=num_clients,
            rounds=len(reports),
            clusters=[of_client.get(client, -1) for client in range(num_clients)],
            falls=[fall for end in range(len(reports)) for fall in find_falls(reports[: end + 1])],
            user_metric_name=last.user_metric,
            left_out_of_sums=last.left_out_of_sums,
            reports=reports,
            **_scores_of(last, scores, num_clients),
            **known,
        )
        return replace(result, variance=result.deviation**2)


def _scores_of(
    report: RoundReport, scores: Mapping[str, Mapping[int, float]], num_clients: int
) -> dict[str, Any]:
    """Return the fields of a `Tested`, of some scores by name and client."""
    fields: dict[str, Any] = {"is_regression": report.is_regression}
    for name, of_client in scores.items():
        mean = float(np.mean(list(of_client.values()))) if of_client else math.nan
        per_client = np.array([of_client.get(client, math.nan) for client in range(num_clients)])
        if name == report.metrics.main.name:
            fields |= {"score": mean, "scores": per_client}
        else:
            key = name.replace("-", "_")
            fields |= {key: mean, f"{key}_per_client": per_client}
    return fields


def _events(run: RunResult, federation: Federation) -> dict[str, Any]:
    """Return the fields on tasks, malicious clients, newcomers and drift, where there are any."""
    known: dict[str, Any] = {}
    malicious = federation.malicious
    if run.tasks_per_round:
        known["tasks"] = run.tasks_per_round[-1]
        known["ari"], known["nmi"] = ari_and_nmi(known["tasks"], run.of_client, malicious)
    if malicious:
        known |= {"malicious": malicious, "isolated": isolated(run.clusters, malicious)}
    events = (("newcomers", federation.newcomers), ("drifters", federation.drifters))
    for name, clients in events:
        if clients:
            known[name] = clients
            known[f"{name}_per_round"] = {
                report.round: float(np.mean(values))
                for report in run.reports
                if (values := [report.tested[c] for c in clients if c in report.tested])
            }
    return known


def isolated(clusters: Sequence[int], malicious: Collection[int]) -> float:
    """Return the share of malicious clients in clusters without an honest one; NaN without."""
    honest = {c for i, c in enumerate(clusters) if i not in malicious}
    grouped = [clusters[i] for i in malicious if clusters[i] >= 0]
    return float(np.mean([c not in honest for c in grouped])) if grouped else math.nan


def has_personal_models(strategy: ClusteredStrategy) -> bool:
    """Return whether clients test other models than those that the server has."""
    return bool(strategy.training.private) or strategy.local.is_personal


def _named_models(strategy: ClusteredStrategy) -> dict[str, ArrayRecord]:
    models = strategy.training.shared_models
    if has_personal_models(strategy):
        return {}
    if strategy.aggregation.per_client:
        return {f"client-{c}": models[number] for c, number in strategy.model_of_client.items()}
    return {f"cluster-{c}": model for c, model in enumerate(models)}


def ari_and_nmi(
    tasks: Sequence[int], clusters: Mapping[int, int], left_out: Collection[int] = ()
) -> tuple[float, float]:
    """Return the adjusted Rand index and the normalised mutual information of clusters and tasks.

    `tasks` are the true ones, by client; `clusters` is from client to cluster. Clients without a
    cluster, with a negative one, or in `left_out` do not count. NaN without any that counts.
    """
    left_out = frozenset(left_out)
    pairs = [(tasks[i], c) for i, c in clusters.items() if c >= 0 and i not in left_out]
    if not pairs:
        return math.nan, math.nan
    true, labels = zip(*pairs, strict=True)
    return _scores(true, labels)


@lru_cache(maxsize=256)  # tables are written after each run, and clusters seldom change
def _scores(true: tuple[int, ...], labels: tuple[int, ...]) -> tuple[float, float]:
    from sklearn import metrics  # noqa: PLC0415 - it takes a second: the first round need not wait

    scores = (metrics.adjusted_rand_score, metrics.normalized_mutual_info_score)
    ari, nmi = (float(score(true, labels)) for score in scores)
    return ari, nmi


def table_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Return one row per strategy: means and standard deviations over seeds (n − 1; 0 of one).

    Seeds count on which some client was tested.
    """
    by_strategy: dict[str, list[Run]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    rows = []
    for name, group in by_strategy.items():
        score = group[0].metrics.main.name
        row = {f"{score}-mean": known_mean(run.score for run in group)}
        row[f"{score}-std"] = _std(run.score for run in group)
        row[f"{score}-std-over-clients"] = known_mean(run.deviation for run in group)
        row[f"{score}-variance"] = known_mean(run.deviation**2 for run in group)
        if any(run.ari is not None for run in group):
            row["ari-mean"] = known_mean(math.nan if run.ari is None else run.ari for run in group)
        for test in map(name_of_test, TESTS):
            tested = [getattr(run, test.replace("-", "_")) for run in group]
            if others := [other.score for other in tested if other is not None]:
                row[f"{score}-{test}-mean"] = known_mean(others)
                row[f"{score}-{test}-std"] = _std(others)
        rows.append({"strategy": name, **row})
    return rows


def _std(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
