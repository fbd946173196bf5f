"""Writes the results of a run: summary.json, metrics.csv, clients.csv, models, partitions."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl_app.config.run_config import Config
from fl_app.report import pictures
from fl_app.report.comparisons import draw_verdicts, figures_of
from fl_app.report.grouping_tables import print_grouping, warnings_of
from fl_app.report.matrices import CONSENSUS, draw_matrix, with_tree
from fl_app.report.report_page import NO_REPORT_VARIABLE, write_report
from fl_app.report.sentences import command
from fl_app.report.tables import print_clusters, print_results
from fl_app.report.verdict_table import print_headlines, print_verdicts, say_no_verdicts
from fl_app.results.grouping_report import Grouped, cost_of, grouping_report
from fl_app.results.layout import (
    GROUPING,
    MODELS,
    REPORT,
    SUMMARY,
    VERDICTS,
    models_folder,
    run_file_stem,
    similarity_path,
)
from fl_app.results.reading import Result, curves_of
from fl_app.results.run_result import RunResult, ari_and_nmi
from fl_app.results.schema import Grouping, largest_run
from fl_app.results.spectra import preparation_of, store_spectra
from fl_app.results.summary import write_tables, write_verdicts
from fl_app.results.verdict import SeedVerdicts
from fl_app.results.verdicts import verdicts_of
from fl_app.run.log import log, log_printed
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.samples import sample_word
from fl_core.files import replacing
from fl_core.json_records import to_json
from fl_core.messages import protocol
from fl_core.models.model_file import ModelCard, save_model
from fl_core.partitions.federation import Federation
from strategies import ClusteredStrategy
from strategies.clusterings.certainty import pair_shares
from strategies.rounds.round_state import Comparison

_MOST_STORED = 2_000  # clients in a similarity matrix: more are hundreds of megabytes
_MOST_DRAWN = 500  # clients in a similarity picture: more are indistinguishable


class ResultsFolder:
    """Collects runs and writes everything, the resolved `config` too, to its folder, after each.

    `command` repeats the run; by default, it is made from the configuration. `left_out` has the
    reasons why requested strategies did not run.
    """

    def __init__(
        self, config: Config, command: str = "", left_out: Mapping[str, str] | None = None
    ) -> None:
        self.config, self._left_out = config, left_out or {}
        self.command = command
        self._num_groupings = 0
        self.folder = Path(config.output_dir)
        self.runs: list[RunResult] = []
        self.verdicts: list[SeedVerdicts] = []
        self.pictures: list[Path] = []
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def add_federation(self, seed: int, federation: Federation) -> None:
        """Save the partition of the data, and draw that of the first seed."""
        with replacing(self.folder / f"partition-seed-{seed}.npz") as path:
            np.savez_compressed(path, allow_pickle=False, **_holdings(federation))
        if seed == self.config.seed and not federation.dataset.is_regression:
            noisy = federation.label_counts(noisy=True)
            true = federation.label_counts(noisy=False)
            figure = pictures.labels_figure(
                noisy,
                federation.partition.client_tasks.tolist() if federation.knows_tasks else None,
                federation.dataset.class_names,
                true_counts=None if (noisy == true).all() else true,
                client_names=federation.names,
            )
            self.pictures.append(pictures.save(figure, self._picture("labels-per-client")))

    def add_run(
        self,
        run: RunResult,
        strategy: ClusteredStrategy,
        data: Dataset | Agreement,
        federation: Federation | None = None,
    ) -> None:
        """Write a finished run: its models, its rows of all tables, its similarity matrix.

        `data` has the kind of samples that its models take. The run loses its models.
        """
        self.runs.append(run)
        for name, model in run.models.items():
            kind, _, number = name.partition("-")
            card = ModelCard(
                architecture=self.config.model,
                sample_shape=data.sample_shape,
                class_names=tuple(data.class_names),
                strategy=run.strategy,
                cluster=int(number) if kind == "cluster" else run.of_client[int(number)],
                num_rounds=len(run.reports),
                preparation=preparation_of(data, self.config, name, strategy.clusters),
            )
            file = models_folder(self.folder, run.strategy, run.seed) / f"{name}.safetensors"
            save_model(file, protocol.to_arrays(model), card)
        run.models.clear()  # those of many clients fill the memory
        self._samples = sample_word(data), data.column_names
        self._write_tables()
        found = _grouped(run.strategy, run.seed, strategy, run.names, federation)
        self._add_similarity(found)
        if strategy.clustering.shows_groups:
            report = self.add_grouping(found, strategy, data)
            for line in warnings_of(report):
                log.info("%s, seed %d: %s", run.strategy, run.seed, line)

    def _write_tables(self) -> None:
        write_tables(
            self.folder, self.config, self.runs, *self._samples, self._left_out, self.verdicts
        )

    def judge(self, seed: int, folds: Sequence[Sequence[RunResult]] = ()) -> SeedVerdicts | None:
        """Return each client's verdict on the strategies of a seed; None without comparisons.

        `folds` has the runs where other samples validated; the runs get their failures.
        """
        for index, run in enumerate(self.runs):
            key = run.strategy, run.seed
            again = [one for fold in folds for one in fold if (one.strategy, one.seed) == key]
            failures = [failure for one in (run, *again) for failure in one.failures]
            never = {client for one in (run, *again) for client in one.never_trained}
            self.runs[index] = replace(run, failures=failures, never_trained=tuple(sorted(never)))
        runs = [run for run in self.runs if run.seed == seed]
        found = verdicts_of(runs, *folds)
        if found is None:
            with log_printed(logging.INFO):
                say_no_verdicts(runs)
        else:
            self.verdicts.append(found)
        return found

    def end_seed(self) -> None:
        """Write the verdicts so far, and which devices did not store their model."""
        self._write_tables()
        if self.verdicts:
            write_verdicts(
                self.folder / VERDICTS, self.verdicts, largest_run(self.runs).given_names
            )

    def add_grouping_alone(
        self,
        name: str,
        seed: int,
        strategy: ClusteredStrategy,
        data: Dataset | Agreement,
        federation: Federation | None = None,
    ) -> None:
        """Write and print the clusters of a pre-round without training."""
        known = strategy.training.registry.names
        count = self.config.num_clients if federation is not None else len(known)
        names = [known.get(client, str(client)) for client in range(count)]
        found = _grouped(name, seed, strategy, names, federation)
        self._add_similarity(found)
        report = self.add_grouping(found, strategy, data)
        with log_printed(logging.INFO):
            print(f"\n{name}", end="")
            print_grouping(report)
        if found.tasks is not None:
            attackers = () if federation is None else federation.malicious
            ari, _ = ari_and_nmi(found.tasks, strategy.clusters.of_client, attackers)
            log.info("against the true tasks: ARI %.2f", ari)

    def finish_grouping(self) -> None:
        """Write the report of a run without training."""
        self._write_report(GROUPING)

    def add_grouping(
        self,
        found: Grouped,
        strategy: ClusteredStrategy,
        data: Dataset | Agreement,
    ) -> Grouping:
        """Write a grouping and the eigenvectors that place later clients; return its report.

        The first grouping has no strategy and seed in its files' names.
        """
        clusters = found.clusters
        report = grouping_report(
            clusters,
            found.names,
            cost_of(strategy, self.config, data),
            getattr(strategy.clustering, "num_clusters", self.config.num_clusters),
            self.command or command(self.config.as_run_config()),
            strategy.training.registry.unknown_by_name,
            sample_word(data),
            data.column_names,
        )
        path = self.folder / GROUPING
        if self._num_groupings:
            path = path.with_stem(run_file_stem(path.stem, found.strategy, found.seed))
        self._num_groupings += 1
        with replacing(path) as partial:
            partial.write_text(to_json(report) + "\n", encoding="utf-8")
        store_spectra(self.folder, strategy, self.config, data, found)
        if clusters.resamples is None or report.why_indistinguishable:
            return report
        consensus = with_tree(
            CONSENSUS,
            pair_shares(list(clusters.resamples.labels)),
            list(clusters.of_client.values()),
            [found.names[client] for client in clusters.of_client],
        )
        figure = draw_matrix(consensus)
        self.pictures.append(pictures.save(figure, self._picture(path.stem)))
        return report

    def _add_similarity(self, found: Grouped) -> None:
        """Write and draw the similarity of clients, where the clustering has one."""
        path = similarity_path(self.folder, found.strategy, found.seed)
        figure = write_similarity(path, found)
        if figure is not None:
            self.pictures.append(pictures.save(figure, self._picture(path.stem)))

    def finish(self) -> None:
        """Draw the pictures that compare strategies, write the report, and log the tables."""
        result, largest = _result_of(self.runs, self.verdicts), largest_run(self.runs)
        figures = {name: figure for name, (figure, _) in figures_of([result]).items()}
        if self.verdicts:
            figures["verdicts"] = draw_verdicts(result)
        self.pictures += [
            pictures.save(figure, self._picture(name)) for name, figure in figures.items()
        ]
        with log_printed(logging.DEBUG):
            print_clusters(self.runs)
        self._write_report(SUMMARY)
        with log_printed(logging.INFO):
            print_results(self.runs)
            for one in self.verdicts:
                print_verdicts(one, largest)
            print_headlines(self.verdicts, largest)

    def _write_report(self, numbers: str) -> None:
        """Write the report, and log the paths of all files; `numbers` is that of the JSON file.

        `NO_REPORT_VARIABLE` suppresses both, for one of many simulations.
        """
        if os.environ.get(NO_REPORT_VARIABLE):
            return
        places = [("results", self.folder / numbers)]
        places += [("picture", path) for path in self.pictures]
        places += [("models", path) for path in [self.folder / MODELS] if path.is_dir()]
        for what, path in places:
            log.debug("%-9s %s", what, path)
        try:
            log.info("report    %s", write_report([self.folder], self.folder / REPORT))
        except (ValueError, RuntimeError, ImportError) as error:  # the results are there
            log.warning("no %s: %s", REPORT, error)

    def _picture(self, name: str) -> Path:
        return self.folder / f"{name}.{self.config.figure_format}"


def _result_of(runs: Sequence[RunResult], verdicts: Sequence[SeedVerdicts]) -> Result:
    """Return the result that pictures show, with the scores of all tested rounds."""
    scores: dict[str, dict[int, dict[int, float]]] = {}
    for run in runs:
        of_rounds = {report.round: report.score for report in run.reports if report.tested}
        if of_rounds:
            scores.setdefault(run.strategy, {})[run.seed] = of_rounds
    return Result(name="", runs=[*runs], curves=curves_of(scores), verdicts=[*verdicts])


def _holdings(federation: Federation) -> dict[str, NDArray[np.int64]]:
    """Return the samples of each client, by their indices in the data set, and their labels."""
    partition = federation.partition
    arrays = {"client-tasks": partition.client_tasks} if federation.knows_tasks else {}
    for client, indices in enumerate(partition.train):
        arrays[f"train-{client}"] = indices
        arrays[f"labels-{client}"] = federation.train_labels[client]
        arrays[f"test-{client}"] = partition.test[client]
        if federation.validation:
            arrays[f"validation-{client}"] = federation.validation[client]
            arrays[f"validation-labels-{client}"] = federation.validation_labels[client]
    return arrays


def _grouped(
    name: str,
    seed: int,
    strategy: ClusteredStrategy,
    names: Sequence[str],
    federation: Federation | None,
) -> Grouped:
    tasks = compared_tasks(strategy, federation)
    of_tasks = None if tasks is None or federation is None else task_names(federation)
    return Grouped(name, seed, strategy.clusters, list(names), tasks=tasks, task_names=of_tasks)


def compared_tasks(strategy: ClusteredStrategy, federation: Federation | None) -> list[int] | None:
    """Return the clients' tasks when they were compared: drift may have changed some since."""
    if federation is None or not federation.knows_tasks:
        return None
    comparison = strategy.clusters.comparison
    tasks: list[int] = federation.tasks_at(comparison.round if comparison else 0).tolist()
    return tasks


