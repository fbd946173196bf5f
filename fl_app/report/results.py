"""What a run leaves behind: summary.json, metrics.csv, models, partitions."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from numpy.typing import NDArray
from safetensors.numpy import save_file
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from fl_app.config import Config
from fl_app.report.tables import print_results
from fl_app.report.typical import typical_of_clusters
from fl_core import protocol
from fl_core.federation import Federation
from fl_core.files import replacing
from strategies import ClusteredStrategy, RoundReport, SpectralClustering

VERSION = 1
_MOST_DRAWN = 500  # clients in a similarity picture: more are no longer told apart


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
    tasks : list of int, optional
        The true task of each client, in the last round; unknown on real devices.
    tasks_per_round : list of lists of int
        The true task of each client, in each round of `reports`; empty where tasks are unknown.
    names : list of str, optional
        What to call the clients, by index, where they have names.
    not_kept : dict of str
        Why devices do not have their model, by client index.
    malicious, newcomers, drifters : tuple of int
        Clients that attack, that came late, and whose task changed. Accuracies and agreement are
        those of the others than the malicious.
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
    tasks: list[int] | None = None
    tasks_per_round: list[list[int]] = field(default_factory=list)
    names: list[str] | None = None
    not_kept: dict[int, str] = field(default_factory=dict)
    malicious: tuple[int, ...] = ()
    newcomers: tuple[int, ...] = ()
    drifters: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        arrays: ArrayRecord,
        total_seconds: float,
        federation: Federation | None = None,
    ) -> RunResult:
        """Collect what a strategy that has ended knows."""
        training = strategy.training
        names = training.roster.names
        pre, train = training.pre_round_traffic, training.train_traffic
        test, servers = training.evaluate_traffic, training.server_traffic
        spent = training.seconds
        known: dict[str, Any] = {}
        if federation is None:
            num_clients = len(names)
            known["names"] = [names[client] for client in range(num_clients)]
        else:
            num_clients = federation.partition.num_clients
            known = {
                "tasks": federation.tasks_at(len(strategy.reports)).tolist(),
                "tasks_per_round": [
                    federation.tasks_at(r.round).tolist() for r in strategy.reports
                ],
                "malicious": federation.malicious,
                "newcomers": federation.newcomers,
                "drifters": federation.drifters,
            }
        found = strategy.clusters.of_client
        return cls(
            strategy=name,
            seed=seed,
            num_clients=num_clients,
            of_client=dict(found),
            reports=strategy.reports,
            models=_named_models(strategy, arrays),
            bytes={
                "pre-round-up": pre.up,
                "pre-round-down": pre.down,
                "train-up": train.up,
                "train-down": train.down,
                "evaluate-up": test.up,
                "evaluate-down": test.down,
                "between-servers-up": servers.up,
                "between-servers-down": servers.down,
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
            **known,
        )

    @property
    def clusters(self) -> list[int]:
        """Return the cluster of each client, by index; −1: left out, it failed in the pre-round."""
        return [self.of_client.get(client, -1) for client in range(self.num_clients)]

    @property
    def accuracies(self) -> NDArray[np.float64]:
        """Return the final test accuracy of each client, shape (K,); NaN where it has none."""
        final = self.reports[-1].accuracies
        return np.array([final.get(client, math.nan) for client in range(self.num_clients)])

    @property
    def accuracy(self) -> float:
        """Return the mean over the clients that were tested (spec section 6)."""
        return self.reports[-1].accuracy

    def spread(self) -> float:
        """Return the standard deviation over the clients that were tested; NaN if none was."""
        final = list(self.reports[-1].accuracies.values())
        return float(np.std(final)) if final else math.nan

    def agreement(self) -> tuple[float, float] | None:
        """Return ARI and NMI of the final clusters against the true tasks, where they are known.

        Over clients that were grouped and are not malicious.
        """
        if self.tasks is None:
            return None
        return agreement(self.tasks, self.of_client, self.malicious)

    def isolated(self) -> float:
        """Return the share of malicious clients in clusters without an honest one; NaN without."""
        honest = {c for i, c in enumerate(self.clusters) if i not in self.malicious}
        grouped = [self.clusters[i] for i in self.malicious if self.clusters[i] >= 0]
        return float(np.mean([c not in honest for c in grouped])) if grouped else math.nan

    def as_json(self) -> dict[str, Any]:
        """Return the run's entry in summary.json."""
        known: dict[str, Any] = {}
        if (found := self.agreement()) is not None:
            known = {"tasks": self.tasks, "ari": found[0], "nmi": found[1]}
        if self.names is not None:
            known["names"] = self.names
            known["models-not-kept"] = _by_text(self.not_kept)
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "num-clients": self.num_clients,
            "rounds": len(self.reports),
            "accuracy": self.accuracy,
            "accuracy-per-client": self.accuracies.tolist(),
            "accuracy-variance": self.spread() ** 2,
            "clusters": self.clusters,
            **known,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "failures": _by_text(self.failures),
            **self._events(),
        }

    def _events(self) -> dict[str, Any]:
        """Return what is known of malicious clients, newcomers and drift, where there are any."""
        found: dict[str, Any] = {}
        if self.malicious:
            found |= {"malicious": list(self.malicious), "malicious-isolated": self.isolated()}
        for name, clients in (("newcomers", self.newcomers), ("drifters", self.drifters)):
            if clients:
                found[name] = list(clients)
                found[f"{name}-accuracy-per-round"] = {
                    str(report.round): float(np.mean(values))
                    for report in self.reports
                    if (values := [report.accuracies[c] for c in clients if c in report.accuracies])
                }
        return found


