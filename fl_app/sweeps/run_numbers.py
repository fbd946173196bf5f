"""The stored numbers of a run: its scores, its rounds and its relevance by tasks."""

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_app.results.layout import CLIENTS, METRICS, similarity_path
from fl_core.data.settings import TESTS, name_of_test
from fl_core.messages import protocol
from fl_core.metrics import metrics_in

_STORED = (
    *("accuracy", "accuracy-variance", "accuracy-per-client", "ari", "clusters", "tasks"),
    *("rmse", "rmse-variance", "rmse-per-client", "mae", "r2"),
    *("malicious", "malicious-isolated", "bytes", "seconds", "failures"),
    *("balanced-accuracy", protocol.USER_METRIC),
)
_DIGITS = 6  # of raw numbers: a test of 10,000 images has five
_IN_UNITS = ("rmse", "mae", protocol.USER_METRIC)  # of any size


def numbers_of_run(run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the stored numbers of a run, from its entry in summary.json and its folder."""
    numbers = {
        name: _short(run[name], name) for name in _STORED if run.get(name) not in (None, [], {})
    }
    numbers |= {
        name: {"accuracy": _short(run[name]["accuracy"])}
        for name in map(name_of_test, TESTS)
        if name in run
    }
    found = numbers | {"rounds": _rounds(run, folder)}
    similarity = similarity_path(folder, run["strategy"], run["seed"])
    if similarity.is_file() and "tasks" in run:
        with np.load(similarity, allow_pickle=False) as arrays:
            if "similarity" in arrays:  # of very many clients it is not there
                clients = arrays["clients"]
                # They were compared before their task changed.
                stay = ~np.isin(clients, run.get("drifters", []))
                tasks, near = np.array(run["tasks"])[clients[stay]], arrays["similarity"]
                found["similarity-per-task"] = _short(task_means(near[np.ix_(stay, stay)], tasks))
    return found


def task_means(similarity: NDArray[np.float64], tasks: NDArray[np.int64]) -> list[Any]:
    """Return the mean similarity of different clients for each pair of tasks, (T, T).

    `similarity`, (n, n), has NaN where two were not compared: these do not count. A task of one
    client has None beside itself.
    """
    others = ~np.eye(len(tasks), dtype=bool) & np.isfinite(similarity)
    sides = [tasks == task for task in range(int(tasks.max()) + 1)]
    pairs = [[similarity[np.outer(a, b) & others] for b in sides] for a in sides]
    return [[float(p.mean()) if p.size else None for p in line] for line in pairs]


def _rounds(run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the main score, its variance over clients, its task means, ARI and bytes by round."""
    rounds: dict[str, Any] = {}
    score = metrics_in(run).main.name
    names = (score, f"{score}-variance", "ari", "bytes")
    for line in _lines(folder / METRICS, run):
        known = {name: float(line[name]) for name in names if line.get(name)}
        rounds[line["round"]] = _short(known)
    of_task: dict[tuple[str, str], list[float]] = {}
    for line in _lines(folder / CLIENTS, run):
        if line[score] and line["task"]:
            of_task.setdefault((line["round"], line["task"]), []).append(float(line[score]))
    for (number, task), values in of_task.items():
        means = rounds[number].setdefault(f"{score}-per-task", {})
        means[task] = _short(sum(values) / len(values), score)
    return rounds


def _lines(path: Path, run: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    of_run = (run["strategy"], str(run["seed"]))
    with path.open(newline="", encoding="utf-8") as file:
        yield from (
            line for line in csv.DictReader(file) if (line["strategy"], line["seed"]) == of_run
        )


def _short(value: Any, name: str = "") -> Any:
    """Return a value with fewer digits, and None for NaN, which JSON does not have.

    Of small numbers in a unit the digits are significant: errors in metres may be micrometres.
    """
    if isinstance(value, dict):
        return {key: _short(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one, name) for one in value]
    if isinstance(value, float):
        if name.startswith(_IN_UNITS) and abs(value) < 0.1:
            return float(f"{value:.{_DIGITS}g}")
        return None if math.isnan(value) else round(value, _DIGITS)
    return value
