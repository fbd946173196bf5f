"""A verdict for each client: what it is, and how people read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fl_app.results.fields import DASHED_KEYS, OMIT_EMPTY, Finite, Text
from fl_core.metrics import OF_A_NUMBER, Metric
from fl_core.text import rounded
from strategies.catalogue import SYSTEMS
from strategies.clusterings.clustering import ClusterPerClient, SingleCluster

Word = Literal["join", "no difference that matters", "stay alone", "cannot tell yet"]
JOIN: Word = "join"
SAME: Word = "no difference that matters"
STAY: Word = "stay alone"
UNSURE: Word = "cannot tell yet"
NOT_COMPARED = "nothing was compared"
WORDS = (JOIN, SAME, STAY, UNSURE)

SURE = 0.975
"""A client joins if the probability that the model is better for it is at least this."""
MARGIN = 0.01
"""A gain matters if it is larger: a point of accuracy, or one per cent of the error."""

EXPLANATION = (
    "Gains are measured on each client's validation samples, on which no client trained. Each "
    "estimate also uses what the other clients gain, so it is closer to their mean than what was "
    f"observed. A client joins if it gains with a probability of at least {SURE:.1%}. Few of those "
    "that join lose by it; for a single client there is no promise. Beside `cannot tell yet` "
    "stands the best model so far."
)

_MOST_NAMED = 5  # clients


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What a client gains by a strategy over staying alone.

    In accuracy, in [−1, 1], or by how much its mean absolute error is lower, in its unit.
    """

    mean: Finite  # expected
    low: Finite  # of the interval that has the gain with a probability of 95 %
    high: Finite
    observed: Finite  # on the client's validation samples
    probability: Annotated[float, Field(ge=0, le=1)]  # that the gain is positive


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a client should do, as in summary.json."""

    __pydantic_config__ = DASHED_KEYS
    client: Annotated[int, Field(ge=0)]
    verdict: Word
    strategy: Text  # whose model it should use
    cluster: int  # its cluster there
    validation_samples: int
    compared: Text  # the strategy that is best for it; it differs from `strategy` if that is local
    gains: dict[Text, Gain]  # by strategy
    samples_needed: Annotated[int | None, OMIT_EMPTY] = None  # for a decision, if there is none

    @property
    def gain(self) -> Gain:
        """Return the gain on which the verdict rests."""
        return self.gains[self.compared]

    @property
    def model(self) -> str:
        """Return whose model the client should use: the strategy, and which cluster's there."""
        system = SYSTEMS.get(self.strategy)
        is_one = system is not None and system.clustering in (SingleCluster, ClusterPerClient)
        return self.strategy if is_one else f"{self.strategy} / {self.cluster}"


@dataclass(frozen=True, kw_only=True)
class SeedVerdicts:
    """The verdicts of one seed, and by strategy the mean gain over all possible clients.

    A mean has its ends of an interval of 95 % beside it.
    """

    seed: int
    clients: list[Verdict]
    means: dict[Text, tuple[Finite, Finite, Finite]]

    def headline(self, metric: Metric, names: Sequence[str]) -> str:
        """Return how many clients should do what, and what strategies gain on average."""
        by_word = {word: [one for one in self.clients if one.verdict == word] for word in WORDS}
        joining = by_word[JOIN]
        text = f"{len(joining):,} of {len(self.clients):,} clients should join"
        if joining:
            gain = sum(one.gain.mean for one in joining) / len(joining)
            wrong = sum(1 - one.gain.probability for one in joining)
            text += f": they gain {number_text(metric, gain)} {unit_of(metric)} on average"
            text += f", and {wrong:.1f} of them are expected to lose"
        sentences = [text]
        for word, start in ((SAME, "No difference that matters"), (STAY, "Should stay alone")):
            if by_word[word]:
                sentences.append(f"{start}: {_named(by_word[word], names)}")
        if by_word[UNSURE]:
            sentences.append(f"Cannot tell yet: {_named(by_word[UNSURE], names)}")
        gains = "; ".join(
            f"{name} {interval_text(metric, mean)}"
            for name, mean in sorted(self.means.items(), key=lambda item: -item[1][0])
        )
        sentences.append(f"Mean of clients like these, {column_title(metric)}: {gains}")
        return ". ".join(sentences) + "."


def _named(verdicts: Sequence[Verdict], names: Sequence[str]) -> str:
    """Return the names of few clients, and how many they are of many."""
    if len(verdicts) > _MOST_NAMED:
        return f"{len(verdicts):,} clients"
    return ", ".join(names[one.client] for one in verdicts)


def unit_of(metric: Metric) -> str:
    """Return in what gains are: of a number, in its mean absolute error, whatever tables show."""
    return "points" if metric.is_share else OF_A_NUMBER.others[0].title


def column_title(metric: Metric) -> str:
    """Return how a column of gains is called."""
    return f"{unit_of(metric)} {'over' if metric.is_share else 'below'} alone"


def number_text(metric: Metric, gain: float) -> str:
    """Return a gain with its sign, in points or in the unit of the number.

    Examples
    --------
    >>> from fl_core.metrics import OF_CLASSES
    >>> number_text(OF_CLASSES.main, 0.125), number_text(OF_CLASSES.main, -0.0001)
    ('+12.5', '+0.0')
    """
    factor, digits, form = (100, 1, "+.1f") if metric.is_share else (1, 12, "+.3g")
    return f"{rounded(factor * gain, digits) + 0.0:{form}}".replace("-", "−")  # −0 is 0


def interval_text(metric: Metric, gain: tuple[float, float, float]) -> str:
    """Return a gain and the ends of its interval.

    Examples
    --------
    >>> from fl_core.metrics import OF_CLASSES
    >>> interval_text(OF_CLASSES.main, (0.125, -0.01, 0.26))
    '+12.5 (−1.0 to +26.0)'
    """
    mean, low, high = (number_text(metric, number) for number in gain)
    return f"{mean} ({low} to {high})"


def verdict_columns(metric: Metric) -> list[str]:
    """Return what the columns of `verdict_row` are called."""
    return [
        *("client", "verdict", "model / cluster", column_title(metric)),
        *("P(gain)", "samples (needed)"),
    ]


def verdict_row(one: Verdict, name: str, metric: Metric) -> list[str]:
    """Return what a table says of a client: the last three columns are numbers.

    Where it should use its local model, the first of them says which other one was compared.
    """
    gain = interval_text(metric, (one.gain.mean, one.gain.low, one.gain.high))
    needed = "" if one.samples_needed is None else f" ({one.samples_needed:,})"
    return [
        *(name, one.verdict, one.model),
        gain if one.compared == one.strategy else f"{one.compared}: {gain}",
        f"{100 * one.gain.probability:.1f} %",
        f"{one.validation_samples:,}{needed}",
    ]
