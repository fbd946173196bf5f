"""Tables for people: in the terminal and on a report's page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fl_app.report.text_table import TextTable, render
from fl_app.results.reading import Result
from fl_app.results.schema import Run
from fl_app.results.statistics import Difference, best_names, difference, holm, signed_rank_p
from fl_core.data.settings import TESTS_EXPLAINED
from fl_core.metrics import Metric
from fl_core.options import key_values
from fl_core.text import listed
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


def strategy_table(
    results: Sequence[Result],
    compare: str = "",
    columns: Sequence[str] = (),
    *,
    for_programs: bool = False,
) -> TextTable:
    """Return one row per result and strategy: scores, clusters, bytes, seconds, means over seeds.

    Two tests have two columns of scores; the worst score and the variance are those of
    `shared_test`, or of each run's first test. ± is the standard deviation over seeds (n − 1). The
    variance over clients is that of the accuracy in percent (FLT's measure of fairness), or of
    the RMSE. Of several results, the first column is the result's name.

    With `compare`, further columns have the paired difference of each other strategy from that one,
    its 95 % interval, and the p-value of Wilcoxon's test over clients, adjusted after Holm for the
    strategies of the result; of several seeds, the largest. `columns` are those to return, by their
    names for programs; by default all. Only `for_programs` may they be those that people do not
    see.
    """
    kinds = {run.metrics.main.title: one.name for one in results for run in one.runs}
    if len(kinds) > 1:
        both = " and ".join(f"{title} ({name})" for title, name in kinds.items())
        raise ValueError(f"{both} cannot stand in one table: name results of one kind only.")
    if not any(result.runs for result in results):
        which = " and ".join(result.name for result in results)
        raise ValueError(f"{which} has no tested strategy for a table: leave out --table.")
    strategies = dict.fromkeys(name for result in results for name in result.strategies)
    if compare and compare not in strategies:
        raise ValueError(f'--compare is "{compare}", but there are {", ".join(strategies)}.')
    has_ari = any(run.ari is not None for result in results for run in result.runs)
    runs = [run for result in results for run in result.runs]
    tests, shared = tests_of(runs), shared_test(runs)
    measured = list(dict.fromkeys(m for one in results for run in one.runs for m in _beside(run)))
    first = ["run", "strategy"] if len(results) > 1 else ["strategy"]
    names: list[list[str]] = []
    cells: list[list[Cell]] = []
    bold: set[tuple[int, str]] = set()
    for result in results:
        differences = _differences(result, compare, shared) if compare and result.runs else {}
        best = {
            name: best_names(
                scores_in(result.runs, name), lower_is_better=runs[0].metrics.main.lower_is_better
            )
            for name in tests
        }
        for name in result.strategies:
            bold |= {(len(names), test) for test in tests if name in best[test]}
            names.append([result.name, name][-len(first) :])
            found = list(_cells(result.of(name), tests, shared, measured, has_ari=has_ari))
            cells.append([*found, *differences.get(name, ())])
    main = runs[0].metrics.main.name
    known = [exact for head, _, exact, _ in cells[0] if head or for_programs]
    columns = [known[0] if one == main and main not in known else one for one in columns]
    if unknown := sorted({*columns} - {*known}):
        raise ValueError(f'--columns names "{unknown[0]}", but there are {", ".join(known)}.')
    chosen = [
        [one for exact in columns for one in row if one[2] == exact] if columns else row
        for row in cells
    ]
    shown = [exact for head, _, exact, _ in chosen[0] if head]
    return TextTable(
        "Strategies",
        [*first, *(head for head, *_ in chosen[0] if head)],
        rows=[
            [*name, *(text for head, text, *_ in row if head)]
            for name, row in zip(names, chosen, strict=True)
        ],
        numbers=range(len(first), len(first) + len(shown)),
        best=[
            (row, len(first) + place)
            for place, exact in enumerate(shown)
            for row, test in bold
            if exact == _exact(main, test)
        ],
        exact_columns=[*first, *(exact for *_, exact, _ in chosen[0])],
        exact=[
            [*name, *(value for *_, value in row)] for name, row in zip(names, chosen, strict=True)
        ],
    )


Cell = tuple[str, str, str, float]
"""The head and the text of a number for people, then its name and its value for programs."""


def _differences(result: Result, base: str, test: str) -> dict[str, list[Cell]]:
    """Return the cells of each strategy's difference from another one."""
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
        low, high = found.ends
        cells[name] = [
            (
                f"difference from {base}",
                text if found.pairs > 1 else _NOT_KNOWN,
                "difference",
                found.mean,
            ),
            ("", "", "difference-low", low),
            ("", "", "difference-high", high),
            ("p of clients", _number(p, ".3f"), "p-of-clients", p),
        ]
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
) -> Iterator[Cell]:
    """Yield a strategy's numbers."""
    main = runs[0].metrics.main
    compared = [run.tests.get(shared, run) for run in runs]
    known = [one.scores[np.isfinite(one.scores)] for one in compared]
    tested = np.concatenate(known)
    worst = float(main.worst(tested)) if tested.size else math.nan
    variance = _mean([float(scores.var()) for scores in known if scores.size])
    counts = [len({*run.clusters} - {-1}) for run in runs]
    yield "", "", "seeds", len(runs)
    for name in dict.fromkeys([main.name, *tests]):
        found = [run.tests[name] for run in runs if name in run.tests]
        if name == main.name and shared:
            found = compared
        scores = [one.scores for one in found]
        yield from _means(main, name, [one.score for one in found], scores, shown=name in tests)
    for other in measured:
        of_runs = _mean([run.mean(other) for run in runs if other in _beside(run)])
        several = sum(one.name == other.name for one in measured) > 1  # user-defined ones
        exact = f"{other.name}-{other.title}" if several else other.name
        counted = missing_scores([run.scores_of(other) for run in runs if other in _beside(run)])
        yield other.head, _shown(other, of_runs) + counted, exact, of_runs
    yield _worst_head(main), _shown(main, worst), f"{main.extreme}-{main.name}", worst
    in_unit = 100 * variance if main.is_share else variance
    yield "variance", _shown(main, in_unit), f"{main.name}-variance", variance
    if has_ari:
        ari = _mean([run.ari for run in runs if run.ari is not None])
        yield "ARI", _number(ari, ".2f").replace("-", "−"), "ari", ari
    yield "clusters", "/".join(map(str, sorted(set(counts)))), "clusters", _mean(counts)
    for what, parts in (("pre-round", PRE_ROUND), ("training", TRAINING)):
        cost = _mean([run.kilobytes(*parts) for run in runs])
        yield f"{what} kB", _number(cost, ",.0f"), f"{what}-bytes-per-client", 1000 * cost
    seconds = _mean([run.seconds.get("total", math.nan) for run in runs])
    yield "seconds", _number(seconds, ",.1f"), "seconds", seconds


