"""Reads a results folder, and refuses files that a run would not write."""

import csv
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fl_app.results.fields import check_clients, check_scores, check_square
from fl_app.results.layout import GROUPING, METRICS, SUMMARY, similarity_path
from fl_app.results.schema import Grouping, Run, Summary
from fl_core.json_records import checker, validation_message
from fl_core.metrics import metrics_in
from fl_core.text import one_line, printable

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Rounds, (R,), and mean score there in each seed, (S, R); NaN where there is none."""

_LARGEST = 400_000_000  # bytes of a file: 10,000 clients, twenty strategies and seeds take 20 MB

Read = TypeVar("Read")


@dataclass(frozen=True, eq=False)
class Matrix:
    """The similarity of n clients, (n, n), and SciPy's tree of the m ≤ n that came first."""

    title: str
    measure: str
    names: list[str]
    clusters: list[int]
    tasks: list[int] | None
    values: NDArray[np.float64]
    merges: NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Summary):
    """The content of a results folder; without runs, a grouping alone."""

    name: str
    version: Literal[1] = 1
    config: dict[str, Any] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    curves: dict[str, Curve] = field(default_factory=dict)
    matrices: list[Matrix] = field(default_factory=list)
    grouping: Grouping | None = None


def read_result(folder: Path) -> Result:
    """Read a results folder for a report."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the results folder of a run.")
    summary, grouping = folder / SUMMARY, folder / GROUPING
    if not summary.is_file() and not grouping.is_file():
        neither = f"{folder} has neither {SUMMARY} nor {GROUPING}"
        raise ValueError(f"{neither}: give the results folder of a run that has ended.")
    parts: dict[str, Any] = {}
    if summary.is_file():
        parts, metrics = vars(read_summary(folder)), folder / METRICS
        if metrics.is_file():
            parts["curves"] = _read(metrics, lambda: _curves(metrics))
        parts["matrices"] = [
            one
            for run in parts["runs"]
            if (path := similarity_path(folder, run.strategy, run.seed)).is_file()
            and (one := _matrix(path, f"{run.strategy}, seed {run.seed}", run)) is not None
        ]
    if grouping.is_file():
        found = _read(grouping, lambda: checker(Grouping).validate_python(_json(grouping)))
        parts["grouping"] = found
        parts.setdefault("columns", found.columns)
        similarities = list(folder.glob("similarity-*.npz"))
        if not summary.is_file() and len(similarities) == 1:  # of several, the strategy is unknown
            one = _matrix(similarities[0], "", found)
            parts["matrices"] = [] if one is None else [one]
    return Result(name=printable(folder.resolve().name), **parts)


def read_summary(folder: Path) -> Summary:
    """Read summary.json in a folder; a ValueError if this software would not write it so."""
    path = folder / SUMMARY
    found: Summary = _read(path, lambda: checker(Summary).validate_python(_json(path)))
    return found


def _read(path: Path, read: Callable[[], Read]) -> Read:
    """Call `read`, and raise one sentence if the content is wrong."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST / 1e6:.0f} MB")
        return read()
    except (
        *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
        *(RecursionError, EOFError, OSError, zipfile.BadZipFile, csv.Error),
    ) as error:
        problem = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            problem = validation_message(error)
        raise ValueError(
            f"{path} is not a valid result file ({one_line(problem, 120)}): restore the file, or "
            "leave this folder out."
        ) from error


def _json(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def _curves(path: Path) -> dict[str, Curve]:
    """Return the curve of each strategy over the rounds in which clients were tested."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            seeds = found.setdefault(printable(row["strategy"]), {})
            metric = metrics_in(row).main
            if row[metric.name]:
                score = float(row[metric.name])
                check_scores(np.array([score]), metric)
                seeds.setdefault(int(row["seed"]), {})[int(row["round"])] = score
    return curves_of(found)


def curves_of(scores: Mapping[str, Mapping[int, Mapping[int, float]]]) -> dict[str, Curve]:
    """Return the curve of each strategy, from the score by strategy, seed and round."""
    curves = {}
    for strategy, seeds in scores.items():
        rounds = sorted({number for of_seed in seeds.values() for number in of_seed})
        values = [  # after a seed that ended early, its last score
            [of_seed.get(min(number, max(of_seed)), math.nan) for number in rounds]
            for of_seed in seeds.values()
        ]
        curve = np.array(values, np.float64).reshape(len(seeds), len(rounds))
        curves[strategy] = np.array(rounds, np.int64), curve
    return curves


def _matrix(path: Path, title: str, of: Run | Grouping) -> Matrix | None:
    """Return the similarity matrix of a file; None if it stores none, as of very many clients."""
    return _read(path, lambda: _read_matrix(path, title, of))


def _read_matrix(path: Path, title: str, of: Run | Grouping) -> Matrix | None:
    with zipfile.ZipFile(path) as archive:
        if sum(one.file_size for one in archive.infolist()) > _LARGEST:
            raise ValueError(f"it unpacks to more than {_LARGEST / 1e6:.0f} MB")
    with np.load(path, allow_pickle=False) as saved:
        if "similarity" not in saved:
            return None
        clients = saved["clients"].astype(np.int64).tolist()
        values = saved["similarity"].astype(np.float64)
        merges = saved["merges"].astype(np.float64)
        measure = str(saved["measure"]) if "measure" in saved else "relevance"
        tasks = of.tasks if isinstance(of, Run) else None
        known = None if tasks is None else dict(enumerate(tasks))
        if "tasks" in saved:  # when they were compared: drift may have changed some since
            known = dict(zip(clients, saved["tasks"].astype(np.int64).tolist(), strict=True))
    check_clients(clients, len(of.names))
    check_square(values, len(clients))
    return Matrix(
        title=title,
        measure=one_line(measure, 60) or "relevance",
        names=[of.names[client] for client in clients],
        clusters=[of.clusters[client] for client in clients],
        tasks=None if known is None else [known[client] for client in clients],
        values=values,
        merges=_tree(merges, len(clients)),
    )


def _tree(merges: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    from scipy.cluster.hierarchy import is_valid_linkage  # noqa: PLC0415 - slow to load

    if merges.shape == (0, 4):
        return merges
    if not is_valid_linkage(merges) or len(merges) >= count or not np.isfinite(merges).all():
        raise ValueError("its merges are not a tree of its clients")
    return merges
