"""What a run leaves behind: summary.json, metrics.csv, clients.csv, models, partitions."""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.config.run_config import Config
from fl_app.report import pictures
from fl_app.report.html.build import NO_REPORT, REPORT, write_report
from fl_app.report.tables import print_results
from fl_app.report.typical import typical_of_clusters
from fl_app.results.grouping import (
    GROUPING,
    Grouped,
    command_of,
    cost_of,
    grouping_report,
    print_grouping,
    write_grouping,
)
from fl_app.results.run import RunResult, ari_and_nmi, table_rows
from fl_app.results.spectra import keep_spectra
from fl_core.data.dataset import Dataset
from fl_core.federation.federation import Federation
from fl_core.files import replacing
from fl_core.models.model_file import ModelCard, save_model, save_shared_part
from fl_core.own.own_images import Agreement
from fl_core.text import csv_cell
from fl_core.wire import protocol
from strategies import ClusteredStrategy
from strategies.clusterings.certainty import pair_shares
from strategies.engine.rounds import Comparison

VERSION = 1
_SCORES = (protocol.ACCURACY, protocol.LOSS, protocol.MACRO_F1, protocol.BALANCED_ACCURACY)
_CLIENT_COLUMNS = (
    *("strategy", "seed", "round", "client", "name", "cluster", "task", "samples"),
    *_SCORES,
    "left-out-of-sums",
)
_SOFTWARE = ("fedkin", "flwr", "torch", "torchvision", "numpy", "scipy", "scikit-learn")
_MOST_KEPT = 2_000  # clients in a similarity matrix: more are hundreds of megabytes
_MOST_DRAWN = 500  # clients in a similarity picture: more are no longer told apart