def write_similarity(path: Path, found: Grouped) -> pictures.Spec | None:
    """Write the similarity of clients, if the clustering has one; return its picture.

    None of so many clients that they would be indistinguishable.
    """
    clusters, compared = found.clusters, found.clusters.comparison
    if compared is None:
        return None
    clients = [*compared.clients, *compared.late]
    arrays = {
        "clients": np.array(clients),
        "merges": compared.merges,
        "measure": np.array(compared.measure),
    }
    if found.tasks is not None:
        arrays["tasks"] = np.array([found.tasks[client] for client in clients])
    if len(clients) <= _MOST_STORED:
        arrays["similarity"] = with_late(compared)
    with replacing(path) as partial:
        np.savez_compressed(partial, allow_pickle=False, **arrays)
    if len(clients) > _MOST_DRAWN:
        return None
    return pictures.similarity_figure(
        with_late(compared),
        compared.merges,
        [clusters.of_client[c] for c in clients],
        None if found.tasks is None else [found.tasks[c] for c in clients],
        task_names=found.task_names,
        measure=compared.measure,
        client_names=[found.names[c] for c in clients],
    )


def with_late(found: Comparison) -> NDArray[np.float64]:
    """Return the similarity of the compared clients, then of those that came later.

    Clients that came later were not compared with each other: NaN.
    """
    count, late = len(found.clients), list(found.late.values())
    whole = np.full((count + len(late),) * 2, np.nan)
    whole[:count, :count] = found.similarity
    for index, row in enumerate(late, count):
        whole[index, :count] = whole[:count, index] = row
    return whole


def task_names(federation: Federation) -> list[str]:
    """Return a short name for each task: its classes."""
    names = federation.dataset.group_names
    tasks = [[names[label] for label in task] for task in federation.partition.tasks]
    shared = federation.dataset.groups is not None  # rotations: too many and too long to list
    return [f"{t[0]} … {t[-1]}" if shared and len(t) > 1 else ", ".join(t) for t in tasks]
