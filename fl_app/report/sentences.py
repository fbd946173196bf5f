"""The sentences of a report: the question, the answer, and the command that repeats the run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fl_app.report.tables import count_tested, interval, scores_in, signed, tests_of
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result
from fl_app.results.schema import Grouping, Run
from fl_app.results.statistics import Difference, Scores, difference, mean_score, shared_scores
from fl_core.data.settings import REAL_DEVICES
from fl_core.metrics import Metric
from fl_core.options import key_values
from fl_core.text import listed
from strategies.catalogue import ALL, ALONE

named = partial(listed, between=", ")

# The folder of a run is another one when it is repeated.
_NOT_REPEATED = ("output-dir", "resume")
_MOST_NAMES = 5


def question(result: Result) -> str:
    """Return the question that the run answers."""
    if not result.runs:
        count = len(result.grouping.names) if result.grouping else 0
        return f"Which of these {count:,} clients should train together?"
    config, count = result.config, result.runs[0].num_clients
    if config.get("dataset") == REAL_DEVICES:
        return f"Which of these {count:,} devices should train together?"
    where = f"{count:,} clients of {_tasks(result)} on {config.get('dataset', 'images')}"
    if config.get("noise", "none") != "none" and config.get("noise-rate", 1):
        where += f" with {_percent(config.get('noise-rate'))} wrong labels"
    if config.get("attack", "none") != "none":
        where += f", {_percent(config.get('malicious'))} of them malicious ({config['attack']})"
    if len(result.strategies) == 1:
        return f"How well does {result.strategies[0]} serve {where}?"
    return f"Which strategy is best for {where}?"


def answer(result: Result, compare: str = "") -> list[str]:
    """Return the results of the run in a few sentences, those of a strategy if one is named."""
    rankings = _rankings(result, compare)
    sentences = [
        one.describe() if len(rankings) == 1 else f"Each client tested {one.test}, {one.describe()}"
        for one in rankings
    ]
    if result.grouping is not None:
        sentences += _groups(result.grouping)
    return sentences + troubles(result)


def troubles(result: Result, where: str = "") -> list[str]:
    """Return a sentence on each kind of trouble, with the name of the run if there are several."""
    sentences = [f"{name} did not run: {why}." for name, why in result.left_out.items()]
    sentences += [f"{sentence}." for run in result.runs if (sentence := run.describe_untrained())]
    sentences += [f"{sentence}." for run in result.runs if (sentence := run.describe_falls())]
    failed = sorted({run.names[one.client] for run in result.runs for one in run.failures})
    if failed:
        text = _count(len(failed), "client").capitalize()
        sentences.append(f"{text} failed: {named(failed, _MOST_NAMES)}; the reasons are below.")
    left_out = sorted({run.names[c] for run in result.runs for c in run.left_out_of_sums})
    if left_out:
        text = f"{_count(len(left_out), 'client').capitalize()} sent values that cannot be right"
        sentences.append(
            f"{text} and took part in no more secure sums: {named(left_out, _MOST_NAMES)}."
        )
    unknown = {node for run in result.runs for node in run.unknown_nodes}
    if result.grouping is not None:
        unknown |= result.grouping.unknown_nodes.keys()
    if unknown:
        text = _count(len(unknown), "node").capitalize()
        sentences.append(f"{text} could not take part: the reasons are below.")
    return [f"{where}: {sentence}" if where else sentence for sentence in sentences]


def describe_comparison(results: Sequence[Result], compare: str) -> str:
    """Return what the differences from a strategy are, and what differs between seeds."""
    tested = [result for result in results if result.runs]
    counts = {len({run.seed for run in result.runs}) for result in tested}
    over = "seeds" if min(counts) > 1 else "seeds, or the clients of one seed"
    text = (
        f"Difference from {compare}: the mean of paired differences, with its 95 % t interval over "
        f"{over if max(counts) > 1 else 'the clients'}; p: Wilcoxon's test over the clients of a "
        "run, adjusted after Holm for the number of strategies; of several seeds, the largest."
    )
    if max(counts) < 2:
        where = " in each run" if len(tested) > 1 else ""
        one = f"There is one seed{where}: what another one would change is not in the intervals."
        return f"{text} {one}"
    varied = ["the partition of the data"] if tested[0].runs[0].tasks else []
    if any(result.config.get("noise", "none") != "none" for result in results):
        varied.append("the label noise")
    varied += ["the initial model", "the order of batches"]
    return f"{text} Between seeds vary {_joined(varied)}."


def findings_table(results: Sequence[Result]) -> TextTable:
    """Tabulate the best strategies of each result, and how they compare with the next one."""
    rows = []
    for result in results:
        rankings = _rankings(result)
        rows += [
            one.row(f"{result.name}, tested {one.test}" if len(rankings) > 1 else result.name)
            for one in rankings
        ] or [[result.name, *["–"] * 4]]
    columns = ["run", "best", "mean", "next", "difference, 95 % interval"]
    caption = (
        "The best strategies of each run; intervals are over seeds, or the clients of one seed"
    )
    return TextTable(caption, columns, rows, folds=False)


class _Ranking(NamedTuple):
    """The strategies of a result in one test, by their means over clients and seeds."""

    runs: Sequence[Run]
    test: str
    scores: Mapping[str, Scores]  # of the seeds and clients that all strategies have
    base: str = ""  # the strategy with which all others are compared; empty: the best ones

    @property
    def metric(self) -> Metric:
        return self.runs[0].metrics.main

    @property
    def means(self) -> dict[str, float]:
        return {name: mean_score(of_seed) for name, of_seed in self.scores.items()}

    @property
    def best(self) -> float:
        if self.base:
            return self.means[self.base]
        return (min if self.metric.lower_is_better else max)(self.means.values())

    @property
    def first(self) -> list[str]:
        """Return the strategies with the best mean, as it is shown."""
        if self.base:
            return [self.base]
        shown = self.metric.shown
        return [name for name, mean in self.means.items() if shown(mean) == shown(self.best)]

    @property
    def rest(self) -> list[str]:
        """Return the others, the best first."""
        lower = self.metric.lower_is_better
        others = [name for name in self.means if name not in self.first]
        return sorted(others, key=self.means.__getitem__, reverse=not lower)

    def differences(self, names: Sequence[str]) -> dict[str, Difference]:
        first = self.scores[self.first[0]]
        return {name: difference(first, self.scores[name]) for name in names}

    @property
    def compared(self) -> str:
        """Return the strategy of the differences, where there are several first ones."""
        return self.first[0] if len(self.first) > 1 else ""

    def row(self, run_name: str) -> list[str]:
        cells = [run_name, _joined(self.first), self.metric.with_unit(self.best)]
        for name, one in self.differences(self.rest[:1]).items():
            unsure = "" if one.is_shown else "no difference can be shown: "
            whose = f"{self.compared}: " if self.compared else ""
            return [*cells, name, f"{whose}{unsure}{describe_difference(one, self.metric)}"]
        return [*cells, "–", "–"]

    def describe(self) -> str:
        metric, runs, first, rest = self.metric, self.runs, self.first, self.rest
        seeds = len({run.seed for run in runs})
        over = f"mean over {self._clients()}{f' and {seeds} seeds' if seeds > 1 else ''}"
        what = "" if metric.is_share else f"{metric.title} "
        text = f"{_joined(first)} reached {what}{metric.with_unit(self.best)} ({over})."
        named_too = [name for name in rest if self.base or name in (rest[0], rest[-1], ALONE, ALL)]
        text += describe_differences(self.differences(named_too), metric, self.compared)
        # Of equal clients the first one of the first seed.
        sign = -1 if metric.lower_is_better else 1
        least, seed, _, name, where = min(
            (sign * float(scores[client]), run.seed, client, run.names[client], run.strategy)
            for run in runs
            if run.strategy in first and self.test in run.tests
            for scores in (run.tests[self.test].scores,)
            for client in np.flatnonzero(np.isfinite(scores)).tolist()
        )
        which = f"client {name}" if name.isdecimal() else name
        which += f", seed {seed}" if seeds > 1 else ""
        of = "Its client" if len(first) == 1 else f"{where}'s client"
        reached = metric.with_unit(sign * least)
        return f"{text} {of} with the {metric.extreme} {metric.title} ({which}) reached {reached}."

    def _clients(self) -> str:
        """Return over which clients the means are: not all, where a strategy lacks some."""
        known = scores_in(self.runs, self.test)
        shared = [one for of_seed in self.scores.values() for one in of_seed.values()]
        if all(
            np.isfinite(known[name][seed]).sum() == np.isfinite(one).sum()
            for name, of_seed in self.scores.items()
            for seed, one in of_seed.items()
        ):
            return "clients"
        return f"the {count_tested(shared)} clients that all tested"


def _rankings(result: Result, compare: str = "") -> list[_Ranking]:
    """Return the ranking in each test, by the seeds and clients that all strategies have."""
    rankings = []
    for test in tests_of(run for run in result.runs if np.isfinite(run.scores).any()):
        scores = shared_scores(scores_in(result.runs, test))
        runs = [run for run in result.runs if run.seed in scores.get(run.strategy, {})]
        base = compare if compare in scores else ""
        rankings += [_Ranking(runs, test, scores, base)] if scores else []
    return rankings


def describe_differences(found: Mapping[str, Difference], metric: Metric, whose: str = "") -> str:
    """Return sentences on how much better one strategy is than others, by their names.

    A difference is stated only if its interval excludes zero. `whose` names the one strategy, if
    the sentence before does not.
    """
    if not found:
        return ""
    unit = " points" if metric.is_share else ""
    shown = [
        f"{metric.shown(abs(one.mean))}{unit} {'more' if one.mean > 0 else 'less'} than {name} "
        f"({interval(one, metric)})"
        for name, one in found.items()
        if one.is_shown
    ]
    that = f" For {whose}, that is" if whose else " That is"
    text = f"{that} {_joined(shown)}." if shown else ""
    others = [
        f"{name} ({describe_difference(one, metric)})"
        for name, one in found.items()
        if not one.is_shown
    ]
    which = f"No difference of {whose}" if whose else "No difference"
    text += f" {which} can be shown from {_joined(others, 'or')}." if others else ""
    first = next(iter(found.values()))
    pairs = f"{first.pairs} {first.over}"
    return f"{text} Intervals: 95 %, over {pairs}{' of one seed' * (first.over == 'clients')}."


def describe_difference(one: Difference, metric: Metric) -> str:
    """Return a difference and its interval, such as +2.3 points, −4.0 to +8.6."""
    if not one.pairs:
        return "no client was tested by both"
    text = f"{signed(one.mean, metric)}{' points' if metric.is_share else ''}"
    return f"{text}, {interval(one, metric)}" if one.pairs > 1 else text


def _groups(grouping: Grouping) -> list[str]:
    found = len({cluster for cluster in grouping.clusters if cluster >= 0})
    why = grouping.num_clusters.why.rstrip(".")
    sentences = [f"The clients form {_count(found, 'cluster')}: {why}."]
    if grouping.why_indistinguishable:
        sentences = [f"The clients could not be distinguished: {grouping.why_indistinguishable}."]
    elif grouping.in_doubt:
        names = [one.client for one in grouping.in_doubt]
        sentences.append(
            f"{_count(len(names), 'client').capitalize()} in doubt: {named(names, _MOST_NAMES)}."
        )
    elif grouping.resamples and not grouping.uninformative:
        again = f" in resamples ({grouping.resampled})" if grouping.resampled else ""
        sentences.append(f"No client is in doubt{again}.")
    if grouping.uninformative:
        text = _count(len(grouping.uninformative), "client").capitalize()
        poor = named(list(grouping.uninformative), _MOST_NAMES)
        sentences.append(f"{text} had little to compare: {poor}; the reasons are below.")
    return sentences


def _tasks(result: Result) -> str:
    config = result.config
    tasks = result.runs[0].tasks
    if tasks is None:
        return "unknown tasks"
    if config.get("partition") == "writer":
        return "a writer each"
    count = len(set(tasks))
    unlike = " that disagree about labels" if config.get("shift") == "concept" else ""
    return f"{_count(count, 'task')}{unlike}"


def changed_options(config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the value and the default of each option that has another value than its default."""
    from fl_app.config.run_config import OPTIONS  # noqa: PLC0415 - it imports torch

    return {
        key: (value, OPTIONS[key].default if key in OPTIONS else "")
        for key, value in config.items()
        if key not in OPTIONS or value != OPTIONS[key].default
    }


def command(config: Mapping[str, Any]) -> str:
    """Return the command that repeats a run: on devices, a command of Flower.

    Results go to another folder then: `output-dir` is left out.
    """
    given = {
        key: value
        for key, (value, _) in changed_options(config).items()
        if key not in _NOT_REPEATED and value != ""
    }
    if config.get("dataset") == REAL_DEVICES:
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        return f"flwr run . devices --run-config {shlex.quote(words)} --stream"
    return shlex.join(["fedkin", "run", *key_values(given)])


def _percent(share: Any) -> str:
    return f"{100 * share:g} %" if isinstance(share, int | float) else str(share)


def _count(number: int, thing: str) -> str:
    return f"{'one' if number == 1 else f'{number:,}'} {thing}{'' if number == 1 else 's'}"


def _joined(names: Sequence[str], word: str = "and") -> str:
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} {word} {len(names) - _MOST_NAMES} more"
    return f" {word} ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
