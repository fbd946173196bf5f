"""The sentences of a report: the question, the answer, and the command that repeats the run."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fl_app.report.tables import shared_seeds, tests_of
from fl_app.results.reading import Result
from fl_app.results.schema import Grouping, Run
from fl_core.data.settings import REAL_DEVICES
from fl_core.options import key_values
from fl_core.text import listed
from strategies.catalogue import ALL, ALONE, UNGROUPED

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
    grouped = [name for name in result.strategies if name not in UNGROUPED]
    others = [name for name in result.strategies if name in UNGROUPED]
    if config.get("dataset") == REAL_DEVICES:
        return (
            f"Which of these {count:,} devices should train together, and how well do the models "
            f"of {_joined(grouped or others)} serve each of them?"
        )
    where = f"{count:,} clients of {_tasks(result)} on {config.get('dataset', 'images')}"
    if config.get("noise", "none") != "none" and config.get("noise-rate", 1):
        where += f" with {_percent(config.get('noise-rate'))} wrong labels"
    if config.get("attack", "none") != "none":
        where += f", {_percent(config.get('malicious'))} of them malicious ({config['attack']}),"
    if not grouped:
        return f"How well do models of {_joined(others)} serve {where.rstrip(',')}?"
    if not others:
        return f"How well does grouping by {_joined(grouped)} serve {where.rstrip(',')}?"
    rest = _joined(others, "or")
    return f"Does grouping {where} by {_joined(grouped)} serve them better than {rest}?"


def answer(result: Result) -> list[str]:
    """Return the results of the run in a few sentences."""
    sentences = []
    tested = [run for run in result.runs if np.isfinite(run.scores).any()]
    if shared := shared_seeds(tested):  # of a stopped run, the last one has not all strategies
        tested = [run for run in tested if run.seed in shared]
    tests = tests_of(tested)
    for test in tests:
        found: dict[str, list[float]] = {}
        for run in tested:
            if test in run.tests and math.isfinite(run.tests[test].score):
                found.setdefault(run.strategy, []).append(run.tests[test].score)
        if found:
            means = {name: float(np.mean(scores)) for name, scores in found.items()}
            best = _best(means, tested, test)
            sentences.append(best if len(tests) == 1 else f"Each client tested {test}, {best}")
    if result.grouping is not None:
        sentences += _groups(result.grouping)
    sentences += [f"{name} did not run: {why}." for name, why in result.left_out.items()]
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
    return sentences


def _best(means: Mapping[str, float], runs: Sequence[Run], test: str) -> str:
    metric = runs[0].metrics.main
    lower = metric.lower_is_better
    best = (min if lower else max)(means.values())
    first = [name for name, mean in means.items() if metric.shown(mean) == metric.shown(best)]
    if metric.is_share:
        first = [name for name, mean in means.items() if round(1e3 * (best - mean)) == 0]
    unit, more = (" points", "more") if metric.is_share else ("", "less" if lower else "more")
    seeds = len({run.seed for run in runs})
    over = f"mean over clients{f' and {seeds} seeds' if seeds > 1 else ''}"
    what = "" if metric.is_share else f"{metric.title} "
    text = f"{_joined(first)} reached {what}{metric.with_unit(best)} ({over})"
    if rest := {name: mean for name, mean in means.items() if name not in first}:
        order = sorted(rest, key=lambda name: rest[name], reverse=not lower)
        named_too = [name for name in order if name in (order[0], order[-1], ALONE, ALL)]
        gains = {name: metric.shown(abs(best - rest[name])) for name in named_too}
        gains[order[0]] += unit  # once is enough
        text += f", {_joined([f'{gain} {more} than {name}' for name, gain in gains.items()])}"
    # Of equal clients the first one of the first seed.
    sign = -1 if lower else 1
    least, seed, _, name, where = min(
        (sign * float(scores[client]), run.seed, client, run.names[client], run.strategy)
        for run in runs
        if run.strategy in first and test in run.tests
        for scores in (run.tests[test].scores,)
        for client in np.flatnonzero(np.isfinite(scores)).tolist()
    )
    which = f"client {name}" if name.isdecimal() else name
    which += f", seed {seed}" if seeds > 1 else ""
    of = "Its client" if len(first) == 1 else f"{where}'s client"
    reached = metric.with_unit(sign * least)
    return f"{text}. {of} with the {metric.extreme} {metric.title} ({which}) reached {reached}."


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
