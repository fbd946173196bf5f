"""The tables of a report's sections: clusters, clients, failures and costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fl_app.report.grouping_tables import candidates_table, clusters_table, doubts_table
from fl_app.report.sentences import named
from fl_app.report.tables import MOST_NAMES, cluster_table
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result
from fl_app.results.schema import Grouping, Run
from fl_core.metrics import Metric
from strategies.catalogue import UNGROUPED

MOST_CLIENTS = 300  # rows of the table of clients; clients.csv has all


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
        candidates = candidates_table(grouping)
        if candidates:
            caption = f"{candidates.caption}: {grouping.num_clusters.why}"
            candidates = replace(candidates, caption=caption)
        tables += [doubts_table(grouping), candidates]
    return [table for table in [*tables, _clients(first, grouping)] if table]


def _known(metric: Metric, value: float) -> str:
    return metric.shown(value) if np.isfinite(value) else "–"


def _clients(first: Sequence[Run], grouping: Grouping | None) -> TextTable | None:
    """Return each client's cluster and score, with the worst of the first strategy above."""
    if not first:
        return None
    count = first[0].num_clients
    shown = [run for run in first if run.num_clients == count][:6]
    sure = {}
    if grouping and np.isfinite(grouping.certainty).any():
        sure = dict(zip(grouping.names, grouping.certainty, strict=True))
    metric = first[0].metrics.main
    scores = -shown[0].scores if metric.lower_is_better else shown[0].scores
    order = np.argsort(np.nan_to_num(scores, nan=np.inf), kind="stable")
    rows = [
        [
            shown[0].names[client],
            *([_percent(sure.get(shown[0].names[client]))] if sure else []),
            *(
                text
                for run in shown
                for text in (
                    "–" if run.clusters[client] < 0 else str(run.clusters[client]),
                    *(_known(metric, one.scores[client]) for one in run.tests.values()),
                    *(
                        _known(metric_of_user, run.user_metric_per_client[client])
                        for metric_of_user in run.metrics.measured
                    ),
                )
            ),
        ]
        for client in order[:MOST_CLIENTS].tolist()
    ]
    columns = ["client", *(["certainty %"] if sure else [])]
    for run in shown:
        unit = metric.unit_suffix.strip() or metric.title
        heads = [f"{unit} {test}" for test in run.tests] if len(run.tests) > 1 else [unit]
        heads += [measured.title for measured in run.metrics.measured]
        columns += [f"{run.strategy}: {head}" for head in ("cluster", *heads)]
    which = f"{MOST_CLIENTS} of {count:,} clients" if count > MOST_CLIENTS else "All clients"
    caption = f"{which}, the {metric.extreme} {metric.title} first (seed {shown[0].seed})"
    return TextTable(caption, columns, rows, range(1, len(columns)), open=False)


def _percent(share: float | None) -> str:
    return "–" if share is None or not np.isfinite(share) else f"{100 * share:.1f}"


def trouble_tables(result: Result) -> list[TextTable | str]:
    """Tabulate failures, outliers, attackers, newcomers and drift: a row for each reason."""
    attack, all_asked = result.config.get("attack"), result.config.get("fraction-evaluate", 1) == 1
    events: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for run in result.runs:
        for kind, why, name, when in _run_events(run, str(attack), all_asked=all_asked):
            where = f"{run.strategy}/{run.seed} {when}".rstrip()
            events.setdefault((kind, why), []).append((name, where))
    for name, kind, why in _grouping_events(result):
        events.setdefault((kind, why), []).append((name, "grouping"))
    if not events:
        return ["No client failed, was an outlier or attacked."]
    rows = []
    for (kind, why), pairs in events.items():
        names = list(dict.fromkeys(name for name, _ in pairs))
        places = list(dict.fromkeys(place for _, place in pairs))
        rows.append([kind, named(names, MOST_NAMES), why, named(places, 6)])
    columns = ["what", "who", "why", "where"]
    return [TextTable("What happened to clients", columns, rows, folds=False)]


