"""Tables for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from fl_core.text import listed
from strategies.catalogue import UNGROUPED

WIDTH = 100
_LONGEST_NAME = 20  # of a strategy, in one line
_MOST_NAMES = 60  # of a cluster; summary.json has all
_MOST_ROUNDS = 14  # columns that fit


def print_results(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> None:
    """Print the table of strategies, then the clusters found against the true tasks.

    From `table` and `runs` of summary.json.
    """
    print(f"\n{render(strategy_table(rows, runs))}", end="")
    for table in event_tables(runs):
        print(f"\n{render(table)}", end="")
    for run in runs:
        if run["strategy"] not in UNGROUPED or "left-out-of-sums" in run:
            print(f"\n{render(cluster_table(run))}", end="")


def render(table: Table) -> str:
    """Return a table as plain lines: Flower's log stream carries no more."""
    # Without markup and emoji: names of devices and classes are not ours.
    console = Console(
        file=StringIO(),
        width=WIDTH,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def strategy_table(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per strategy: accuracy, ARI, bytes, seconds.

    The variance is that of the accuracy in percent over clients (FLT's measure of fairness), mean
    over seeds.
    """
    seeds = len({run["seed"] for run in runs})
    table = Table(
        title=f"Test accuracy, mean over {_tested(runs)} clients"
        + (f" ± std over {seeds} seeds" if seeds > 1 else ", one seed"),
        title_justify="left",
    )
    table.add_column("strategy", overflow="fold")
    tasks_are_known = "ari-mean" in rows[0]
    for column in (
        "accuracy %",
        "variance",
        *(["ARI"] if tasks_are_known else []),
        "clusters",
        "pre-round\nkB/client",
        "training\nkB/client",
        "seconds",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        group = [run for run in runs if run["strategy"] == row["strategy"]]
        table.add_row(
            _in_lines(row["strategy"]),
            f"{100 * row['accuracy-mean']:.1f}"
            + (f" ± {100 * row['accuracy-std']:.1f}" if len(group) > 1 else ""),
            f"{1e4 * row['accuracy-variance']:.1f}",
            *([f"{row['ari-mean']:.2f}"] if tasks_are_known else []),
            "/".join(map(str, sorted({len({*run["clusters"]} - {-1}) for run in group}))),
            _kilobytes(group, "pre-round-up", "pre-round-down"),
            _kilobytes(group, "train-up", "train-down"),
            f"{sum(run['seconds']['total'] for run in group) / len(group):.1f}",
        )
    return table


def _in_lines(strategy: str) -> str:
    """Return a long name of parts with a line for the last ones: Rich folds anywhere else."""
    first, plus, last = strategy.rpartition("+")
    return f"{first}\n{plus}{last}" if plus and len(strategy) > _LONGEST_NAME else strategy


def event_tables(runs: Sequence[Mapping[str, Any]]) -> list[Table]:
    """Return what malicious clients, newcomers and drift did to each strategy, if there are any."""
    tables = []
    if "malicious" in runs[0]:
        tables.append(
            _per_strategy(
                runs,
                f"Malicious clients: {len(runs[0]['malicious'])} of {runs[0]['num-clients']}; "
                "accuracy and ARI above are the others'",
                {"in clusters of their own %": lambda run: run["malicious-isolated"]},
            )
        )
    for name, title in (
        ("newcomers", "Accuracy % of newcomers after round"),
        ("drifters", "Accuracy % of clients whose task changes, after round"),
    ):
        if name in runs[0]:
            tables.append(_per_strategy(runs, title, _accuracy_columns(runs, name)))
    return tables


def _accuracy_columns(
    runs: Sequence[Mapping[str, Any]], who: str
) -> dict[str, Callable[[Mapping[str, Any]], float | None]]:
    """Return one column for each evaluated round."""
    key = f"{who}-accuracy-per-round"

    def column(number: str) -> Callable[[Mapping[str, Any]], float | None]:
        return lambda run: run[key].get(number)

    rounds = sorted({int(number) for run in runs for number in run[key]})
    shown = np.linspace(0, len(rounds) - 1, min(len(rounds), _MOST_ROUNDS)).round().astype(int)
    return {str(rounds[i]): column(str(rounds[i])) for i in shown}


def _per_strategy(
    runs: Sequence[Mapping[str, Any]],
    title: str,
    columns: Mapping[str, Callable[[Mapping[str, Any]], float | None]],
) -> Table:
    """Return one row per strategy: shares as percentages, means over seeds."""
    table = Table(title=title, title_justify="left")
    table.add_column("strategy")
    for column in columns:
        table.add_column(column, justify="right")
    for name in dict.fromkeys(run["strategy"] for run in runs):
        group = [run for run in runs if run["strategy"] == name]
        cells = []
        for value_of in columns.values():
            values = [value for run in group if (value := value_of(run)) is not None]
            cells.append(f"{100 * sum(values) / len(values):.0f}" if values else "")
        table.add_row(name, *cells)
    return table


def cluster_table(run: Mapping[str, Any]) -> Table:
    """Return who is in which cluster and, where tasks are known, how many of each that is."""
    tasks = run.get("tasks")
    found = f" (ARI {run['ari']:.2f})" if tasks else ""
    title = f"{run['strategy']}, seed {run['seed']}: clusters found{found}"
    table = Table(title=title, title_justify="left", min_width=len(title))
    table.add_column("cluster", justify="right")
    table.add_column("clients")
    for task in sorted(set(tasks or ())):
        table.add_column(f"of task {task}", justify="right")
    names = run.get("names", range(run["num-clients"]))
    for cluster in sorted(set(run["clusters"])):
        members = [i for i, c in enumerate(run["clusters"]) if c == cluster]
        own = [tasks[i] for i in members] if tasks else []
        table.add_row(
            "left out" if cluster < 0 else str(cluster),
            listed([str(names[i]) for i in members], _MOST_NAMES),
            *(str(own.count(task) or "·") for task in sorted(set(tasks or ()))),
        )
    said = []
    for key, what in (("odd-clients", "odd clients"), ("left-out-of-sums", "left out of sums")):
        whose: dict[str, list[str]] = {}
        for client, why in run.get(key, {}).items():
            whose.setdefault(why, []).append(str(names[int(client)]))
        lines = [f"{listed(own, _MOST_NAMES)}: {why}" for why, own in whose.items()]
        said += [what, *lines] if lines else []
    if said:
        table.caption, table.caption_justify = "\n".join(said), "left"
    return table


def _tested(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return how many clients the accuracies are means of: "25", "3 of 6" or "3 to 5 of 6"."""
    accuracies = [np.array(run["accuracy-per-client"], float) for run in runs]  # None becomes NaN
    counts = [np.isfinite(of_run).sum() for of_run in accuracies]
    least, most, clients = min(counts), max(counts), runs[0]["num-clients"]
    if least == clients:
        return str(clients)
    return f"{least if least == most else f'{least} to {most}'} of {clients}"


def _kilobytes(group: Sequence[Mapping[str, Any]], *keys: str) -> str:
    """Return what a client sent and received, those that were left out not counted."""
    shares = [
        sum(run["bytes"][key] for key in keys) / max(1, run["num-clients"] - len(run["failures"]))
        for run in group
    ]
    return f"{sum(shares) / len(shares) / 1000:,.0f}"
