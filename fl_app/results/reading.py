"""What a results folder says, read with care: its files may come from anybody."""

from __future__ import annotations

import csv
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BeforeValidator, ConfigDict, Field, ValidationError

from fl_app.results.fields import Array, Line, Long, Number, Option, Reasons, Text
from fl_app.results.file_checks import check_clients, check_scores, check_square
from fl_app.results.tuned import Tuned
from fl_app.results.verdict import SeedVerdicts
from fl_core.data.settings import TESTS
from fl_core.json_records import checker, what_is_wrong
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES, Metrics, metrics_in, metrics_of
from fl_core.text import one_line, printable

Curve = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Rounds, (R,), and mean score there in each seed, (S, R); NaN where there is none."""

_SAID = ("config", "versions", "privacy", "sample", "columns", "left_out", "runs", "verdicts")
SUMMARY, METRICS, GROUPING = "summary.json", "metrics.csv", "grouping.json"
_LARGEST = 400_000_000  # bytes of a file: 10,000 clients, twenty strategies and seeds take 20 MB
_ODD = "its data are like nobody's"

Read = TypeVar("Read")
Nodes = dict[Annotated[str, BeforeValidator(lambda node: f"node {int(node)}")], Line]


def _either(form: str) -> AliasChoices:
    return AliasChoices(*(form.format(one.main.name) for one in (OF_CLASSES, OF_A_NUMBER)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Tested:
    """One way to test clients: the mean, and each client's accuracy or RMSE, (K,), or NaN."""

    score: Annotated[Number, Field(validation_alias=_either("{}"))]
    scores: Annotated[Array, Field(validation_alias=_either("{}-per-client"))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Tested):
    """One strategy on one seed, as summary.json says it (docs/results.md).

    A cluster of −1: left out; `unknown` has what to call nodes that are no client.
    """

    __pydantic_config__ = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))
    strategy: Text
    seed: int
    num_clients: int
    on_its_task: Tested | None = None
    on_its_own_data: Tested | None = None
    is_regression: Annotated[bool, BeforeValidator(lambda _: True), Field(alias="rmse")] = False
    mae: Number = math.nan
    r2: Number = math.nan
    own_metric: Number = math.nan
    own_metrics: Annotated[Array, Field(alias="own-metric-per-client")] = field(
        default_factory=lambda: np.zeros(0)
    )
    own_metric_name: Text = ""
    names: list[Text] = field(default_factory=list)
    clusters: Annotated[list[int], Field(min_length=1)]
    tasks: list[int] | None = None
    ari: Number | None = None
    isolated: Annotated[Number | None, Field(alias="malicious-isolated")] = None
    bytes: dict[Text, Number]
    seconds: dict[Text, Number]
    failures: Reasons
    odd: Annotated[Reasons, Field(alias="odd-clients")] = field(default_factory=dict)
    not_kept: Annotated[Reasons, Field(alias="models-not-kept")] = field(default_factory=dict)
    left_out_of_sums: Reasons = field(default_factory=dict)
    tuned: Tuned | None = None
    unknown: Annotated[Nodes, Field(alias="unknown-nodes")] = field(default_factory=dict)
    malicious: frozenset[int] = frozenset()
    newcomers: frozenset[int] = frozenset()
    drifters: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Refuse, by a ValueError, what contradicts itself."""
        clients = range(self.num_clients)
        if not self.names:
            self.names.extend(map(str, clients))
        tested = [one.scores for one in self.tests.values()]
        counts = {len(self.names), len(self.clusters), len(self.tasks or self.clusters)}
        measured = [self.own_metrics] if self.own_metric_name else []
        if {*counts, *map(len, [*tested, *measured])} != {self.num_clients}:
            raise ValueError("it does not say the same of all clients")
        said = (self.failures, self.odd, self.not_kept, self.left_out_of_sums)
        for those in (*said, self.malicious, self.newcomers, self.drifters):
            check_clients(those, len(clients))
        means = [one.score for one in self.tests.values()]
        check_scores(np.concatenate([*tested, means]), self.metrics.main)

    @property
    def metrics(self) -> Metrics:
        """Return what tests measure."""
        return metrics_of(is_regression=self.is_regression, own=self.own_metric_name)

    @property
    def tests(self) -> dict[str, Tested]:
        """Return the ways in which clients were tested, by name: of a single one, the metric's."""
        if other := self.on_its_own_data:
            return {TESTS["task"]: self, TESTS["own"]: other}
        if other := self.on_its_task:
            return {TESTS["own"]: self, TESTS["task"]: other}
        return {self.metrics.main.name: self}

    def kilobytes(self, *parts: str) -> float:
        """Return the mean bytes that a client that was not left out sent and received."""
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


@dataclass(frozen=True)
class Doubt:
    """A client that may belong to another cluster; negative: to one of its own."""

    client: Text
    cluster: int
    other_cluster: int
    share: Number


@dataclass(frozen=True)
class Candidate:
    """A number of clusters, its score, and the share of resamples that choose it."""

    num_clusters: int
    score: Number = math.nan
    resamples: Number = math.nan


