"""A verdict for each client: what it is, and how people read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fl_app.results.fields import DASHED_KEYS, OMIT_EMPTY, Finite, Text
from fl_core.metrics import OF_A_NUMBER, Metric
from fl_core.text import rounded
from strategies.catalogue import CLUSTERINGS, SYSTEMS
from strategies.clusterings.clustering import Clustering, ClusterPerClient, SingleCluster

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
    "stands the best model so far. "
    "Of samples in order of time the last ones validate; the future may differ."
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
        is_one = _clustering_of(self.strategy) in (SingleCluster, ClusterPerClient)
        return self.strategy if is_one else f"{self.strategy} / {self.cluster}"


@dataclass(frozen=True, kw_only=True)
class SeedVerdicts:
    """The verdicts of one seed; a mean gain has its ends of an interval of 95 % beside it."""

    __pydantic_config__ = DASHED_KEYS
    seed: int
    clients: list[Verdict]
    means: dict[Text, tuple[Finite, Finite, Finite]]  # by strategy, of all possible clients
    no_difference: Annotated[bool | None, OMIT_EMPTY] = None  # that matters, to sites like these
    mean_of_joining: Annotated[tuple[Finite, Finite, Finite] | None, OMIT_EMPTY] = None

    def headline(self, metric: Metric, names: Sequence[str]) -> str:
        """Return how many sites gain by training with others, how much, and what others do.

        `names` are those of the clients, by their indices.
        """
        joining, same, staying, unsure = (
            [one for one in self.clients if one.verdict == word] for word in WORDS
        )
        count = f"{len(joining):,} of {len(self.clients):,} sites"
        if self.mean_of_joining is None:
            best = max(self.means, key=lambda name: self.means[name])
            gain = f"{best} brings {gain_words(metric, self.means[best])}"
            sentences = [f"{count} surely gain by training with others", gain]
            if self.no_difference:
                sentences[0] = "Training with others makes no difference that matters"
        else:
            verb = "gains" if len(joining) == 1 else "gain"
            gain = gain_words(metric, self.mean_of_joining)
            sentences = [f"{count} {verb} by training {_with_whom(joining)}: {gain}"]
        if same:
            sentences.append(f"For {len(same):,} it makes no difference")
        if staying:
            sentences.append(f"{_named(staying, names)}: stay alone")
        if unsure:
            sentences.append(f"{_named(unsure, names)}: cannot tell yet")
        return ". ".join(sentences) + "."

    def details(self, metric: Metric) -> str:
        """Return how many of those that join are expected to lose, and strategies' mean gains."""
        gains = "; ".join(
            f"{name} {interval_text(metric, mean)}"
            for name, mean in sorted(self.means.items(), key=lambda item: -item[1][0])
        )
        title = f"{unit_of(metric)} {'over' if metric.is_share else 'below'} alone"
        text = f"Mean gain of sites like these, {title}: {gains}."
        joining = [one for one in self.clients if one.verdict == JOIN]
        if joining:
            wrong = sum(1 - one.gain.probability for one in joining)
            text += f" Of the {len(joining):,} that should join, {wrong:.1f} are expected to lose."
        return text


def _clustering_of(strategy: str) -> type[Clustering] | None:
    """Return a strategy's clustering, without importing what a results folder names."""
    if strategy in SYSTEMS:
        return SYSTEMS[strategy].clustering
    return CLUSTERINGS.get(strategy.partition("+")[0])


def _with_whom(joining: Sequence[Verdict]) -> str:
    """Return whom clients train with, by the strategies that they should use."""
    with_all = {_clustering_of(one.strategy) is SingleCluster for one in joining}
    if len(with_all) == 2:
        return "with others"
    return "with all others" if with_all == {True} else "in their group"


def _named(verdicts: Sequence[Verdict], names: Sequence[str]) -> str:
    """Return the names of few clients, and how many they are of many."""
    if len(verdicts) > _MOST_NAMED:
        return f"{len(verdicts):,} sites"
    return ", ".join(names[one.client] for one in verdicts)


def unit_of(metric: Metric) -> str:
    """Return in what gains are: of a number, in its mean absolute error, whatever tables show."""
    return "points" if metric.is_share else OF_A_NUMBER.others[0].title


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


def gain_words(metric: Metric, gain: tuple[float, float, float]) -> str:
    """Return a mean gain with the ends of its interval, as a sentence has it.

    Examples
    --------
    >>> from fl_core.metrics import OF_A_NUMBER, OF_CLASSES
    >>> gain_words(OF_CLASSES.main, (0.0812, 0.06, 0.102))
    '8.1 points on average (6.0 to 10.2)'
    >>> gain_words(OF_A_NUMBER.main, (0.3, -0.1, 0.7))
    'an MAE lower by 0.3 on average (−0.1 to 0.7)'
    """
    mean, low, high = (number_text(metric, number).removeprefix("+") for number in gain)
    unit = unit_of(metric)
    middle = f"{mean} {unit}" if metric.is_share else f"an {unit} lower by {mean}"
    return f"{middle} on average ({low} to {high})"


VERDICT_COLUMNS = ["site", "verdict", "P(gain)", "model to use", "samples to decide"]
NUMBER_COLUMNS = (2, 4)


def verdict_row(one: Verdict, name: str) -> list[str]:
    """Return the row of a client under `VERDICT_COLUMNS`."""
    needed = "" if one.samples_needed is None else f"{one.samples_needed:,}"
    probability = f"{100 * one.gain.probability:.1f} %"
    return [
        *(name, one.verdict, probability, one.model),
        needed or ("–" if one.verdict == UNSURE else ""),
    ]
