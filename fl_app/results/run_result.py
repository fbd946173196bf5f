"""What a run found, as the tables and summary.json say it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray

from fl_app.results.tuned import Tuned
from fl_core.data.settings import name_of_test
from fl_core.metrics import Metrics
from fl_core.partitions.federation import Federation
from strategies import ClusteredStrategy, RoundReport


@dataclass(frozen=True, eq=False)
class RunResult:
    """One strategy on one seed.

    Attributes
    ----------
    strategy, seed
        What ran.
    num_clients : int
        How many there are, those left out included.
    of_client : dict of int
        The cluster of each client that was not left out.
    reports : list of RoundReport
        One for each round.
    models : dict of ArrayRecord
        The final models, as `cluster-C`, or as `client-N` where every client has its own.
    bytes, seconds : dict
        As in summary.json.
    failures : dict of str
        Why clients were left out, by client index.
    tasks_per_round : list of lists of int
        The true task of each client, in each round of `reports`; empty where tasks are unknown: on
        real devices, and of data that come in partitions.
    names : list of str, optional
        What to call the clients, by index, where they have names.
    not_kept : dict of str
        Why devices do not have their model, by client index.
    are_devices : bool
        Whether clients are real devices, which keep their model.
    odd : dict of str
        What was found odd about clients, by index.
    unknown : dict of str
        Why nodes were left out that never said by which name they go, by node id.
    label : str
        What clients call it beside the other strategies, and those with other values of `tune`.
    tuned : Tuned, optional
        Its values of `tune`, and all that was tried, if anything was.
    other_test : str
        What `client-test` calls the second test of `reports`, where there is one.
    malicious, newcomers, drifters : tuple of int
        Clients that attack, that came late, and whose task changed. Scores, ARI and NMI are those
        of the honest ones.
    """

    strategy: str
    seed: int
    num_clients: int
    of_client: dict[int, int]
    reports: list[RoundReport]
    models: dict[str, ArrayRecord]
    bytes: dict[str, int]
    seconds: dict[str, float]
    failures: dict[int, str]
    tasks_per_round: list[list[int]] = field(default_factory=list)
    names: list[str] | None = None
    not_kept: dict[int, str] = field(default_factory=dict)
    are_devices: bool = False
    odd: dict[int, str] = field(default_factory=dict)
    unknown: dict[int, str] = field(default_factory=dict)
    label: str = ""
    tuned: Tuned | None = None
    other_test: str = ""
    malicious: tuple[int, ...] = ()
    newcomers: tuple[int, ...] = ()
    drifters: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        total_seconds: float,
        federation: Federation | None = None,
    ) -> RunResult:
        """Collect what a strategy that has ended knows."""
        training = strategy.training
        known: dict[str, Any]
        if federation is None:
            names = training.roster.names
            num_clients = len(names)
            known = {"names": [names[client] for client in range(num_clients)], "are_devices": True}
        else:
            num_clients = federation.partition.num_clients
            rounds = [report.round for report in strategy.reports]
            known = {
                "other_test": federation.other_test,
                "malicious": federation.malicious,
                "newcomers": federation.newcomers,
                "drifters": federation.drifters,
                "names": list(federation.names) or None,
            }
            if federation.knows_tasks:
                tasks = [federation.tasks_at(r).tolist() for r in (0, federation.drift_round)]
                known["tasks_per_round"] = [tasks[r >= federation.drift_round] for r in rounds]
        traffic = {
            "pre-round": training.pre_round_traffic,
            "train": training.train_traffic,
            "evaluate": training.evaluate_traffic,
            "between-servers": training.server_traffic,
        }
        spent, found = training.seconds, strategy.clusters.of_client
        return cls(
            strategy=name,
            seed=seed,
            num_clients=num_clients,
            of_client=dict(found),
            reports=strategy.reports,
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
                "total": total_seconds,
            },
            failures={
                client: strategy.failures.get(client, "did not answer the roll call")
                for client in range(num_clients)
                if client not in found
            },
            odd=dict(strategy.clusters.odd),
            unknown=dict(training.roster.unknown),
            **known,
        )

    @property
    def clusters(self) -> list[int]:
        """Return the cluster of each client, by index; −1: left out, it failed in the pre-round."""
        return [self.of_client.get(client, -1) for client in range(self.num_clients)]

    @property
    def tasks(self) -> list[int] | None:
        """Return the true task of each client in the last round, where they are known."""
        return self.tasks_per_round[-1] if self.tasks_per_round else None

    @property
    def metrics(self) -> Metrics:
        """Return what tests measure."""
        return self.reports[-1].metrics

    @property
    def scores(self) -> NDArray[np.float64]:
        """Return the final main score of each client, shape (K,); NaN where it has none."""
        return self._of_clients(self.reports[-1].tested)

    def _of_clients(self, scores: Mapping[int, float]) -> NDArray[np.float64]:
        return np.array([scores.get(client, math.nan) for client in range(self.num_clients)])

    @property
    def score(self) -> float:
        """Return the mean over the clients that were tested (spec section 6)."""
        return self.reports[-1].score

    def spread(self) -> float:
        """Return the standard deviation over the clients that were tested; NaN if none was."""
        final = list(self.reports[-1].tested.values())
        return float(np.std(final)) if final else math.nan

    def ari_and_nmi(self) -> tuple[float, float] | None:
        """Return ARI and NMI of the final clusters against the true tasks, where they are known.

        Over clients that were grouped and are not malicious.
        """
        if self.tasks is None:
            return None
        return ari_and_nmi(self.tasks, self.of_client, self.malicious)

    def isolated(self) -> float:
        """Return the share of malicious clients in clusters without an honest one; NaN without."""
        clusters, malicious = self.clusters, frozenset(self.malicious)
        honest = {c for i, c in enumerate(clusters) if i not in malicious}
        grouped = [clusters[i] for i in self.malicious if clusters[i] >= 0]
        return float(np.mean([c not in honest for c in grouped])) if grouped else math.nan

    def as_json(self) -> dict[str, Any]:
        """Return the run's entry in summary.json."""
        known: dict[str, Any] = {}
        score, other = self.metrics.main.name, self.other_test_scores()
        if (found := self.ari_and_nmi()) is not None:
            known = {"tasks": self.tasks, "ari": found[0], "nmi": found[1]}
        if self.names is not None:
            known["names"] = self.names
        reasons = {"odd-clients": self.odd, "unknown-nodes": self.unknown}
        reasons["left-out-of-sums"] = self.reports[-1].left_out_of_sums
        beside: dict[str, Any] = {
            "own-metric-name": self.metrics.own,
            "tuned": self.tuned and self.tuned.as_json(),
        }
        if self.are_devices:
            known["models-not-kept"] = _by_text(self.not_kept)
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "num-clients": self.num_clients,
            "rounds": len(self.reports),
            score: self.score,
            f"{score}-per-client": self.scores.tolist(),
            f"{score}-variance": self.spread() ** 2,
            **self._other_scores(),
            **({name_of_test(self.other_test): other} if other else {}),
            "clusters": self.clusters,
            **known,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "failures": _by_text(self.failures),
            **{key: value for key, value in beside.items() if value},
            **{key: _by_text(why) for key, why in reasons.items() if why},
            **_events(self),
        }

    def _other_scores(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for metric in self.metrics.others:
            of_client = self.reports[-1].of(metric.name)
            found[metric.name] = self.reports[-1].mean(metric.name)
            found[f"{metric.name}-per-client"] = self._of_clients(of_client).tolist()
        return found

    def other_test_scores(self) -> dict[str, Any]:
        """Return the final scores of the second test, where there is one."""
        found: dict[str, Any] = {}
        for score, of_client in self.reports[-1].other_scores.items():
            if self.other_test and of_client:
                found[score] = float(np.mean(list(of_client.values())))
                found[f"{score}-per-client"] = self._of_clients(of_client).tolist()
        return found


def _events(run: RunResult) -> dict[str, Any]:
    """Summarise malicious clients, newcomers and drift, where there are any."""
    found: dict[str, Any] = {}
    if run.malicious:
        found |= {"malicious": list(run.malicious), "malicious-isolated": run.isolated()}
    for name, clients in (("newcomers", run.newcomers), ("drifters", run.drifters)):
        if clients:
            found[name] = list(clients)
            found[f"{name}-{run.metrics.main.name}-per-round"] = {
                str(report.round): float(np.mean(values))
                for report in run.reports
                if (values := [report.tested[c] for c in clients if c in report.tested])
            }
    return found


def _by_text(reasons: Mapping[int, str]) -> dict[str, str]:
    return {str(client): reason for client, reason in reasons.items()}


def _named_models(strategy: ClusteredStrategy) -> dict[str, ArrayRecord]:
    models = strategy.training.records
    if strategy.aggregation.per_client:
        return {f"client-{c}": models[number] for c, number in strategy.model_of_client.items()}
    return {f"cluster-{c}": model for c, model in enumerate(models)}


def ari_and_nmi(
    tasks: Sequence[int], clusters: Mapping[int, int], left_out: Collection[int] = ()
) -> tuple[float, float]:
    """Return the adjusted Rand index and the normalised mutual information of clusters and tasks.

    Parameters
    ----------
    tasks : sequence of int
        The true task of each client.
    clusters : mapping of int
        From client to cluster; negative ones and missing clients do not count.
    left_out : collection of int
        Clients that do not count either.
    """
    left_out = frozenset(left_out)
    pairs = [(tasks[i], c) for i, c in clusters.items() if c >= 0 and i not in left_out]
    if not pairs:
        return math.nan, math.nan
    true, found = zip(*pairs, strict=True)
    # Tables are written after each run, and clusters seldom change. The labels are not kept.
    key = sha256(np.array([true, found]).tobytes()).digest()
    if key not in _SCORES:
        _SCORES[key] = _scores(true, found)
    return _SCORES[key]


_SCORES: dict[bytes, tuple[float, float]] = {}


def _scores(true: tuple[int, ...], found: tuple[int, ...]) -> tuple[float, float]:
    # The first round need not wait for it.
    from sklearn.metrics import (  # noqa: PLC0415 - it takes a second
        adjusted_rand_score,
        normalized_mutual_info_score,
    )

    return (
        float(adjusted_rand_score(true, found)),
        float(normalized_mutual_info_score(true, found)),
    )


def table_rows(runs: Iterable[RunResult]) -> list[dict[str, Any]]:
    """Return one row per strategy, in order of appearance: mean and std over seeds.

    The standard deviation is the sample's (n − 1), as in a table of mean ± std over runs; 0 for one
    seed.
    """
    by_strategy: dict[str, list[RunResult]] = {}
    for run in runs:
        by_strategy.setdefault(run.strategy, []).append(run)
    rows = []
    for name, group in by_strategy.items():
        means, score = [run.score for run in group], group[0].metrics.main.name
        found = [pair for run in group if (pair := run.ari_and_nmi()) is not None]
        known = {"ari-mean": float(np.mean([ari for ari, _ in found]))} if found else {}
        if others := [other[score] for run in group if (other := run.other_test_scores())]:
            known |= _mean_and_std(f"{score}-{name_of_test(group[0].other_test)}", others)
        rows.append(
            {
                "strategy": name,
                **_mean_and_std(score, means),
                f"{score}-std-over-clients": _mean([run.spread() for run in group]),
                f"{score}-variance": _mean([run.spread() ** 2 for run in group]),
                **known,
            }
        )
    return rows


def _mean_and_std(name: str, values: Sequence[float]) -> dict[str, float]:
    known = _known(values)
    std = float(np.std(known, ddof=1)) if len(known) > 1 else 0.0
    return {f"{name}-mean": _mean(values), f"{name}-std": std}


def _mean(values: Sequence[float]) -> float:
    """Return the mean over seeds; one on which no client was tested does not count."""
    known = _known(values)
    return float(np.mean(known)) if known else math.nan


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def cluster_curves(
    run: RunResult,
) -> tuple[NDArray[np.int64], dict[int, NDArray[np.float64]]]:
    """Return the evaluated rounds, (R,), and each cluster's mean score there, (R,).

    The cluster with the most clients, over all these rounds, comes first.
    """
    reports = [report for report in run.reports if report.tested]
    tested: dict[int, list[list[float]]] = {}
    for place, report in enumerate(reports):
        for client, score in report.tested.items():
            rounds = tested.setdefault(report.clusters[client], [[] for _ in reports])
            rounds[place].append(score)
    largest = sorted(tested, key=lambda c: (-sum(map(len, tested[c])), c))
    means = {c: np.array([np.mean(a) if a else math.nan for a in tested[c]]) for c in largest}
    return np.array([report.round for report in reports], np.int64), means
