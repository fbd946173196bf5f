"""Tables for people: in the terminal and on a report's page."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fl_app.report.text_table import TextTable, render
from fl_app.results.reading import Result
from fl_app.results.schema import Run
from fl_app.results.statistics import (
    Difference,
    best_names,
    difference,
    holm,
    known_mean,
    signed_rank_p,
)
from fl_core.data.settings import TESTS_EXPLAINED
from fl_core.metrics import Metric
from fl_core.options import key_values
from fl_core.text import listed, printable
from strategies.catalogue import UNGROUPED

_LONGEST_NAME = 20  # of a strategy, in one line
MOST_NAMES = 60  # of a cluster; summary.json has all
_MOST_CLUSTERS = 40  # rows of a table of clusters
_MOST_FAILURES = 10  # below the table; summary.json has all
_MOST_ROUNDS = 14  # columns that fit
PRE_ROUND = ("pre-round-up", "pre-round-down")
TRAINING = ("train-up", "train-down")
_NOT_KNOWN = "–"
_MORE_ROUNDS = "more rounds (num-server-rounds) may change the order"


class Cell(NamedTuple):
    """A number of the table of strategies; people see those with a head."""

    value: float
    head: str = ""
    text: str = ""
    is_best: bool = False


def strategy_table(
    results: Sequence[Result],
    compare: str = "",
    columns: Sequence[str] = (),
    *,
    for_programs: bool = False,
) -> TextTable:
    """Return one row per result and strategy: scores, clusters, bytes, seconds, means over seeds.

    Two tests have two columns; the worst score and the variance over clients (of the accuracy in
    percent, or of the RMSE) are those of `shared_test`, or of each run's first test. ± is the
    standard deviation over seeds (n − 1). With `compare`, there are `_differences` from that
    strategy. `columns` are those to return, by their names for programs.
    """
    runs = [run for result in results for run in result.runs]
    kinds = {run.metrics.main.title: one.name for one in results for run in one.runs}
    if len(kinds) > 1:
        both = " and ".join(f"{title} ({name})" for title, name in kinds.items())
        raise ValueError(f"{both} cannot stand in one table: name results of one kind only.")
    if not runs:
        which = " and ".join(result.name for result in results)
        raise ValueError(f"{which} has no tested strategy for a table: leave out --table.")
    strategies = dict.fromkeys(run.strategy for run in runs)
    if compare and compare not in strategies:
        raise ValueError(f'--compare is "{compare}", but there are {", ".join(strategies)}.')
    main, tests, shared = runs[0].metrics.main, tests_of(runs), shared_test(runs)
    measured = list(dict.fromkeys(metric for run in runs for metric in _beside(run)))
    has_ari = any(run.ari is not None for run in runs)
    first = ["run", "strategy"] if len(results) > 1 else ["strategy"]
    rows: list[tuple[list[str], dict[str, Cell]]] = []
    for result in results:
        differences = _differences(result, compare, shared) if compare and result.runs else {}
        for name in result.strategies:
            found = dict(_cells(result.of(name), tests, shared, measured, has_ari=has_ari))
            rows.append(([result.name, name][-len(first) :], found | differences.get(name, {})))
        for test in tests:
            scores, column = scores_in(result.runs, test), _exact(main.name, test)
            for name in best_names(scores, lower_is_better=main.lower_is_better):
                row = rows[result.strategies.index(name) - len(result.strategies)][1]
                row[column] = row[column]._replace(is_best=True)
    cells = rows[0][1]
    known = [exact for exact, cell in cells.items() if cell.head or for_programs]
    if main.name not in known:  # two tests have a column each
        columns = [known[0] if one == main.name else one for one in columns]
    if unknown := sorted({*columns} - {*known}):
        raise ValueError(f'--columns names "{unknown[0]}", but there are {", ".join(known)}.')
    chosen = [*(columns or cells)]
    shown = [exact for exact in chosen if cells[exact].head]
    clients = count_tested([run.tests.get(shared, run).scores for run in runs])
    seeds = max(len(result.of(name)) for result in results for name in result.strategies)
    over = f" ± std over {seeds} seeds" if seeds > 1 else ", one seed"
    return TextTable(
        f"Test {main.title}, mean over {clients} clients{over}",
        [*first, *(cells[exact].head for exact in shown)],
        [[*name, *(row[exact].text for exact in shown)] for name, row in rows],
        numbers=range(len(first), len(first) + len(shown)),
        best=[
            (number, column)
            for number, (_, row) in enumerate(rows)
            for column, exact in enumerate(shown, len(first))
            if row[exact].is_best
        ],
        exact_columns=[*first, *chosen],
        exact=[[*name, *(row[exact].value for exact in chosen)] for name, row in rows],
    )


def _differences(result: Result, base: str, test: str) -> dict[str, dict[str, Cell]]:
    """Return each strategy's paired difference from another one, its 95 % interval, and p-value.

    p: Wilcoxon's test over clients, after Holm for the strategies; of several seeds, the largest.
    """
    scores, metric = scores_in(result.runs, test), result.runs[0].metrics.main
    others = [name for name in scores if name != base and base in scores]
    p_values: dict[str, list[float]] = {name: [] for name in others}
    for seed, of_base in scores.get(base, {}).items():
        tested = {
            name: p
            for name in others
            if seed in scores[name]
            and math.isfinite(p := signed_rank_p(scores[name][seed], of_base))
        }
        for name, p in zip(tested, holm([*tested.values()]), strict=True):
            p_values[name].append(p)
    cells = {}
    for name in result.strategies:
        found, p = Difference(math.nan, math.nan, 0, "seeds"), math.nan
        if name in others:
            found = difference(scores[name], scores[base])
            p = max(p_values[name], default=math.nan)
        text = f"{signed(found.mean, metric)} ({interval(found, metric)})"
        text = text if found.pairs > 1 else _NOT_KNOWN
        low, high = found.ends
        cells[name] = {
            "difference": Cell(found.mean, f"difference from {base}", text),
            "difference-low": Cell(low),
            "difference-high": Cell(high),
            "p-of-clients": Cell(p, "p of clients", _number(p, ".3f")),
        }
    return cells


def scores_in(runs: Sequence[Run], test: str = "") -> dict[str, dict[int, NDArray[np.float64]]]:
    """Return the clients' scores in a test, or else each run's first, by strategy and seed."""
    found: dict[str, dict[int, NDArray[np.float64]]] = {}
    for run in runs:
        if not test or test in run.tests:
            scores = run.tests.get(test, run).scores
            found.setdefault(run.strategy, {})[run.seed] = scores
    return found


def interval(one: Difference, metric: Metric) -> str:
    """Return the ends of an interval, such as −4.0 to +8.6."""
    return " to ".join(signed(end, metric) for end in one.ends)


def signed(value: float, metric: Metric) -> str:
    """Return a difference with its sign, in points or in the metric's unit."""
    return f"{'−' if value < 0 else '+'}{metric.shown(abs(value))}"


