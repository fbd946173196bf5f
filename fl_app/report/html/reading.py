"""What a results folder says, read with care: its files may come from anybody."""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fl_core.text import one_line, printable

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Rounds, (R,), and mean accuracy there in each seed, (S, R); NaN where there is none."""

SUMMARY, METRICS, GROUPING = "summary.json", "metrics.csv", "grouping.json"
_LARGEST = 400_000_000  # bytes of a file: 10,000 clients, twenty strategies and seeds take 20 MB
_MOST_NAMED = 2_000  # clients of a matrix, as a run keeps it

Read = TypeVar("Read")


@dataclass(frozen=True, eq=False)
class Run:
    """One strategy on one seed, as summary.json says it.

    Attributes
    ----------
    strategy, seed
        What ran.
    accuracies : NDArray[np.float64], shape (K,)
        Final test accuracy of each client; NaN where it was not tested, or is malicious.
    names : list of K str
        What to call the clients, printable.
    clusters : list of K int
        −1: left out.
    tasks : list of K int, optional
        The true ones, where they are known.
    ari, isolated : float, optional
        As in summary.json.
    bytes, seconds : dict of float
        As in summary.json.
    failures, odd, not_kept, left_out_of_sums : dict of str
        What was said of clients, by index.
    unknown : dict of str
        Why nodes were left out that are no client, by what to call them.
    malicious, newcomers, drifters : frozenset of int
    """

    strategy: str
    seed: int
    accuracy: float
    accuracies: NDArray[np.float64]
    names: list[str]
    clusters: list[int]
    tasks: list[int] | None
    ari: float | None
    isolated: float | None
    bytes: dict[str, float]
    seconds: dict[str, float]
    failures: dict[int, str]
    odd: dict[int, str]
    not_kept: dict[int, str]
    left_out_of_sums: dict[int, str]
    unknown: dict[str, str]
    malicious: frozenset[int]
    newcomers: frozenset[int]
    drifters: frozenset[int]

    @property
    def num_clients(self) -> int:
        """Return K, those left out included."""
        return len(self.clusters)

    def kilobytes(self, *parts: str) -> float:
        """Return what a client that was not left out sent and received, on average."""
        taking_part = max(1, self.num_clients - len(self.failures))
        return sum(self.bytes.get(part, 0.0) for part in parts) / taking_part / 1000


@dataclass(frozen=True, eq=False)
class Matrix:
    """How near clients are to each other: an n × n matrix, and the tree of the first clients.

    `merges` is SciPy's, of m ≤ n clients; the other clients came later.
    """

    title: str
    measure: str
    names: list[str]
    clusters: list[int]
    tasks: list[int] | None
    values: NDArray[np.float64]
    merges: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Grouping:
    """What grouping.json says: who belongs together, without any training."""

    names: list[str]
    clusters: list[int]
    certainty: list[float]
    in_doubt: list[dict[str, Any]]
    chosen: int
    why: str
    candidates: list[dict[str, float]]
    together: NDArray[np.float64] | None
    relevance: NDArray[np.float64] | None
    bytes: dict[str, float]
    odd: dict[str, str]
    unknown: dict[str, str]
    resamples: int
    command: str


@dataclass(frozen=True, eq=False)
class Result:
    """What one results folder holds."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    privacy: dict[str, float] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    curves: dict[str, Curve] = field(default_factory=dict)
    matrices: list[Matrix] = field(default_factory=list)
    grouping: Grouping | None = None

    @property
    def strategies(self) -> list[str]:
        """Return the strategies in order of appearance."""
        return list(dict.fromkeys(run.strategy for run in self.runs))

    def of(self, strategy: str) -> list[Run]:
        """Return the runs of a strategy, seed by seed."""
        return [run for run in self.runs if run.strategy == strategy]