def _by_text(reasons: Mapping[int, str]) -> dict[str, str]:
    return {str(client): reason for client, reason in reasons.items()}


def _named_models(strategy: ClusteredStrategy, arrays: ArrayRecord) -> dict[str, ArrayRecord]:
    models = protocol.unpack_models(arrays)
    if strategy.aggregation.per_client:
        return {f"client-{c}": models[number] for c, number in strategy.model_of_client.items()}
    return {f"cluster-{c}": model for c, model in enumerate(models)}


def agreement(
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
    pairs = [(tasks[i], c) for i, c in clusters.items() if c >= 0 and i not in left_out]
    if not pairs:
        return math.nan, math.nan
    true, found = zip(*pairs, strict=True)
    return _agreement(true, found)


@lru_cache(maxsize=4096)  # tables are written after each run, and clusters seldom change
def _agreement(true: tuple[int, ...], found: tuple[int, ...]) -> tuple[float, float]:
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
        means = [run.accuracy for run in group]
        found = [pair for run in group if (pair := run.agreement()) is not None]
        known = {"ari-mean": float(np.mean([ari for ari, _ in found]))} if found else {}
        rows.append(
            {
                "strategy": name,
                "accuracy-mean": float(np.mean(means)),
                "accuracy-std": float(np.std(means, ddof=1)) if len(means) > 1 else 0.0,
                "accuracy-std-over-clients": float(np.mean([run.spread() for run in group])),
                "accuracy-variance": float(np.mean([run.spread() ** 2 for run in group])),
                **known,
            }
        )
    return rows


class Results:
    """Collects runs and writes everything to the output folder, after each run.

    Parameters
    ----------
    config : Config
        As it was run, resolved; saved with the results.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.folder = Path(config.output_dir)
        self.runs: list[RunResult] = []
        self.pictures: list[Path] = []
        self.folder.mkdir(parents=True, exist_ok=True)

    def add_federation(self, seed: int, federation: Federation) -> None:
        """Save who holds what, and draw it for the first seed."""
        partition = federation.partition
        arrays: dict[str, NDArray[np.int64]] = {"client-tasks": partition.client_tasks}
        for client, indices in enumerate(partition.train):
            arrays[f"train-{client}"] = indices
            arrays[f"labels-{client}"] = federation.train_labels[client]
            arrays[f"test-{client}"] = partition.test[client]
        with replacing(self.folder / f"partition-seed-{seed}.npz") as path:
            np.savez_compressed(path, allow_pickle=False, **arrays)
        if seed == self.config.seed:
            from fl_app.report import pictures  # noqa: PLC0415 - a device has no matplotlib

            noisy = federation.label_counts(noisy=True)
            true = federation.label_counts(noisy=False)
            self.pictures.append(
                pictures.draw_label_counts(
                    self.folder / "labels-per-client.png",
                    noisy,
                    partition.client_tasks.tolist(),
                    federation.dataset.class_names,
                    true_counts=None if (noisy == true).all() else true,
                )
            )

    def add_run(
        self, run: RunResult, strategy: ClusteredStrategy, federation: Federation | None = None
    ) -> None:
        """Write a finished run: its models, its row in every table, its similarity matrix."""
        self.runs.append(run)
        for name, model in run.models.items():
            file = f"models/{run.strategy}/seed-{run.seed}/{name}.safetensors"
            with replacing(self.folder / file) as path:
                save_file(protocol.to_arrays(model), path)
        self._write_tables()
        if federation is not None and isinstance(strategy.clustering, SpectralClustering):
            self._draw_clusters(run, federation)
        found = strategy.clusters
        if found.similarity is not None and found.merges is not None:
            clients = list(found.compared)
            name = f"similarity-{run.strategy}-seed-{run.seed}"
            with replacing(self.folder / f"{name}.npz") as path:
                np.savez_compressed(
                    path,
                    allow_pickle=False,
                    clients=np.array(clients),
                    similarity=found.similarity,
                    merges=found.merges,
                )
            if len(clients) > _MOST_DRAWN:
                return
            from fl_app.report import pictures  # noqa: PLC0415 - a device has no matplotlib

            self.pictures.append(
                pictures.draw_similarity(
                    self.folder / f"{name}.png",
                    found.similarity,
                    found.merges,
                    [found.of_client[c] for c in clients],
                    None if run.tasks is None else [run.tasks[c] for c in clients],
                    task_names=None if federation is None else task_names(federation),
                    measure=found.measure,
                    client_names=None if run.names is None else [run.names[c] for c in clients],
                )
            )

    def _draw_clusters(self, run: RunResult, federation: Federation) -> None:
        """Draw typical images of the first clusters that were found by HoG, with their HoG."""
        path = self.folder / "clusters.png"
        if self.config.features != "hog" or run.tasks is None or path in self.pictures:
            return
        from fl_app.report import pictures  # noqa: PLC0415 - a device has no matplotlib

        shown = typical_of_clusters(
            federation, run.of_client, run.tasks, len(run.reports), pictures.MOST_CLUSTERS
        )
        self.pictures.append(
            pictures.draw_clusters(
                path,
                shown,
                len(set(run.of_client.values())),
                f"{run.strategy}, seed {run.seed}",
                task_names=task_names(federation),
            )
        )

    def finish(self) -> None:
        """Print the tables, then draw what compares strategies."""
        print_results(table_rows(self.runs), [run.as_json() for run in self.runs])
        curves = self._curves()
        if any(rounds.size for rounds, _ in curves.values()):
            from fl_app.report import pictures  # noqa: PLC0415 - a device has no matplotlib

            self.pictures.append(
                pictures.draw_accuracy_per_round(self.folder / "accuracy-per-round.png", curves)
            )
            self.pictures.append(
                pictures.draw_accuracy_per_client(
                    self.folder / "accuracy-per-client.png",
                    {
                        name: _stacked([r.accuracies for r in self.runs if r.strategy == name])
                        for name in self.config.strategy
                    },
                )
            )
        print(f"\nresults   {self.folder / 'summary.json'}")
        for picture in self.pictures:
            print(f"picture   {picture}")
        print(f"models    {self.folder / 'models'}", flush=True)

    def _curves(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        curves = {}
        for name in self.config.strategy:
            runs = [run for run in self.runs if run.strategy == name]
            rounds = sorted({r.round for run in runs for r in run.reports if r.accuracies})
            values = [[r.accuracy for r in run.reports if r.round in rounds] for run in runs]
            curves[name] = (np.array(rounds, np.int64), np.array(values, np.float64))
        return curves

    def _write_tables(self) -> None:
        summary = {
            "version": VERSION,
            "config": self.config.as_run_config(),
            "runs": [run.as_json() for run in self.runs],
            "table": table_rows(self.runs),
        }
        with replacing(self.folder / "summary.json") as path:
            text = json.dumps(_without_nan(summary), indent=1, allow_nan=False)
            path.write_text(text + "\n", encoding="utf-8")
        with (
            replacing(self.folder / "metrics.csv") as path,
            path.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            known = ["ari"] if any(run.tasks is not None for run in self.runs) else []
            writer.writerow(
                [
                    *("strategy", "seed", "round", "accuracy", "accuracy-variance"),
                    *(*known, "loss", "train-loss"),
                ]
            )
            writer.writerows(row for run in self.runs for row in _metric_rows(run))


def task_names(federation: Federation) -> list[str]:
    """Return a short name for each task: its classes."""
    names = federation.dataset.group_names
    tasks = [[names[label] for label in task] for task in federation.partition.tasks]
    shared = federation.dataset.groups is not None  # rotations: too many and too long to list
    return [f"{t[0]} … {t[-1]}" if shared and len(t) > 1 else ", ".join(t) for t in tasks]


def _metric_rows(run: RunResult) -> Iterable[list[Any]]:
    for place, report in enumerate(run.reports):
        variance = (
            float(np.var(list(report.accuracies.values()))) if report.accuracies else math.nan
        )
        numbers = [report.accuracy, variance, report.loss, report.train_loss]
        if run.tasks_per_round:
            tasks = run.tasks_per_round[place]
            numbers.insert(2, agreement(tasks, report.clusters, run.malicious)[0])
        yield [
            run.strategy,
            run.seed,
            report.round,
            *("" if math.isnan(number) else number for number in numbers),
        ]


def _stacked(rows: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return one row per seed; devices that came only later are NaN in the first ones."""
    longest = max(map(len, rows))
    filled = [np.pad(row, (0, longest - len(row)), constant_values=math.nan) for row in rows]
    return np.stack(filled)


def _without_nan(value: Any) -> Any:
    """Return `value` with None for NaN: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