def tests_of(runs: Iterable[Run]) -> list[str]:
    """Return the names of the tests of runs, as in `Run.tests`."""
    return list(dict.fromkeys(name for run in runs for name in run.tests))


def shared_test(runs: Iterable[Run]) -> str:
    """Return the first test that all tested runs have; empty: none."""
    tested = [run for run in runs if np.isfinite(run.scores).any()]
    shared = [test for test in tests_of(tested) if all(test in run.tests for run in tested)]
    return shared[0] if shared else ""


def _beside(run: Run) -> tuple[Metric, ...]:
    """Return the metrics beside a run's main one in a table; of classes, the user-defined one."""
    return run.metrics.others if run.metrics.is_regression else run.metrics.measured


def _cells(
    runs: Sequence[Run],
    tests: Sequence[str],
    shared: str,
    measured: Sequence[Metric],
    *,
    has_ari: bool,
) -> Iterator[tuple[str, Cell]]:
    """Yield a strategy's numbers, by their names for programs."""
    main = runs[0].metrics.main
    compared = [run.tests.get(shared, run) for run in runs]
    known = [one.scores[np.isfinite(one.scores)] for one in compared]
    tested = np.concatenate(known)
    worst = float(main.worst(tested)) if tested.size else math.nan
    variance = known_mean([float(scores.var()) for scores in known if scores.size])
    counts = [len({*run.clusters} - {-1}) for run in runs]
    yield "seeds", Cell(len(runs))
    for test in dict.fromkeys([main.name, *tests]):
        found = [run.tests[test] for run in runs if test in run.tests]
        if test == main.name and shared:
            found = compared
        means = [one.score for one in found if math.isfinite(one.score)]
        mean = known_mean(means)
        deviation = float(np.std(means, ddof=1)) if len(means) > 1 else math.nan
        text = _shown(main, mean) + (f" ± {main.shown(deviation)}" if len(means) > 1 else "")
        text += missing_scores([one.scores for one in found])
        head = main.head_of(test) if test in tests else ""
        yield _exact(main.name, test), Cell(mean, head, text)
        yield f"{_exact(main.name, test)}-std", Cell(deviation)
    for other in measured:
        having = [run for run in runs if other in _beside(run)]
        of_runs = known_mean([run.mean(other) for run in having])
        several = sum(one.name == other.name for one in measured) > 1  # user-defined ones
        text = _shown(other, of_runs) + missing_scores([run.scores_of(other) for run in having])
        name = f"{other.name}-{other.title}" if several else other.name
        yield name, Cell(of_runs, other.head, text)
    yield f"{main.extreme}-{main.name}", Cell(worst, _worst_head(main), _shown(main, worst))
    in_unit = 100 * variance if main.is_share else variance
    yield f"{main.name}-variance", Cell(variance, "variance", _shown(main, in_unit))
    if has_ari:
        ari = known_mean([run.ari for run in runs if run.ari is not None])
        yield "ari", Cell(ari, "ARI", _number(ari, ".2f").replace("-", "−"))
    numbers = "/".join(map(str, sorted(set(counts))))
    yield "clusters", Cell(known_mean(counts), "clusters", numbers)
    for what, parts in (("pre-round", PRE_ROUND), ("training", TRAINING)):
        cost = known_mean([run.kilobytes(*parts) for run in runs])
        cell = Cell(1000 * cost, f"{what} kB", _number(cost, ",.0f"))
        yield f"{what}-bytes-per-client", cell
    seconds = known_mean([run.seconds.get("total", math.nan) for run in runs])
    yield "seconds", Cell(seconds, "seconds", _number(seconds, ",.1f"))


