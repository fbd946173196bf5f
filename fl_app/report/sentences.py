"""The sentences of a report: the question, the answer, and the command that repeats the run."""

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fl_app.report.tables import count_tested, interval, scores_in, signed, tests_of
from fl_app.report.text_table import TextTable
from fl_app.results.reading import Result
from fl_app.results.schema import Grouping
from fl_app.results.statistics import Difference, difference, mean_score, shared_scores
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
    config, grouping = result.config, result.grouping
    count = result.runs[0].num_clients if result.runs else len(grouping.names) if grouping else 0
    if not result.runs or config.get("dataset") == REAL_DEVICES:
        kind = "devices" if result.runs else "clients"
        return f"Which of these {count:,} {kind} should train together?"
    where = f"{count:,} clients of {_tasks(result)} on {config.get('dataset', 'images')}"
    if config.get("noise", "none") != "none" and config.get("noise-rate", 1):
        where += f" with {_percent(config.get('noise-rate'))} wrong labels"
    if config.get("attack", "none") != "none":
        where += f", {_percent(config.get('malicious'))} of them malicious ({config['attack']})"
    if len(result.strategies) == 1:
        return f"How well does {result.strategies[0]} serve {where}?"
    return f"Which strategy is best for {where}?"


def answer(result: Result, compare: str = "", *, is_short: bool = False) -> list[str]:
    """Return the results of the run in a few sentences, those of a strategy if one is named."""
    tests = tests_of(run for run in result.runs if np.isfinite(run.scores).any())
    of_tests = {test: text for test in tests if (text := _ranking(result, test, compare, is_short))}
    sentences = [*of_tests.values()]
    if len(of_tests) > 1:
        sentences = [f"Each client tested {test}, {text}" for test, text in of_tests.items()]
    if result.grouping is not None:
        sentences += _groups(result.grouping)
    return sentences + _troubles(result)


def answers_table(results: Sequence[Result], compare: str = "") -> TextTable:
    """Tabulate the answer of each result."""
    rows = [[one.name, " ".join(answer(one, compare, is_short=True))] for one in results]
    return TextTable("The best strategies of each run", ["run", "answer"], rows, folds=False)


def _troubles(result: Result) -> list[str]:
    """Return a sentence on each kind of trouble."""
    sentences = [f"{name} did not run: {why}." for name, why in result.left_out.items()]
    for run in result.runs:
        sentences += [f"{one}." for one in (run.describe_untrained(), run.describe_falls()) if one]
    failed = sorted({run.names[one.client] for run in result.runs for one in run.failures})
    left_out = sorted({run.names[c] for run in result.runs for c in run.left_out_of_sums})
    for names, what in (
        (failed, "failed: {}; the reasons are below."),
        (left_out, "sent impossible values and took part in no more secure sums: {}."),
    ):
        if names:
            text = _count(len(names), "client").capitalize()
            sentences.append(f"{text} {what.format(named(names, _MOST_NAMES))}")
    unknown = {node for run in result.runs for node in run.unknown_nodes}
    if result.grouping is not None:
        unknown |= result.grouping.unknown_nodes.keys()
    if unknown:
        text = _count(len(unknown), "node").capitalize()
        sentences.append(f"{text} could not take part: the reasons are below.")
    return sentences


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
        one = f"There is one seed{' in each run' * (len(tested) > 1)}"
        return f"{text} {one}: what another one would change is not in the intervals."
    varied = ["the partition of the data"] if tested[0].runs[0].tasks else []
    if any(result.config.get("noise", "none") != "none" for result in results):
        varied.append("the label noise")
    varied += ["the initial model", "the order of batches"]
    return f"{text} Between seeds vary {_joined(varied)}."


