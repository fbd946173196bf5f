"""The schema of a run's result files, by which they are written and read (docs/results.md).

The author of a file may be malicious: texts are made harmless, numbers are bounded, and
contradictions are refused. The page explains the keys; what it does not, is explained here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fl_app.results.falls import Fall, describe_falls
from fl_app.results.fields import (
    DASHED_KEYS,
    OMIT_EMPTY,
    Array,
    Count,
    Line,
    Long,
    Number,
    NumberIfAny,
    Option,
    Reasons,
    Text,
    check_clients,
    check_scores,
    check_square,
    is_empty,
)
from fl_app.results.verdict import SeedVerdicts
from fl_core.data.settings import TESTS
from fl_core.metrics import OF_A_NUMBER, OF_CLASSES, Metric, Metrics, metrics_of
from fl_core.options import key_values
from fl_core.text import listed, one_line, printable
from strategies import Failure

_MOST_NAMES = 60
_PerRound = dict[int, Number] | None


def _of_main(key: str) -> Any:
    """Return a field with the name of the main metric, `accuracy` or `rmse`, in its key."""
    names = (one.main.name for one in (OF_CLASSES, OF_A_NUMBER))
    return Field(
        validation_alias=AliasChoices(*map(key.format, names)),
        serialization_alias=key,
        exclude_if=is_empty,
    )


_OMIT_NONE = Field(exclude_if=lambda value: value is None)


def _harmless(failure: Failure) -> Failure:
    step, reason = printable(failure.step), one_line(failure.reason)
    return replace(failure, step=step, reason=reason)


def _no_scores() -> NDArray[np.float64]:
    return np.zeros(0)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A strategy with some values of `tune`, and what it cost."""

    values: dict[Text, Option]  # by run-config key
    score: Number  # on validation samples, mean over clients: accuracy or mean error; NaN: none
    rounds: int
    bytes: Count  # of all clients, up and down
    seconds: Number


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The values that are best for the middle half of the clients, and all that were tried."""

    values: dict[Text, Option]
    tried: list[Tried]

    def describe(self, num_clients: int) -> str:
        """Return the chosen values, and what the choice cost."""
        chosen = " ".join(key_values(self.values))
        rounds = sum(one.rounds for one in self.tried)
        kilobytes = sum(one.bytes for one in self.tried) / num_clients / 1000
        seconds = sum(one.seconds for one in self.tried)
        return (
            f"{chosen} (of {len(self.tried)} tried: {rounds:,} rounds, {kilobytes:,.0f} kB/client, "
            f"{seconds:,.0f} s in all)"
        )


@dataclass(frozen=True, kw_only=True)
class _RunId:  # whose keys come first
    strategy: Text
    seed: int
    num_clients: int
    rounds: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Tested:
    """One test of all clients: the mean of each score, and each client's, (K,), NaN if unknown."""

    __pydantic_config__ = DASHED_KEYS
    is_regression: Annotated[
        bool, BeforeValidator(lambda _: True), Field(validation_alias="rmse", exclude=True)
    ] = False
    score: Annotated[Number, _of_main("{}")]
    scores: Annotated[Array, _of_main("{}-per-client")]
    variance: Annotated[NumberIfAny, _of_main("{}-variance")] = None
    macro_f1: NumberIfAny = None
    macro_f1_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)
    balanced_accuracy: NumberIfAny = None
    balanced_accuracy_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)
    mae: NumberIfAny = None
    mae_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)
    r2: NumberIfAny = None
    r2_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)
    user_metric: NumberIfAny = None
    user_metric_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)
    loss: NumberIfAny = None
    loss_per_client: Annotated[Array, OMIT_EMPTY] = field(default_factory=_no_scores)

    @model_serializer(mode="wrap")
    def _with_main_metric(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        name = metrics_of(is_regression=self.is_regression).main.name
        return {key.replace("{}", name): value for key, value in write(self).items()}

    def scores_of(self, metric: Metric) -> NDArray[np.float64]:
        """Return each client's score by a metric beside the main one, shape (K,)."""
        values: NDArray[np.float64] = getattr(self, f"{metric.name.replace('-', '_')}_per_client")
        return values

    def mean(self, metric: Metric) -> float:
        """Return the mean of a metric over clients; NaN where it was not measured."""
        value: float | None = getattr(self, metric.name.replace("-", "_"))
        return math.nan if value is None else value


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Tested, _RunId):
    """One strategy on one seed.

    Cluster −1: left out. `models_not_stored`, of a run on devices only: by client, why its device
    lacks its model. `options`: those that the strategy decides unless they are given.
    `unknown_nodes`: nodes that are no client, by name. `never_trained`: the clients that failed
    whenever they were to train, but not malicious ones.
    """

    on_its_task: Annotated[Tested | None, OMIT_EMPTY] = None
    on_its_own_data: Annotated[Tested | None, OMIT_EMPTY] = None
    clusters: Annotated[list[int], Field(min_length=1)]
    tasks: Annotated[list[int] | None, OMIT_EMPTY] = None
    ari: NumberIfAny = None
    nmi: NumberIfAny = None
    given_names: Annotated[list[Text], Field(alias="names", exclude_if=is_empty)] = field(
        default_factory=list
    )
    models_not_stored: Annotated[Reasons | None, _OMIT_NONE] = None
    bytes: dict[Text, Count]
    seconds: dict[Text, Number]
    failures: list[Annotated[Failure, AfterValidator(_harmless)]]
    never_trained: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    falls: Annotated[list[Fall], OMIT_EMPTY] = field(default_factory=list)
    still_improving: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    user_metric_name: Annotated[Text, OMIT_EMPTY] = ""
    tuned: Annotated[Tuned | None, OMIT_EMPTY] = None
    options: Annotated[dict[Text, Option], OMIT_EMPTY] = field(default_factory=dict)
    outliers: Annotated[Reasons, OMIT_EMPTY] = field(default_factory=dict)
    note: Annotated[Text, OMIT_EMPTY] = ""
    unknown_nodes: Annotated[dict[Text, Line], OMIT_EMPTY] = field(default_factory=dict)
    left_out_of_sums: Annotated[Reasons, OMIT_EMPTY] = field(default_factory=dict)
    malicious: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    isolated: Annotated[NumberIfAny, Field(alias="malicious-isolated")] = None
    newcomers: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    newcomers_per_round: Annotated[_PerRound, _of_main("newcomers-{}-per-round")] = None
    drifters: Annotated[tuple[int, ...], OMIT_EMPTY] = ()
    drifters_per_round: Annotated[_PerRound, _of_main("drifters-{}-per-round")] = None

    @model_validator(mode="after")
    def _check(self) -> "Run":
        """Refuse contradictions."""
        tests = self.tests.values()
        measured = [self.user_metric_per_client] if self.user_metric_name else []
        counts = {len(self.names), len(self.clusters), len(self.tasks or self.clusters)}
        if counts.union(map(len, measured), (len(one.scores) for one in tests)) != {
            self.num_clients
        }:
            raise ValueError("its lists about clients differ in length")
        for clients in (
            *(self.outliers, self.models_not_stored or {}, self.left_out_of_sums),
            *(self.never_trained, self.malicious, self.newcomers, self.drifters),
            [failure.client for failure in self.failures],
            [fall.client for fall in self.falls],
        ):
            check_clients(clients, self.num_clients)
        for one in tests:
            check_scores(np.append(one.scores, one.score), self.metrics.main)
        return self

    @cached_property  # of 10,000 clients, it takes a millisecond
    def names(self) -> list[str]:
        """Return the clients' names, or else their indices."""
        return self.given_names or [str(client) for client in range(self.num_clients)]

    def name_in_sentence(self, client: int) -> str:
        """Return the name of a client in a sentence."""
        return self.given_names[client] if self.given_names else f"client {client}"

    def describe_untrained(self) -> str:
        """Return a sentence on the clients that never trained; empty: there is none."""
        if not self.never_trained:
            return ""
        names = [*map(self.name_in_sentence, self.never_trained)]
        return f"{self.strategy}, seed {self.seed}: {listed(names, _MOST_NAMES)} never trained"

    def describe_falls(self) -> str:
        """Return a sentence on scores that fell from one test to the next; empty: none did."""
        said = describe_falls(self.falls, self.name_in_sentence, self.metrics.main)
        return f"{self.strategy}, seed {self.seed}: {said}" if said else ""

    @property
    def of_client(self) -> dict[int, int]:
        """Return the cluster of each client that was not left out."""
        return {client: cluster for client, cluster in enumerate(self.clusters) if cluster >= 0}

    @property
    def metrics(self) -> Metrics:
        """Return the metrics of the tests."""
        return metrics_of(is_regression=self.is_regression, user_metric=self.user_metric_name)

    @property
    def tests(self) -> dict[str, Tested]:
        """Return the tests by name; a single one has the name of the metric."""
        if other := self.on_its_own_data:
            return {TESTS["task"]: self, TESTS["own"]: other}
        if other := self.on_its_task:
            return {TESTS["own"]: self, TESTS["task"]: other}
        return {self.metrics.main.name: self}

    @property
    def deviation(self) -> float:
        """Return the standard deviation over the clients that were tested; NaN if none was."""
        known = self.scores[np.isfinite(self.scores)]
        return float(known.std()) if known.size else math.nan

    def kilobytes(self, *parts: str) -> float:
        """Return the mean bytes that a client that was not left out sent and received."""
        taking_part = max(1, len(self.of_client))
        return sum(self.bytes.get(part, 0.0) for part in parts) / taking_part / 1000