def _exact(metric: str, test: str) -> str:
    """Return the name of the mean in a test for programs."""
    return metric if test == metric else f"{metric}-{test.replace(' ', '-')}"


def print_results(runs: Sequence[Run]) -> None:
    """Print the table of strategies."""
    tables = [printed_strategies(runs), *event_tables(runs)]
    print("".join(f"\n{render(table)}" for table in tables), end="")


def print_clusters(runs: Sequence[Run]) -> None:
    """Print the clusters of each run, with the true tasks."""
    for run in runs:
        if run.strategy not in UNGROUPED or run.left_out_of_sums:
            print(f"\n{render(cluster_table(run))}", end="")


def printed_strategies(runs: Sequence[Run]) -> TextTable:
    """Return the table of strategies without the columns for which a terminal has no room."""
    main, both = runs[0].metrics.main, len(tests_of(runs)) > 1
    table = strategy_table([Result(name="", runs=list(runs))])
    hidden = {_worst_head(main), "variance" if both else ""}
    shown = [place for place, head in enumerate(table.columns) if head not in hidden]
    notes = [*([TESTS_EXPLAINED] if both else []), *notes_of(runs), *failures_of(runs)]
    heads = [table.columns[place] for place in shown]
    return replace(
        table,
        columns=[head.replace(" kB", "\nkB/client").replace("its ", "its\n") for head in heads],
        rows=[
            [_in_lines(row[0]), *(row[place].replace("−", "-") for place in shown[1:])]
            for row in table.rows
        ],
        numbers=range(1, len(shown)),
        note="\n".join(notes),
    )