def _means(
    metric: Metric,
    test: str,
    means: Sequence[float],
    scores: Sequence[NDArray[np.float64]],
    *,
    shown: bool,
) -> Iterator[Cell]:
    """Yield the cells of a test: the mean over seeds, and its standard deviation.

    Where not all clients have a score, the text says how many have.
    """
    known = [mean for mean in means if math.isfinite(mean)]  # over seeds with a tested client
    mean, deviation = _mean(known), float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    spread = "" if math.isnan(deviation) else f" ± {metric.shown(deviation)}"
    exact = _exact(metric.name, test)
    yield (
        metric.head_of(test) * shown,
        _shown(metric, mean) + spread + missing_scores(scores),
        exact,
        mean,
    )
    yield "", "", f"{exact}-std", deviation


def _exact(metric: str, test: str) -> str:
    """Return the name of the mean in a test for programs."""
    return metric if test == metric else f"{metric}-{test.replace(' ', '-')}"


def print_results(runs: Sequence[Run]) -> None:
    """Print the table of strategies."""
    print(f"\n{render(printed_strategies(runs))}", end="")
    for table in event_tables(runs):
        print(f"\n{render(table)}", end="")


def print_clusters(runs: Sequence[Run]) -> None:
    """Print the clusters of each run, with the true tasks."""
    for run in runs:
        if run.strategy not in UNGROUPED or run.left_out_of_sums:
            print(f"\n{render(cluster_table(run))}", end="")