@dataclass(frozen=True)
class Chosen:
    """How many clusters there are, why, and how many there could be."""

    chosen: int
    why: Long
    candidates: list[Candidate]


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouping:
    """What grouping.json says: who belongs together, without any training."""

    version: Literal[1]
    names: Annotated[list[Text], Field(alias="clients", min_length=1)]
    clusters: list[int]
    certainty: list[Number]
    in_doubt: list[Doubt]
    num_clusters: Chosen
    together: Array | None = None
    relevance: Array | None = None
    bytes: dict[Text, Number]
    odd_clients: Annotated[list[Text], Field(alias="odd")]
    odd_why: dict[Text, Line] = field(default_factory=dict)
    unknown: Annotated[Nodes, Field(alias="unknown_nodes")] = field(default_factory=dict)
    untold: Line = ""
    uninformative: dict[Text, Line] = field(default_factory=dict)
    resamples: int
    drawn: Line = ""
    columns: list[Text] = field(default_factory=list)
    command: Long

    def __post_init__(self) -> None:
        """Refuse, by a ValueError, what contradicts itself."""
        if not len(self.clusters) == len(self.certainty) == (count := len(self.names)):
            raise ValueError("it does not say the same of all clients")
        for matrix in (self.together, self.relevance):
            if matrix is not None:
                check_square(matrix, count)

    @property
    def odd(self) -> dict[str, str]:
        """Return why clients are odd, by name."""
        return {name: self.odd_why.get(name, _ODD) for name in self.odd_clients}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What summary.json says."""

    version: Literal[1]
    runs: Annotated[list[Run], Field(min_length=1)]
    config: dict[Text, Option]
    versions: dict[Text, Text] = field(default_factory=dict)
    privacy: dict[Text, Number] = field(default_factory=dict)
    sample: Text = "image"
    columns: list[Text] = field(default_factory=list)
    left_out: dict[Text, Line] = field(default_factory=dict)
    verdicts: list[SeedVerdicts] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse, by a ValueError, verdicts of clients that are none."""
        count = max(run.num_clients for run in self.runs)  # devices join later runs, too
        for one in self.verdicts:
            check_clients([own.client for own in one.clients], count)


@dataclass(frozen=True, eq=False)
class Result:
    """What one results folder holds."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    privacy: dict[str, float] = field(default_factory=dict)
    sample: str = "image"
    columns: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    verdicts: list[SeedVerdicts] = field(default_factory=list)
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
        neither = f"{folder} holds neither {SUMMARY} nor {GROUPING}"
        raise ValueError(f"{neither}: name the results folder of a run that has ended.")
    parts: dict[str, Any] = {}
    if summary.is_file():
        said = _read(summary, lambda: checker(Summary).validate_python(_json(summary)))
        parts = {name: getattr(said, name) for name in _SAID}
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
        found = _read(grouping, lambda: checker(Grouping).validate_python(_json(grouping)))
        parts["grouping"] = found
        parts.setdefault("columns", found.columns)
        similarities = list(folder.glob("similarity-*.npz"))
        if not summary.is_file() and len(similarities) == 1:  # of several, one cannot say whose
            who = (found.names, found.clusters, None)
            one = _read(similarities[0], lambda: _matrix(similarities[0], "", *who))
            parts["matrices"] = [] if one is None else [one]
    return Result(printable(folder.resolve().name), **parts)


def _read(path: Path, read: Callable[[], Read]) -> Read:
    """Call `read`, and make one sentence of whatever it does not understand."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST / 1e6:.0f} MB")
        return read()
    except (
        *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
        *(RecursionError, EOFError, OSError, zipfile.BadZipFile, csv.Error),
    ) as error:
        said = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, ValidationError):
            said = what_is_wrong(error)
        raise ValueError(
            f"{path} is not as a run writes it ({one_line(said, 120)}): restore the file, or leave "
            "this folder out."
        ) from error


def _json(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

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
    curves = {}
    for strategy, seeds in found.items():
        rounds = sorted({number for of_seed in seeds.values() for number in of_seed})
        values = [  # after a seed that ended early, its last score
            [of_seed.get(min(number, max(of_seed)), math.nan) for number in rounds]
            for of_seed in seeds.values()
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
        chosen = clients.tolist()
        held = None if tasks is None else dict(enumerate(tasks))
        if "tasks" in saved:  # when they were compared: drift may have changed some since
            held = dict(zip(chosen, saved["tasks"].astype(np.int64).tolist(), strict=True))
    check_clients(chosen, len(names))
    check_square(values, len(chosen))
    return Matrix(
        title=title,
        measure=one_line(measure, 60),
        names=[names[client] for client in chosen],
        clusters=[clusters[client] for client in chosen],
        tasks=None if held is None else [held[client] for client in chosen],
        values=values,
        merges=_tree(merges, len(chosen)),
    )


def _tree(merges: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    from scipy.cluster.hierarchy import is_valid_linkage  # noqa: PLC0415 - slow to load

    if merges.shape == (0, 4):
        return merges
    if not is_valid_linkage(merges) or len(merges) >= count or not np.isfinite(merges).all():
        raise ValueError("its merges are no tree of its clients")
    return merges