SomeRun = TypeVar("SomeRun", bound=Run)


def largest_run(runs: Sequence[SomeRun]) -> SomeRun:
    """Return the run with the most clients: devices may join after the first one."""
    return max(runs, key=lambda run: run.num_clients)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """summary.json: all runs of a folder."""

    version: Literal[1]
    config: dict[Text, Option]
    versions: dict[Text, Text] = field(default_factory=dict)
    sample: Annotated[Text, Field(exclude_if=lambda word: word == "image")] = "image"
    left_out: Annotated[dict[Text, Line], OMIT_EMPTY] = field(default_factory=dict)
    privacy: Annotated[dict[Text, Number], OMIT_EMPTY] = field(default_factory=dict)
    columns: Annotated[list[Text], OMIT_EMPTY] = field(default_factory=list)
    runs: Annotated[list[Run], Field(min_length=1)]
    table: list[dict[str, Any]] = field(default_factory=list)
    verdicts: Annotated[list[SeedVerdicts], OMIT_EMPTY] = field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> "Summary":
        """Refuse verdicts on unknown clients."""
        count = max(run.num_clients for run in self.runs)  # devices join later runs, too
        for one in self.verdicts:
            check_clients([verdict.client for verdict in one.clients], count)
        return self

    @property
    def strategies(self) -> list[str]:
        """Return the strategies in order of appearance."""
        return list(dict.fromkeys(run.strategy for run in self.runs))

    def of(self, strategy: str) -> list[Run]:
        """Return the runs of a strategy, seed by seed."""
        return [run for run in self.runs if run.strategy == strategy]


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A client that may belong to another cluster; negative: to none."""

    client: Text
    cluster: int
    other_cluster: int
    share: Number


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A number of clusters, its score, and the share of resamples that choose it."""

    num_clusters: int
    score: Number = math.nan
    resamples: Number = math.nan


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The number of clusters, why it was chosen, and the other candidates."""

    chosen: int
    why: Long
    candidates: list[Candidate]

    def foremost(self, most: int) -> list[Candidate]:
        """Return the chosen candidate and those that the evidence supports most, by number."""
        by_evidence = sorted(
            self.candidates,
            key=lambda one: (
                one.num_clusters != self.chosen,
                -one.resamples,
                -np.nan_to_num(one.score),
            ),
        )
        return sorted(by_evidence[:most], key=lambda one: one.num_clusters)


@dataclass(frozen=True, eq=False, kw_only=True)
class Grouping:
    """grouping.json: the clusters of clients, found without training.

    Of few clients, `together` has the share of resamples in which each pair is in one cluster.
    """

    version: Literal[1]
    names: Annotated[list[Text], Field(alias="clients", min_length=1)]
    clusters: list[int]
    together: Annotated[Array | None, OMIT_EMPTY] = None
    certainty: list[Number]
    in_doubt: list[Doubt]
    why_indistinguishable: Line = ""
    uninformative: dict[Text, Line] = field(default_factory=dict)
    num_clusters: Chosen
    bytes: dict[Text, Count]
    outliers: dict[Text, Line] = field(default_factory=dict)
    unknown_nodes: dict[Text, Line] = field(default_factory=dict)
    sample: Text = "image"
    resamples: int
    resampled: Line = ""
    command: Long
    relevance: Annotated[Array | None, OMIT_EMPTY] = None
    columns: Annotated[list[Text], OMIT_EMPTY] = field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> "Grouping":
        """Refuse contradictions."""
        if not len(self.clusters) == len(self.certainty) == (count := len(self.names)):
            raise ValueError("its lists about clients differ in length")
        for matrix in (self.together, self.relevance):
            if matrix is not None:
                check_square(matrix, count)
        return self