def read_result(folder: Path) -> Result:
    """Read what a report shows of a results folder.

    Raises
    ------
    ValueError
        One sentence with the file, if there is none that can be shown, or one is not as this
        software writes it.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name the results folder of a run.")
    summary, grouping = folder / SUMMARY, folder / GROUPING
    if not summary.is_file() and not grouping.is_file():
        raise ValueError(
            f"{folder} holds neither {SUMMARY} nor {GROUPING}: name the results folder of a run "
            "that has ended."
        )
    parts: dict[str, Any] = {}
    if summary.is_file():
        parts = _read(summary, lambda: _summary(_json(summary)))
        metrics = folder / METRICS
        if metrics.is_file():
            parts["curves"] = _read(metrics, lambda: _curves(metrics))
        parts["matrices"] = [
            one
            for run in parts["runs"]
            for path in (folder / f"similarity-{run.strategy}-seed-{run.seed}.npz",)
            if "/" not in run.strategy and path.is_file()
            for one in (_matrix_of_run(path, run),)
            if one is not None
        ]
    if grouping.is_file():
        found = _read(grouping, lambda: _grouping(_json(grouping)))
        parts["grouping"] = found
        similarities = list(folder.glob("similarity-*.npz"))
        if not summary.is_file() and len(similarities) == 1:  # of several, one cannot say whose
            who = (found.names, found.clusters, None)
            one = _read(similarities[0], lambda: _matrix(similarities[0], "", *who))
            parts["matrices"] = [] if one is None else [one]
    return Result(printable(folder.resolve().name), **parts)


def _read(path: Path, read: Callable[[], Read]) -> Read:
    """Return what `read` returns; make one sentence of whatever it does not understand."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST / 1e6:.0f} MB")
        return read()
    except (
        *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
        *(RecursionError, EOFError, OSError, zipfile.BadZipFile, csv.Error),
    ) as error:
        said = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} is not as a run writes it ({one_line(said, 120)}): restore the file, or leave "
            "this folder out."
        ) from error