def failures_of(runs: Sequence[Run]) -> list[str]:
    """Return a sentence on each failure of a client, and on the clients that never trained."""
    failed = [
        f"{run.strategy}, seed {run.seed}: {failure.describe(run.name_in_sentence(failure.client))}"
        for run in runs
        for failure in run.failures
    ]
    more = len(failed) - _MOST_FAILURES
    return [
        *failed[:_MOST_FAILURES],
        *([f"{more:,} more failures of clients are in summary.json"] if more > 0 else []),
        *(sentence for run in runs if (sentence := run.describe_untrained())),
    ]


def notes_of(runs: Sequence[Run]) -> list[str]:
    """Return sentences on a table's strategies: seeds they lack, values they chose, warnings."""
    seeds = {run.seed for run in runs}
    fewer = [
        f"{strategy} did not run on seed{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}: "
        "its means are over fewer seeds"
        for strategy in dict.fromkeys(run.strategy for run in runs)
        if (gone := sorted(seeds - {run.seed for run in runs if run.strategy == strategy}))
    ]
    improving = list(dict.fromkeys(run.strategy for run in runs if run.still_improving))
    decided = {run.strategy: run.options for run in runs if run.options}
    return [
        *fewer,
        *dict.fromkeys(f"{run.strategy}: {run.note}" for run in runs if run.note),
        *(f"{name}: {' '.join(key_values(options))}" for name, options in decided.items()),
        *([f"still improving: {', '.join(improving)}; {_MORE_ROUNDS}"] if improving else []),
        *(
            f"{run.strategy}, seed {run.seed}: {run.tuned.describe(run.num_clients)}"
            for run in runs
            if run.tuned is not None
        ),
    ]


def _in_lines(strategy: str) -> str:
    """Return a long name of parts in two lines: Rich would fold it anywhere."""
    first, plus, last = strategy.rpartition("+")
    return f"{first}\n{plus}{last}" if plus and len(strategy) > _LONGEST_NAME else strategy


def event_tables(runs: Sequence[Run]) -> list[TextTable]:
    """Tabulate the effect of attackers, newcomers and drift on each strategy, if there are any."""
    first, main = runs[0], runs[0].metrics.main
    tables = []
    if first.malicious:
        title = (
            f"Malicious clients: {len(first.malicious)} of {first.num_clients}; "
            f"{main.title} and ARI above are those of the others"
        )
        isolated = [{"in clusters of their own %": run.isolated} for run in runs]
        tables.append(_per_strategy(runs, title, isolated))
    for per_round, clients in (
        ([run.newcomers_per_round for run in runs], "of newcomers after round"),
        ([run.drifters_per_round for run in runs], "of clients whose task changes, after round"),
    ):
        if per_round[0] is not None:
            title = f"{main.heading}{main.unit_suffix} {clients}"
            means = [of_run or {} for of_run in per_round]
            tables.append(_per_strategy(runs, title, means, is_share=main.is_share))
    return tables


def _per_strategy(
    runs: Sequence[Run],
    title: str,
    values: Sequence[Mapping[Any, float | None]],
    *,
    is_share: bool = True,
) -> TextTable:
    """Return one row per strategy, means over seeds of each run's values: shares as percentages."""
    factor, form = (100, ".0f") if is_share else (1, ".4g")
    every = sorted({column for of_run in values for column in of_run})
    places = np.linspace(0, len(every) - 1, min(len(every), _MOST_ROUNDS)).round().astype(int)
    columns = [every[place] for place in places]
    rows = []
    for name in dict.fromkeys(run.strategy for run in runs):
        found = [of_run for run, of_run in zip(runs, values, strict=True) if run.strategy == name]
        means = [known_mean(v for of in found if (v := of.get(key)) is not None) for key in columns]
        rows.append([name, *("" if math.isnan(m) else f"{factor * m:{form}}" for m in means)])
    return TextTable(title, ["strategy", *map(str, columns)], rows, range(1, 1 + len(columns)))