def _run_events(run: Run, attack: str, *, all_asked: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield what happened to a client of a run: its kind, the reason, the name and the rounds."""
    for failure in run.failures:
        yield failure.action, failure.reason, run.names[failure.client], failure.when
    for kind, found in (
        ("outlier", run.outliers),
        ("model not stored", run.models_not_stored or {}),
        ("left out of secure sums", run.left_out_of_sums),
    ):
        for client, why in found.items():
            yield kind, why, run.names[client], ""
    for name, why in run.unknown_nodes.items():
        yield "left out", why, name, ""
    alone = run.isolated
    if alone is not None and np.isfinite(alone):
        attack = f"{attack}; {100 * alone:.0f} % in clusters of their own"
    for kind, why, clients in (
        ("malicious", attack, run.malicious),
        ("joined later", "as configured", run.newcomers),
        ("changed task", "as configured", run.drifters),
    ):
        for client in sorted(clients):
            yield kind, why, run.names[client], ""
    tested = np.isfinite(run.scores)
    known = {*run.malicious, *(failure.client for failure in run.failures)}
    for client in np.flatnonzero(~tested).tolist() if tested.any() and all_asked else ():
        if client not in known:
            why = f"sent no {run.metrics.main.title} in the last round"
            yield "not tested", why, run.names[client], ""


def _grouping_events(result: Result) -> list[tuple[str, str, str]]:
    """Return what happened to clients of a grouping: the name, the kind and the reason."""
    grouping = result.grouping
    if grouping is None:
        return []
    pairs = zip(grouping.names, grouping.clusters, strict=True)
    without = {name: "is in no cluster" for name, cluster in pairs if cluster < 0}
    without |= grouping.unknown_nodes
    return [
        *((name, "left out", why) for name, why in without.items() if not result.runs),
        *((name, "outlier", why) for name, why in grouping.outliers.items()),
        *((name, "little to compare", why) for name, why in grouping.uninformative.items()),
    ]


def cost_tables(result: Result) -> list[TextTable]:
    """Tabulate the costs of strategies, and of a grouping alone."""
    return [*_seconds(result), *_bytes(result.grouping)]


def _seconds(result: Result) -> list[TextTable]:
    """Tabulate each strategy's costs: bytes of a client, and seconds, means over seeds."""
    if not result.runs:
        return []
    rows = []
    for name in result.strategies:
        runs = result.of(name)
        sent = [
            " / ".join(
                f"{np.mean([run.kilobytes(f'{part}-{way}') for run in runs]):,.0f}"
                for way in ("up", "down")
            )
            for part in ("pre-round", "train", "evaluate")
        ]
        took = [
            float(np.mean([run.seconds.get(part, np.nan) for run in runs]))
            for part in ("pre-round", "train", "evaluate", "total")
        ]
        rows.append(
            [
                name,
                *sent,
                *("–" if np.isnan(value) else f"{value:,.1f}" for value in took),
            ]
        )
    columns = [
        "strategy",
        *("pre-round kB", "training kB", "testing kB"),
        *("pre-round s", "training s", "testing s", "total s"),
    ]
    caption = "kB that a client sent / received, and seconds of the run, means over seeds"
    return [TextTable(caption, columns, rows, range(1, len(columns)), folds=False)]


_BYTES = {
    "pre_round_per_client": "pre-round",
    "pre_round_up_per_client": "pre-round, sent",
    "pre_round_down_per_client": "pre-round, received",
    "round_per_client": "each round of training",
}


def _bytes(grouping: Grouping | None) -> list[TextTable]:
    if grouping is None or not grouping.bytes:
        return []
    rows = [
        [_BYTES.get(name, name), f"{value / 1000:,.0f}"] for name, value in grouping.bytes.items()
    ]
    return [TextTable("Each client's kB", ["what", "kB"], rows, {1}, folds=False)]