def _json(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def _summary(found: Any) -> dict[str, Any]:
    if found["version"] != 1:
        raise ValueError("its version is not 1")
    runs = [_run(one) for one in found["runs"]]
    if not runs:
        raise ValueError("it has no runs")
    return {
        "runs": runs,
        "config": {
            printable(str(key)): printable(value) if isinstance(value, str) else _scalar(value)
            for key, value in found["config"].items()
        },
        "versions": _texts(found.get("versions", {})),
        "privacy": _numbers(found.get("privacy", {})),
    }


def _scalar(value: Any) -> str | int | float | bool:
    if not isinstance(value, str | int | float):
        raise TypeError(f"an option is {value!r}")
    return value


def _run(one: Mapping[str, Any]) -> Run:
    clusters = _integers(one["clusters"])
    count = len(clusters)
    if not count or count != int(one["num-clients"]):
        raise ValueError("num-clients is not the number of its clusters")
    names = one.get("names")
    tasks = one.get("tasks")
    run = Run(
        strategy=printable(str(one["strategy"])),
        seed=int(one["seed"]),
        accuracy=_number(one["accuracy"]),
        accuracies=np.array([_number(value) for value in one["accuracy-per-client"]]),
        names=[printable(str(name)) for name in (range(count) if names is None else names)],
        clusters=clusters,
        tasks=None if tasks is None else _integers(tasks),
        ari=None if one.get("ari") is None else _number(one["ari"]),
        isolated=(
            None if one.get("malicious-isolated") is None else _number(one["malicious-isolated"])
        ),
        bytes=_numbers(one["bytes"]),
        seconds=_numbers(one["seconds"]),
        failures=_said(one["failures"], count),
        odd=_said(one.get("odd-clients", {}), count),
        not_kept=_said(one.get("models-not-kept", {}), count),
        left_out_of_sums=_said(one.get("left-out-of-sums", {}), count),
        unknown=_unknown(one.get("unknown-nodes", {})),
        malicious=_clients(one.get("malicious", ()), count),
        newcomers=_clients(one.get("newcomers", ()), count),
        drifters=_clients(one.get("drifters", ()), count),
    )
    for what in (run.accuracies, run.names, run.clusters if run.tasks is None else run.tasks):
        if len(what) != count:
            raise ValueError("it does not say the same of all clients")
    known = run.accuracies[np.isfinite(run.accuracies)]
    if known.size and (known.min() < 0 or known.max() > 1):
        raise ValueError("an accuracy is not in [0, 1]")
    return run


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _integers(values: Iterable[Any]) -> list[int]:
    return [int(value) for value in values]


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {printable(str(key)): _number(value) for key, value in found.items()}


def _texts(found: Mapping[str, Any]) -> dict[str, str]:
    return {printable(str(key)): printable(str(value)) for key, value in found.items()}


def _said(found: Mapping[str, Any], count: int) -> dict[int, str]:
    return {_client(key, count): one_line(str(value)) for key, value in found.items()}


def _unknown(found: Mapping[str, Any]) -> dict[str, str]:
    return {f"node {int(node)}": one_line(str(why)) for node, why in found.items()}


def _clients(found: Iterable[Any], count: int) -> frozenset[int]:
    return frozenset(_client(one, count) for one in found)


def _client(value: Any, count: int) -> int:
    if not 0 <= int(value) < count:
        raise ValueError(f"there is no client {value}")
    return int(value)


def _curves(path: Path) -> dict[str, Curve]:
    """Return the curve of each strategy over the rounds in which clients were tested."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            seeds = found.setdefault(printable(row["strategy"]), {})
            if row["accuracy"]:
                accuracy = float(row["accuracy"])
                if not 0 <= accuracy <= 1:
                    raise ValueError("an accuracy is not in [0, 1]")
                seeds.setdefault(int(row["seed"]), {})[int(row["round"])] = accuracy
    curves = {}
    for strategy, seeds in found.items():
        rounds = sorted({number for of_seed in seeds.values() for number in of_seed})
        values = [
            [of_seed.get(number, math.nan) for number in rounds] for of_seed in seeds.values()
        ]
        curve = np.array(values, np.float64).reshape(len(seeds), len(rounds))
        curves[strategy] = np.array(rounds, np.int64), curve
    return curves


def _matrix_of_run(path: Path, run: Run) -> Matrix | None:
    title = f"{run.strategy}, seed {run.seed}"
    return _read(path, lambda: _matrix(path, title, run.names, run.clusters, run.tasks))


def _matrix(
    path: Path, title: str, names: Sequence[str], clusters: Sequence[int], tasks: list[int] | None
) -> Matrix | None:
    """Return the similarity matrix in a file; None where it has too many clients to be kept."""
    with zipfile.ZipFile(path) as archive:
        if sum(one.file_size for one in archive.infolist()) > _LARGEST:
            raise ValueError(f"it unpacks to more than {_LARGEST / 1e6:.0f} MB")
    with np.load(path, allow_pickle=False) as saved:
        if "similarity" not in saved:
            return None
        clients = saved["clients"].astype(np.int64)
        values = saved["similarity"].astype(np.float64)
        merges = saved["merges"].astype(np.float64)
        measure = str(saved["measure"]) if "measure" in saved else "relevance"
    chosen = [_client(client, len(names)) for client in clients.tolist()]
    return Matrix(
        title=title,
        measure=one_line(measure, 60),
        names=[names[client] for client in chosen],
        clusters=[clusters[client] for client in chosen],
        tasks=None if tasks is None else [tasks[client] for client in chosen],
        values=_square(values, len(chosen)),
        merges=_tree(merges, len(chosen)),
    )


def _square(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    if values.shape != (count, count) or count > _MOST_NAMED or np.isinf(values).any():
        raise ValueError(f"a matrix of {count} clients has shape {values.shape}")
    return values


def _tree(merges: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    from scipy.cluster.hierarchy import is_valid_linkage  # noqa: PLC0415 - slow to load

    if merges.shape == (0, 4):
        return merges
    if not is_valid_linkage(merges) or len(merges) >= count or not np.isfinite(merges).all():
        raise ValueError("its merges are no tree of its clients")
    return merges


def _grouping(found: Mapping[str, Any]) -> Grouping:
    if found["version"] != 1:
        raise ValueError("its version is not 1")
    names = [printable(str(name)) for name in found["clients"]]
    clusters, count = _integers(found["clusters"]), len(names)
    certainty = [_number(value) for value in found["certainty"]]
    if not count or len(clusters) != count or len(certainty) != count:
        raise ValueError("it does not say the same of all clients")
    number, whys = found["num_clusters"], found.get("odd_why", {})
    return Grouping(
        names=names,
        clusters=clusters,
        certainty=certainty,
        in_doubt=[
            {
                "client": printable(str(one["client"])),
                "cluster": int(one["cluster"]),
                "other": int(one["other_cluster"]),
                "share": _number(one["share"]),
            }
            for one in found["in_doubt"]
        ],
        chosen=int(number["chosen"]),
        why=one_line(str(number["why"]), 1000),
        candidates=[
            {
                "num_clusters": int(one["num_clusters"]),
                "score": _number(one.get("score")),
                "resamples": _number(one.get("resamples")),
            }
            for one in number["candidates"]
        ],
        together=_optional_square(found.get("together"), count),
        relevance=_optional_square(found.get("relevance"), count),
        bytes=_numbers(found["bytes"]),
        odd={
            printable(str(name)): one_line(str(whys.get(name, "its data are like nobody's")))
            for name in found["odd"]
        },
        unknown=_unknown(found.get("unknown_nodes", {})),
        resamples=int(found["resamples"]),
        command=one_line(str(found["command"]), 2000),
    )


def _optional_square(rows: Any, count: int) -> NDArray[np.float64] | None:
    if rows is None:
        return None
    return _square(np.array([[_number(value) for value in row] for row in rows]), count)