def _ranking(result: Result, test: str, compare: str, is_short: bool) -> str:
    """Return which strategy is best in a test, or how good `compare` is, and how others differ.

    Scores are those of the seeds and clients that all strategies have. Empty: there are none.
    """
    scores, metric = shared_scores(scores_in(result.runs, test)), result.runs[0].metrics.main
    if not scores:
        return ""
    means = {name: mean_score(of_seed) for name, of_seed in scores.items()}
    best_first = sorted(means, key=means.__getitem__, reverse=not metric.lower_is_better)
    best = metric.shown(means[best_first[0]])
    first = [name for name in means if metric.shown(means[name]) == best]
    if compare in scores:
        first = [compare]
    rest = [name for name in best_first if name not in first]
    if is_short:
        rest = rest[:1]
    elif not compare:
        rest = [name for name in rest if name in (rest[0], rest[-1], ALONE, ALL)]
    clients = count_tested([one for of_seed in scores.values() for one in of_seed.values()])
    seeds = len({seed for of_seed in scores.values() for seed in of_seed})
    over = f"mean over {clients} clients{f' and {seeds} seeds' if seeds > 1 else ''}"
    what = "" if metric.is_share else f"{metric.title} "
    differences = {name: difference(scores[first[0]], scores[name]) for name in rest}
    text = f"{_joined(first)} reached {what}{metric.with_unit(means[first[0]])} ({over})."
    return text + _describe_differences(differences, metric, first[0] if first[1:] else "")


def _describe_differences(found: Mapping[str, Difference], metric: Metric, whose: str) -> str:
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
    others = [
        f"{name} ({_describe_difference(one, metric)})"
        for name, one in found.items()
        if not one.is_shown
    ]
    that = f"For {whose}, that is" if whose else "That is"
    text = f" {that} {_joined(shown)}." if shown else ""
    which = f"difference of {whose}" if whose else "difference"
    text += f" No {which} can be shown from {_joined(others, 'or')}." if others else ""
    first = next(iter(found.values()))
    pairs = f"{first.pairs} {first.over}{' of one seed' * (first.over == 'clients')}"
    return f"{text} Intervals: 95 %, over {pairs}."


def _describe_difference(one: Difference, metric: Metric) -> str:
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
        text = _count(len(names), "client").capitalize()
        sentences.append(f"{text} in doubt: {named(names, _MOST_NAMES)}.")
    elif grouping.resamples and not grouping.uninformative:
        again = f" in resamples ({grouping.resampled})" if grouping.resampled else ""
        sentences.append(f"No client is in doubt{again}.")
    if grouping.uninformative:
        text = _count(len(grouping.uninformative), "client").capitalize()
        poor = named(list(grouping.uninformative), _MOST_NAMES)
        sentences.append(f"{text} had little to compare: {poor}; the reasons are below.")
    return [*sentences, f"It cost {describe_cost(grouping)}."]


def describe_cost(grouping: Grouping) -> str:
    """Return how many bytes a client sends and receives to be grouped, and to train."""
    pre_round, training = (
        f"{grouping.bytes.get(name, 0) / 1000:,.0f} kB"
        for name in ("pre_round_per_client", "round_per_client")
    )
    return f"{pre_round} per client for this pre-round, {training} for each round of training"


def _tasks(result: Result) -> str:
    config = result.config
    if (tasks := result.runs[0].tasks) is None:
        return "unknown tasks"
    if config.get("partition") == "writer":
        return "a writer each"
    unlike = " that disagree about labels" if config.get("shift") == "concept" else ""
    return f"{_count(len(set(tasks)), 'task')}{unlike}"


def changed_options(config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the value and the default of each option that has another value than its default."""
    from fl_app.config.run_config import OPTIONS  # noqa: PLC0415 - it imports torch

    return {
        key: (value, OPTIONS[key].default if key in OPTIONS else "")
        for key, value in config.items()
        if key not in OPTIONS or value != OPTIONS[key].default
    }


def command(config: Mapping[str, Any]) -> str:
    """Return the command that repeats a run in another folder: on devices, one of Flower."""
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