def printed_strategies(runs: Sequence[Run]) -> TextTable:
    """Return the table of strategies without the columns for which a terminal has no room."""
    seeds, main = len({run.seed for run in runs}), runs[0].metrics.main
    result = Result(name="", runs=list(runs))
    table, both = strategy_table([result]), len(tests_of(result.runs)) > 1
    hidden = {_worst_head(main), "variance" if both else ""}
    shown = [place for place, head in enumerate(table.columns) if head not in hidden]
    heads = [table.columns[place] for place in shown]
    return TextTable(
        f"Test {main.title}, mean over {count_tested([run.scores for run in runs])} clients"
        + (f" ± std over {seeds} seeds" if seeds > 1 else ", one seed"),
        [head.replace(" kB", "\nkB/client").replace("its ", "its\n") for head in heads],
        [
            [_in_lines(row[0]), *(row[place].replace("−", "-") for place in shown[1:])]
            for row in table.rows
        ],
        range(1, len(shown)),
        note="\n".join(
            [*([TESTS_EXPLAINED] if both else []), *notes_of(result.runs), *failures_of(runs)]
        ),
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
    tuned = [(run.strategy, run.seed, run.tuned, run.num_clients) for run in runs]
    decided = {run.strategy: run.options for run in runs if run.options}
    return [
        *fewer,
        *dict.fromkeys(f"{run.strategy}: {run.note}" for run in runs if run.note),
        *(f"{name}: {' '.join(key_values(options))}" for name, options in decided.items()),
        *([f"still improving: {', '.join(improving)}; {_MORE_ROUNDS}"] if improving else []),
        *(
            f"{strategy}, seed {seed}: {choice.describe(num_clients)}"
            for strategy, seed, choice, num_clients in tuned
            if choice is not None
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
        isolated = {"in clusters of their own %": [run.isolated for run in runs]}
        tables.append(_per_strategy(runs, title, isolated))
    for per_round, clients in (
        ([run.newcomers_per_round for run in runs], "of newcomers after round"),
        ([run.drifters_per_round for run in runs], "of clients whose task changes, after round"),
    ):
        if per_round[0] is not None:
            columns = _score_columns([means or {} for means in per_round])
            title = f"{main.heading}{main.unit_suffix} {clients}"
            tables.append(_per_strategy(runs, title, columns, is_share=main.is_share))
    return tables


def _score_columns(per_round: Sequence[Mapping[int, float]]) -> dict[str, list[float | None]]:
    """Return one column for each evaluated round, with the score of each run."""
    rounds = sorted({number for means in per_round for number in means})
    shown = np.linspace(0, len(rounds) - 1, min(len(rounds), _MOST_ROUNDS)).round().astype(int)
    return {str(rounds[i]): [means.get(rounds[i]) for means in per_round] for i in shown}


def _per_strategy(
    runs: Sequence[Run],
    title: str,
    columns: Mapping[str, Sequence[float | None]],
    *,
    is_share: bool = True,
) -> TextTable:
    """Return one row per strategy: shares as percentages, means over seeds."""
    factor, form = (100, ".0f") if is_share else (1, ".4g")
    rows = []
    for name in dict.fromkeys(run.strategy for run in runs):
        cells = []
        for values in columns.values():
            pairs = zip(runs, values, strict=True)
            mean = _mean([v for run, v in pairs if run.strategy == name and v is not None])
            cells.append("" if math.isnan(mean) else f"{factor * mean:{form}}")
        rows.append([name, *cells])
    return TextTable(title, ["strategy", *columns], rows, range(1, 1 + len(columns)))


def cluster_table(run: Run) -> TextTable:
    """Tabulate each cluster: its clients, their scores and, where they are known, true tasks."""
    metric, tests = run.metrics.main, run.tests
    match = "" if run.ari is None else f", ARI {run.ari:.2f} against the true tasks"
    rows = []
    numbers = sorted(set(run.clusters))
    for cluster in numbers[:_MOST_CLUSTERS]:
        members = [client for client, other in enumerate(run.clusters) if other == cluster]
        first = next(iter(tests.values())).scores[members]
        tested = first[np.isfinite(first)]
        tasks = (
            sorted(Counter(run.tasks[client] for client in members).items()) if run.tasks else []
        )
        rows.append(
            [
                "left out" if cluster < 0 else str(cluster),
                f"{len(members):,}",
                *(_mean_of(metric, one.scores[members]) for one in tests.values()),
                metric.shown(metric.worst(tested)) if tested.size else _NOT_KNOWN,
                *([", ".join(f"{task} ({n:,})" for task, n in tasks)] if run.tasks else []),
                listed([_marked(run, client) for client in members], MOST_NAMES, ", "),
            ]
        )
    columns = ["cluster", "clients", *map(metric.head_of, tests), _worst_head(metric)]
    columns += [*(["true tasks (clients)"] if run.tasks else []), "who"]
    if (more := len(numbers) - _MOST_CLUSTERS) > 0:
        rows.append([f"{more:,} more", *[""] * (len(columns) - 1)])
    notes = []
    for reasons, what in ((run.outliers, "outliers"), (run.left_out_of_sums, "left out of sums")):
        names_by_reason: dict[str, list[str]] = {}
        for client, why in reasons.items():
            names_by_reason.setdefault(why, []).append(run.names[client])
        lines = [f"{listed(names, MOST_NAMES)}: {why}" for why, names in names_by_reason.items()]
        notes += [what, *lines] if lines else []
    return TextTable(
        f"{run.strategy}, seed {run.seed}{match}",
        columns,
        rows,
        range(1, 3 + len(tests)),
        note="\n".join(notes),
    )


def _marked(run: Run, client: int) -> str:
    marks = [
        word
        for word, clients in (
            ("malicious", run.malicious),
            ("joined later", run.newcomers),
            ("changed task", run.drifters),
        )
        if client in clients
    ]
    return f"{run.names[client]} ({', '.join(marks)})" if marks else run.names[client]


def _mean_of(metric: Metric, scores: NDArray[np.float64]) -> str:
    tested = scores[np.isfinite(scores)]
    return metric.shown(tested.mean()) + missing_scores([scores]) if tested.size else _NOT_KNOWN


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


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


def _worst_head(metric: Metric) -> str:
    return f"{metric.extreme}{metric.unit_suffix}"


def _shown(metric: Metric, value: float) -> str:
    return _NOT_KNOWN if math.isnan(value) else metric.shown(value).replace("-", "−")


def _number(value: float, form: str) -> str:
    return _NOT_KNOWN if math.isnan(value) else f"{value:{form}}"