class ResultsFolder:
    """Collects runs and writes everything, the resolved `config` too, to its folder, after each.

    `command` does the same again; by default, it is made from the configuration.
    """

    def __init__(self, config: Config, command: str = "") -> None:
        self.config = config
        self.command = command
        self._num_groupings = 0
        self.folder = Path(config.output_dir)
        self.runs: list[RunResult] = []
        self.pictures: list[Path] = []
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add_federation(self, seed: int, federation: Federation) -> None:
        """Save who holds what, and draw it for the first seed."""
        partition = federation.partition
        arrays: dict[str, NDArray[np.int64]] = {}
        if federation.knows_tasks:
            arrays["client-tasks"] = partition.client_tasks
        for client, indices in enumerate(partition.train):
            arrays[f"train-{client}"] = indices
            arrays[f"labels-{client}"] = federation.train_labels[client]
            arrays[f"test-{client}"] = partition.test[client]
        with replacing(self.folder / f"partition-seed-{seed}.npz") as path:
            np.savez_compressed(path, allow_pickle=False, **arrays)
        if seed == self.config.seed:
            noisy = federation.label_counts(noisy=True)
            true = federation.label_counts(noisy=False)
            figure = pictures.labels_figure(
                noisy,
                partition.client_tasks.tolist() if federation.knows_tasks else None,
                federation.dataset.class_names,
                true_counts=None if (noisy == true).all() else true,
            )
            self.pictures.append(pictures.save(figure, self._picture("labels-per-client")))

    def add_run(
        self,
        run: RunResult,
        strategy: ClusteredStrategy,
        images: Dataset | Agreement,
        federation: Federation | None = None,
    ) -> None:
        """Write a finished run: its models, its row in every table, its similarity matrix.

        `images` are of the kind that its models take.
        """
        self.runs.append(run)
        for name, model in run.models.items():
            kind, _, number = name.partition("-")
            card = ModelCard(
                architecture=self.config.model,
                image_shape=images.image_shape,
                class_names=tuple(images.class_names),
                strategy=run.strategy,
                cluster=int(number) if kind == "cluster" else run.of_client[int(number)],
                num_rounds=len(run.reports),
            )
            file = f"models/{run.strategy}/seed-{run.seed}/{name}.safetensors"
            save = save_shared_part if strategy.training.private else save_model
            save(self.folder / file, protocol.to_arrays(model), card)
        self._write_tables()
        if federation is not None and strategy.clustering.shows_groups:
            self._draw_clusters(run, federation)
        found = Grouped(
            run.strategy,
            run.seed,
            strategy.clusters,
            run.names or [str(client) for client in range(run.num_clients)],
            tasks=run.tasks,
            task_names=None if run.tasks is None or federation is None else task_names(federation),
        )
        self._add_similarity(found)
        if strategy.clustering.shows_groups:
            self.add_grouping(found, strategy, images)

    def add_grouping_alone(
        self,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        images: Dataset | Agreement,
        federation: Federation | None = None,
    ) -> None:
        """Write what a pre-round found after which nobody trains, and print it."""
        known = strategy.training.roster.names
        count = self.config.num_clients if federation is not None else len(known)
        names = [str(c) if federation is not None else known[c] for c in range(count)]
        if federation is not None and not federation.knows_tasks:
            federation = None
        found = Grouped(
            name,
            seed,
            strategy.clusters,
            names,
            tasks=None if federation is None else federation.tasks_at(0).tolist(),
            task_names=None if federation is None else task_names(federation),
        )
        self._add_similarity(found)
        report = self.add_grouping(found, strategy, images)
        print(f"\n{name}", end="")
        print_grouping(report)
        if found.tasks is not None:
            ari, _ = ari_and_nmi(found.tasks, strategy.clusters.of_client)
            print(f"against the true tasks: ARI {ari:.2f}", flush=True)

    def finish_grouping(self) -> None:
        """Say where everything is, after a run that trained nothing."""
        self._write_report(GROUPING)

    def add_grouping(
        self, found: Grouped, strategy: ClusteredStrategy, images: Dataset | Agreement
    ) -> dict[str, Any]:
        """Write how sure a grouping is, and what places others later; return the report.

        The first one has no strategy and seed in the files' names.
        """
        clusters = found.clusters
        report = grouping_report(
            clusters,
            found.names,
            cost_of(strategy, self.config, images),
            getattr(strategy.clustering, "num_clusters", self.config.num_clusters),
            self.command or command_of(self.config),
            strategy.training.roster.unknown,
        )
        path = self.folder / GROUPING
        if self._num_groupings:
            path = path.with_stem(f"{path.stem}-{found.strategy}-seed-{found.seed}")
        self._num_groupings += 1
        write_grouping(report, path)
        keep_spectra(self.folder, strategy, self.config, images, found)
        if clusters.resamples is None:
            return report
        clients = clusters.resamples.clients
        figure = pictures.certainty_figure(
            pair_shares(list(clusters.resamples.labels)),
            [clusters.of_client[client] for client in clients],
            [report["certainty"][client] for client in clients],
            [found.names[client] for client in clients],
        )
        self.pictures.append(pictures.save(figure, self._picture(path.stem)))
        return report

    def _add_similarity(self, found: Grouped) -> None:
        """Write and draw the similarity of clients, where the clustering has one."""
        clusters, compared = found.clusters, found.clusters.comparison
        if compared is None:
            return
        clients = [*compared.clients, *compared.late]
        similarity = self.folder / f"similarity-{found.strategy}-seed-{found.seed}.npz"
        kept = {
            "clients": np.array(clients),
            "merges": compared.merges,
            "measure": np.array(compared.measure),
        }
        if len(clients) <= _MOST_KEPT:
            kept["similarity"] = with_late(compared)
        with replacing(similarity) as path:
            np.savez_compressed(path, allow_pickle=False, **kept)
        if len(clients) > _MOST_DRAWN:
            return
        figure = pictures.similarity_figure(
            with_late(compared),
            compared.merges,
            [clusters.of_client[c] for c in clients],
            None if found.tasks is None else [found.tasks[c] for c in clients],
            task_names=found.task_names,
            measure=compared.measure,
            client_names=[found.names[c] for c in clients],
        )
        self.pictures.append(pictures.save(figure, self._picture(similarity.stem)))

    def _draw_clusters(self, run: RunResult, federation: Federation) -> None:
        """Draw typical images of the first clusters that were found by HoG, with their HoG."""
        path = self._picture("clusters")
        if self.config.features != "hog" or run.tasks is None or path in self.pictures:
            return
        shown = typical_of_clusters(
            federation, run.of_client, run.tasks, len(run.reports), pictures.MOST_CLUSTERS
        )
        figure = pictures.clusters_figure(
            shown,
            len(set(run.of_client.values())),
            f"{run.strategy}, seed {run.seed}",
            task_names(federation),
        )
        self.pictures.append(pictures.save(figure, path))

    def finish(self) -> None:
        """Print the tables, then draw what compares strategies."""
        print_results([run.as_json() for run in self.runs])
        curves, first = self._curves(), self.config.seed
        if any(rounds.size for rounds, _ in curves.values()):
            for name, figure in (
                ("accuracy-per-round", pictures.rounds_figure(curves)),
                (
                    "accuracy-per-client",
                    pictures.clients_figure(self._final(), several_seeds=self.config.repeats > 1),
                ),
                (
                    "accuracy-per-cluster",
                    pictures.cluster_rounds_figure(
                        {r.strategy: _cluster_curves(r) for r in self.runs if r.seed == first},
                        first,
                    ),
                ),
                ("accuracy-against-bytes", pictures.traffic_figure(self._costs())),
            ):
                self.pictures.append(pictures.save(figure, self._picture(name)))
        self._write_report("summary.json")
        print(f"models    {self.folder / 'models'}", flush=True)

    def _write_report(self, numbers: str) -> None:
        """Write the page that shows everything, and say where all is; numbers are in that file.

        One of many simulations has no page of its own, if whoever started it says so.
        """
        if not os.environ.get(NO_REPORT):
            try:
                report = write_report([self.folder], self.folder / REPORT)
                print(f"\nreport    {report}")
            except (ValueError, RuntimeError, ImportError) as error:  # the run has what it found
                print(f"\nno {REPORT}: {error}")
        print(f"results   {self.folder / numbers}")
        for picture in self.pictures:
            print(f"picture   {picture}", flush=True)

    def _picture(self, name: str) -> Path:
        return self.folder / f"{name}.{self.config.figure_format}"

    def _curves(self) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        curves = {}
        for name in self.config.strategy:
            runs = [run for run in self.runs if run.strategy == name]
            rounds = sorted({r.round for run in runs for r in run.reports if r.accuracies})
            values = [[r.accuracy for r in run.reports if r.round in rounds] for run in runs]
            curves[name] = (np.array(rounds, np.int64), np.array(values, np.float64))
        return curves

    def _costs(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return the megabytes of a client, (S,), and the final accuracy, (S,), by strategy."""
        return {
            name: (
                np.array([run.bytes_per_client / 1e6 for run in runs]),
                np.array([run.accuracy for run in runs]),
            )
            for name in self.config.strategy
            if (runs := [run for run in self.runs if run.strategy == name])
        }

    def _final(self) -> dict[str, list[pictures.Tested]]:
        """Return each strategy's final accuracies, of all seeds, and what to call the clients."""
        return {
            name: [
                pictures.Tested(accuracy, self._called(run, client))
                for run in self.runs
                if run.strategy == name
                for client, accuracy in enumerate(run.accuracies)
            ]
            for name in self.config.strategy
            if any(run.strategy == name for run in self.runs)
        }

    def _called(self, run: RunResult, client: int) -> str:
        if run.names is not None and client < len(run.names):
            return run.names[client]
        return f"client {client}" + (f", seed {run.seed}" if self.config.repeats > 1 else "")

    def _write_tables(self) -> None:
        summary = {
            "version": VERSION,
            "config": self.config.as_run_config(),
            "versions": versions(),
            **({"privacy": spent} if (spent := self.config.spent()) else {}),
            "runs": [run.as_json() for run in self.runs],
            "table": table_rows(self.runs),
        }
        with replacing(self.folder / "summary.json") as path:
            text = json.dumps(_without_nan(summary), indent=1, allow_nan=False)
            path.write_text(text + "\n", encoding="utf-8")
        known = ["ari"] if any(run.tasks is not None for run in self.runs) else []
        columns = ["strategy", "seed", "round", "accuracy", "accuracy-variance", *known]
        self._write_csv("metrics.csv", [*columns, "loss", "train-loss", "bytes"], _metric_rows)
        self._write_csv("clients.csv", _CLIENT_COLUMNS, _client_rows)

    def _write_csv(
        self,
        name: str,
        columns: Sequence[str],
        rows_of: Callable[[RunResult], Iterable[Sequence[Any]]],
    ) -> None:
        with (
            replacing(self.folder / name) as path,
            path.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(row for run in self.runs for row in rows_of(run))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the software that decides what a run finds."""
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        with suppress(PackageNotFoundError):  # Flower may have brought the app itself
            found[name] = version(name)
    return found


def with_late(found: Comparison) -> NDArray[np.float64]:
    """Return the similarity of the clients compared, then of those that came later.

    As far as it is known: clients that came later were not compared with each other; NaN.
    """
    count, late = len(found.clients), list(found.late.values())
    whole = np.full((count + len(late),) * 2, np.nan)
    whole[:count, :count] = found.similarity
    for place, row in enumerate(late, count):
        whole[place, :count] = whole[:count, place] = row
    return whole


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
            numbers.insert(2, ari_and_nmi(tasks, report.clusters, run.malicious)[0])
        yield [
            run.strategy,
            run.seed,
            report.round,
            *("" if math.isnan(number) else number for number in numbers),
            report.bytes,
        ]


def _cluster_curves(
    run: RunResult,
) -> tuple[NDArray[np.int64], dict[int, NDArray[np.float64]]]:
    """Return the evaluated rounds, (R,), and each cluster's mean accuracy there, (R,).

    The cluster with the most clients, over all these rounds, comes first.
    """
    reports = [report for report in run.reports if report.accuracies]
    tested: dict[int, list[list[float]]] = {}
    for place, report in enumerate(reports):
        for client, accuracy in report.accuracies.items():
            rounds = tested.setdefault(report.clusters[client], [[] for _ in reports])
            rounds[place].append(accuracy)
    largest = sorted(tested, key=lambda c: (-sum(map(len, tested[c])), c))
    means = {c: np.array([np.mean(a) if a else math.nan for a in tested[c]]) for c in largest}
    return np.array([report.round for report in reports], np.int64), means


def _client_rows(run: RunResult) -> Iterable[list[Any]]:
    """Return one row for each client in each evaluated round; what is not known is empty."""
    for place, report in enumerate(run.reports):
        if not report.accuracies:
            continue
        for client, cluster in report.clusters.items():
            samples = report.samples.get(client)
            yield [
                *(run.strategy, run.seed, report.round, client),
                "" if run.names is None else csv_cell(run.names[client]),
                cluster,
                run.tasks_per_round[place][client] if run.tasks_per_round else "",
                "" if samples is None else f"{samples:.15g}",
                *(report.scores[score].get(client, "") for score in _SCORES),
                csv_cell(report.left_out_of_sums.get(client, "")),
            ]


def _without_nan(value: Any) -> Any:
    """Return `value` with None for NaN: JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