def cluster_rows(
    clusters: Sequence[int], cells_of: Callable[[list[int]], list[str]]
) -> list[list[str]]:
    """Return a row for each cluster, by its members; of very many, how many more there are."""
    numbers = sorted(set(clusters))
    rows = [
        [
            "left out" if cluster < 0 else str(cluster),
            *cells_of([client for client, other in enumerate(clusters) if other == cluster]),
        ]
        for cluster in numbers[:_MOST_CLUSTERS]
    ]
    if (more := len(numbers) - _MOST_CLUSTERS) > 0:
        rows.append([f"{more:,} more", *[""] * (len(rows[0]) - 1)])
    return rows


def lines_by_reason(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each reason, with the names of the clients that have it."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(printable(name))
    return [f"{listed(those, MOST_NAMES)}: {why}" for why, those in names.items()]


def cluster_table(run: Run) -> TextTable:
    """Tabulate each cluster: its clients, their scores and, where they are known, true tasks."""
    metric, tests = run.metrics.main, run.tests
    marks = {"malicious": run.malicious, "joined later": run.newcomers}
    marks["changed task"] = run.drifters

    def marked(client: int) -> str:
        words = [word for word, clients in marks.items() if client in clients]
        return f"{run.names[client]} ({', '.join(words)})" if words else run.names[client]

    def cells_of(members: list[int]) -> list[str]:
        scores = [one.scores[members] for one in tests.values()]
        known = [of_test[np.isfinite(of_test)] for of_test in scores]
        tasks = (
            sorted(Counter(run.tasks[client] for client in members).items()) if run.tasks else []
        )
        return [
            f"{len(members):,}",
            *(
                metric.shown(tested.mean()) + missing_scores([each]) if tested.size else _NOT_KNOWN
                for tested, each in zip(known, scores, strict=True)
            ),
            metric.shown(metric.worst(known[0])) if known[0].size else _NOT_KNOWN,
            *([", ".join(f"{task} ({n:,})" for task, n in tasks)] if run.tasks else []),
            listed([*map(marked, members)], MOST_NAMES, ", "),
        ]

    notes = []
    for what, reasons in (("outliers", run.outliers), ("left out of sums", run.left_out_of_sums)):
        lines = lines_by_reason({run.names[client]: why for client, why in reasons.items()})
        notes += [what, *lines] if lines else []
    match = "" if run.ari is None else f", ARI {run.ari:.2f} against the true tasks"
    tasks = ["true tasks (clients)"] if run.tasks else []
    return TextTable(
        f"{run.strategy}, seed {run.seed}{match}",
        ["cluster", "clients", *map(metric.head_of, tests), _worst_head(metric), *tasks, "who"],
        cluster_rows(run.clusters, cells_of),
        range(1, 3 + len(tests)),
        note="\n".join(notes),
    )


def missing_scores(scores: Sequence[NDArray[np.float64]]) -> str:
    """Return how many clients have a score, to stand behind a mean; empty: all have one."""
    return f" ({counted})" if " of " in (counted := count_tested(scores)) else ""


def count_tested(scores: Sequence[NDArray[np.float64]]) -> str:
    """Return how many clients have a score in each run: "25", "3 of 6" or "3 to 5 of 6"."""
    counts = [np.isfinite(of_run).sum() for of_run in scores]
    least, most = min(counts, default=0), max(counts, default=0)
    clients = max(map(len, scores), default=0)
    if least == clients:
        return str(clients)
    return f"{least if least == most else f'{least} to {most}'} of {clients}"


def _worst_head(metric: Metric) -> str:
    return f"{metric.extreme}{metric.unit_suffix}"


def _shown(metric: Metric, value: float) -> str:
    return _NOT_KNOWN if math.isnan(value) else metric.shown(value).replace("-", "−")


def _number(value: float, form: str) -> str:
    return _NOT_KNOWN if math.isnan(value) else f"{value:{form}}"
