"""The tables of a report's sections: clusters, clients, and what happened to clients."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fl_app.report.grouping_tables import candidates_table, clusters_table, doubts_table
from fl_app.report.sentences import named
from fl_app.report.tables import MOST_NAMES, cluster_table
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result
from fl_app.results.schema import Grouping, Run
from strategies.catalogue import UNGROUPED

_MOST_CLIENTS = 300  # rows of the table of clients; clients.csv has all
_MOST_STRATEGIES = 6  # in that table


def cluster_tables(result: Result) -> list[TextTable]:
    """Tabulate the clusters, the clients in doubt, and the scores of each client."""
    first, grouping = [result.of(name)[0] for name in result.strategies], result.grouping
    found = [run for run in result.runs if run.strategy not in UNGROUPED]
    tables: list[TextTable | None] = [
        replace(cluster_table(run), open=run is found[0])
        for run in found[:12]  # of all seeds, if few
    ]
    if grouping:
        tables += [] if found else [clusters_table(grouping)]
        tables += [doubts_table(grouping), candidates_table(grouping)]
    return [table for table in [*tables, _clients(first, grouping)] if table]


def _clients(first: Sequence[Run], grouping: Grouping | None) -> TextTable | None:
    """Return each client's cluster and score, with the worst of the first strategy above."""
    if not first:
        return None
    count, names, metric = first[0].num_clients, first[0].names, first[0].metrics.main
    columns, cells = ["client"], [names]
    if grouping and np.isfinite(grouping.certainty).any():
        sure = dict(zip(grouping.names, grouping.certainty, strict=True))
        columns.append("certainty %")
        shares = [100 * sure.get(name, np.nan) for name in names]
        cells.append(["–" if np.isnan(share) else f"{share:.1f}" for share in shares])
    for run in [run for run in first if run.num_clients == count][:_MOST_STRATEGIES]:
        unit = metric.unit_suffix.strip() or metric.title
        several = len(run.tests) > 1
        scores = [
            (f"{unit} {test}" * several or unit, metric, one.scores)
            for test, one in run.tests.items()
        ]
        scores += [(user.title, user, run.scores_of(user)) for user in run.metrics.measured]
        heads = ("cluster", *(head for head, *_ in scores))
        columns += [f"{run.strategy}: {head}" for head in heads]
        cells.append(["–" if cluster < 0 else str(cluster) for cluster in run.clusters])
        cells += [
            [one.shown(score) if np.isfinite(score) else "–" for score in of_clients]
            for _, one, of_clients in scores
        ]
    worst = -first[0].scores if metric.lower_is_better else first[0].scores
    order = np.argsort(np.nan_to_num(worst, nan=np.inf), kind="stable")[:_MOST_CLIENTS].tolist()
    which = f"{_MOST_CLIENTS} of {count:,} clients" if count > _MOST_CLIENTS else "All clients"
    caption = f"{which}, the {metric.extreme} {metric.title} first (seed {first[0].seed})"
    rows = [[column[client] for column in cells] for client in order]
    return TextTable(caption, columns, rows, range(1, len(columns)), open=False)


def trouble_tables(result: Result) -> list[TextTable | str]:
    """Tabulate failures, outliers, attackers, newcomers and drift: a row for each reason."""
    events: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for kind, why, name, where in [*_run_events(result), *_grouping_events(result)]:
        events.setdefault((kind, why), []).append((name, where))
    if not events:
        return ["No client failed, was an outlier or attacked."]
    rows = []
    for (kind, why), pairs in events.items():
        names, places = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
        rows.append([kind, named(names, MOST_NAMES), why, named(places, 6)])
    columns = ["what", "who", "why", "where"]
    return [TextTable("What happened to clients", columns, rows, folds=False)]


def _run_events(result: Result) -> Iterator[tuple[str, str, str, str]]:
    """Yield what happened to clients in runs: its kind, the reason, the name and where."""
    for run in result.runs:
        where = f"{run.strategy}/{run.seed}"
        for failure in run.failures:
            name = run.names[failure.client]
            yield failure.action, failure.reason, name, f"{where} {failure.when}"
        attack = str(result.config.get("attack"))
        if run.isolated is not None and np.isfinite(run.isolated):
            attack += f"; {100 * run.isolated:.0f} % in clusters of their own"
        known = {*run.malicious, *(failure.client for failure in run.failures)}
        untested: set[int] = set()
        if np.isfinite(run.scores).any() and result.config.get("fraction-evaluate", 1) == 1:
            untested = {*np.flatnonzero(np.isnan(run.scores)).tolist()} - known
        why = f"sent no {run.metrics.main.title} in the last round"
        for kind, reasons in {
            "outlier": run.outliers,
            "model not stored": run.models_not_stored or {},
            "left out of secure sums": run.left_out_of_sums,
            "malicious": dict.fromkeys(run.malicious, attack),
            "joined later": dict.fromkeys(run.newcomers, "as configured"),
            "changed task": dict.fromkeys(run.drifters, "as configured"),
            "not tested": dict.fromkeys(untested, why),
        }.items():
            for client, reason in sorted(reasons.items()):
                yield kind, reason, run.names[client], where
        for name, reason in run.unknown_nodes.items():
            yield "left out", reason, name, where


def _grouping_events(result: Result) -> Iterator[tuple[str, str, str, str]]:
    """Yield what happened to clients of a grouping: its kind, the reason, the name and where."""
    if (grouping := result.grouping) is None:
        return
    pairs = zip(grouping.names, grouping.clusters, strict=True)
    without = {name: "is in no cluster" for name, cluster in pairs if cluster < 0}
    for kind, reasons in {
        "left out": {} if result.runs else without | grouping.unknown_nodes,
        "outlier": grouping.outliers,
        "little to compare": grouping.uninformative,
    }.items():
        for name, reason in reasons.items():
            yield kind, reason, name, "grouping"
