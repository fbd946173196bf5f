"""A verdict for each client: what it is, and how people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from fl_app.results.fields import DASHES, IF_ANY, Finite, Text
from fl_core.metrics import OF_A_NUMBER, Metric
from strategies.catalogue import SYSTEMS
from strategies.clusterings.clustering import OwnCluster, SingleCluster

Word = Literal["join", "stay alone", "one model for all", "cannot tell yet"]
JOIN: Word = "join"
STAY: Word = "stay alone"
ONE: Word = "one model for all"
UNSURE: Word = "cannot tell yet"
NONE = "nothing was compared"
WORDS = (JOIN, ONE, STAY, UNSURE)

ERROR = 0.05
"""The probability that a client's verdict claims a gain or a loss that is none, at most."""

EXPLAINED = (
    "Gains are measured on each client's validation samples, on which nobody trained. Each "
    f"client's verdict is wrong with a probability of {ERROR:.0%} at most, and so is its interval: "
    f"of N clients, N/{1 / ERROR:.0f} may be told a gain or a loss that is none. "
    "Where nobody can tell, the model named is the best so far."
)

Gain = tuple[Finite, Finite, Finite]
"""As seen, and between which bounds it is: accuracy in [−1, 1], or less error in its unit."""

Candidate = tuple[Finite, Finite, Finite, Finite]
"""A gain, and the p-value, not corrected, of models that are equally good."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a client's own validation samples say, as in summary.json.

    Attributes
    ----------
    client : int
    verdict : str
        `JOIN`, `STAY`, `ONE` or `UNSURE`.
    strategy : str
        Whose model it should use: the best on its validation samples among those that are surely
        better than its own alone; where none is, the best of all, its own if equal. So it never
        uses a model that its samples say is worse than the one that it has alone.
    cluster : int
        Its cluster there.
    validation_samples : int
    compared : str
        The strategy whose gain over staying alone is shown: `strategy`, or, if that is `ALONE`,
        the best other one.
    gain : tuple of three float
        Of that strategy over staying alone, with the interval that its verdict rests on.
    candidates : dict of four float
        Of each strategy: its gain over staying alone, with its interval, and the p-value.
    gain_over_single : tuple of three float, optional
        Of `strategy` over one model for all, if that was trained and is another one.
    samples_needed : int, optional
        If nobody can tell: how many validation samples would, if the gain is as seen.
    """

    __pydantic_config__ = DASHES
    client: Annotated[int, Field(ge=0)]
    verdict: Word
    strategy: Text
    cluster: int
    validation_samples: int
    compared: Text
    gain: Gain
    candidates: dict[Text, Candidate]
    gain_over_single: Annotated[Gain | None, IF_ANY] = None
    samples_needed: Annotated[int | None, IF_ANY] = None

    @property
    def model(self) -> str:
        """Return whose model it should use: the strategy, and which cluster's there."""
        system = SYSTEMS.get(self.strategy)
        is_one = system is not None and system.clustering in (SingleCluster, OwnCluster)
        return self.strategy if is_one else f"{self.strategy} / {self.cluster}"


@dataclass(frozen=True, kw_only=True)
class SeedVerdicts:
    """The verdicts of one seed.

    Attributes
    ----------
    seed : int
    clients : list of Verdict
    told_among_all : int
        How many clients would be told anything if, of those, at most 5 % were to be wrong on
        average (Benjamini and Hochberg's false discovery rate), however many clients there are.
    means : dict of three float
        By strategy, the mean over clients of its gain over staying alone, with its interval.
    over_single : dict of three float
        The same over one model for all, of strategies that are neither.
    """

    __pydantic_config__ = DASHES
    seed: int
    clients: list[Verdict]
    told_among_all: Annotated[int, Field(ge=0)]
    means: dict[Text, Gain]
    over_single: dict[Text, Gain] = field(default_factory=dict)

    def said(self, metric: Metric) -> str:
        """Return how many clients should do what, and what strategies gain on average."""
        counts = Counter(one.verdict for one in self.clients)
        words = ", ".join(f"{word}: {counts[word]}" for word in WORDS if counts[word])
        gains = _listed(metric, self.means)
        if told := len(self.clients) - counts[UNSURE]:
            words += (
                f" ({self.told_among_all} of {told} would be told if, of all clients that are "
                f"told, {ERROR:.0%} were to be wrong)"
            )
        mean = f" On average over clients, {_over_alone(metric)}: {gains}." if gains else ""
        if self.over_single:
            mean += f" Over one model for all: {_listed(metric, self.over_single)}."
        worse = [name for name, (_, _, high) in self.over_single.items() if high < 0]
        if worse:
            mean += f" So one model for all serves clients better than {' and '.join(worse)}."
        return f"Of {len(self.clients):,} clients: {words}.{mean}"


def _listed(metric: Metric, gains: Mapping[str, Gain]) -> str:
    return "; ".join(f"{name} {gain_text(metric, gain)}" for name, gain in gains.items())


def _over_alone(metric: Metric) -> str:
    return f"{unit_of(metric)} {'over' if metric.is_share else 'below'} alone"


def unit_of(metric: Metric) -> str:
    """Return in what gains are: of a number, in its mean absolute error, whatever tables show."""
    return "points" if metric.is_share else OF_A_NUMBER.others[0].title


def gain_text(metric: Metric, gain: Gain | None) -> str:
    """Return a gain with its interval.

    Examples
    --------
    >>> from fl_core.metrics import OF_CLASSES
    >>> gain_text(OF_CLASSES.main, (0.125, -0.01, 0.26))
    '+12 (−1 to +26)'
    >>> gain_text(OF_CLASSES.main, (-0.002, -0.125, 0.003))
    '+0 (−12 to +0)'
    """
    if gain is None:
        return "–"
    factor, digits, form = (100, 0, "+.0f") if metric.is_share else (1, 12, "+.3g")
    rounded = [round(factor * value, digits) + 0.0 for value in gain]  # −0 is 0
    said = [f"{value:{form}}".replace("-", "−") for value in rounded]
    return f"{said[0]} ({said[1]} to {said[2]})"


def verdict_columns(metric: Metric) -> list[str]:
    """Return what the columns of `verdict_row` are called."""
    over = [_over_alone(metric), "over one for all"]
    return ["client", "verdict", "model / cluster", *over, "samples (needed)"]


def verdict_row(one: Verdict, name: str, metric: Metric) -> list[str]:
    """Return what a table says of a client: the last three columns are numbers.

    Where its own model is the best one, the first of them says which other one it is compared with.
    """
    over_alone = gain_text(metric, one.gain)
    if one.compared != one.strategy:
        over_alone = f"{one.compared}: {over_alone}"
    return [
        *(name, one.verdict, one.model, over_alone, gain_text(metric, one.gain_over_single)),
        f"{one.validation_samples:,}"
        + ("" if one.samples_needed is None else f" ({one.samples_needed:,})"),
    ]
