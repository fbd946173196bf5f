"""What says how well a model does: shares of classes, or errors in the unit of a number."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl_core.messages import protocol


@dataclass(frozen=True)
class Metric:
    """One measure of a client's test.

    Attributes
    ----------
    name : str
        On the wire, and in files.
    title : str
        To people.
    low, high : float
        Between which it is, both included; infinity is not.
    is_share : bool
        Whether people read it in percent.
    lower_is_better : bool
    """

    name: str
    title: str
    low: float = 0.0
    high: float = math.inf
    is_share: bool = False
    lower_is_better: bool = False

    @property
    def heading(self) -> str:
        """Return its title at the beginning of a sentence."""
        return self.title[0].upper() + self.title[1:]

    @property
    def head(self) -> str:
        """Return what a column of it is called."""
        return f"{self.title} %" if self.is_share else self.title

    def head_of(self, test: str) -> str:
        """Return what a column of it is called that is of one test; a single test has its name."""
        return self.head if test == self.name else f"{test}{self.sign}"

    def in_test(self, test: str) -> Metric:
        """Return it with the test in its title, for what shows one of two; "": for what has one."""
        return self if test in ("", self.name) else replace(self, title=f"{self.title} {test}")

    @property
    def sign(self) -> str:
        """Return what stands behind a value that is `shown`."""
        return " %" if self.is_share else ""

    @property
    def extreme(self) -> str:
        """Return what the worst of several is called."""
        return "highest" if self.lower_is_better else "lowest"

    def shown(self, value: float) -> str:
        """Return a value for people: of shares, percent without the sign; 52346, not 5.235e+04."""
        if self.is_share:
            return f"{100 * value:.1f}"
        whole = 9_999.5 <= abs(value) < 1e7
        return f"{value:.0f}" if whole else f"{value:#.4g}".rstrip(".")

    def with_sign(self, value: float) -> str:
        """Return a value for people, by itself."""
        return f"{self.shown(value)}{self.sign}"

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst of some values, of which there is one."""
        return (max if self.lower_is_better else min)(values)

    @property
    def bounds(self) -> str:
        """Say in words, after "a number", between what it is."""
        if self.is_share:
            return "in [0, 1]"
        if math.isinf(self.low) and math.isinf(self.high):
            return "that is finite"
        return f"of at most {self.high:g}" if math.isinf(self.low) else f"of at least {self.low:g}"

    def allows(self, values: NDArray[np.float64]) -> bool:
        """Return whether all values that are known can be such."""
        known = values[np.isfinite(values)]
        return bool(((known >= self.low) & (known <= self.high)).all())


@dataclass(frozen=True)
class Metrics:
    """What is measured where a target is of a kind: the first counts, the others stand beside it.

    Attributes
    ----------
    main : Metric
        By which strategies are compared; every client that is tested sends it.
    others : tuple of Metric
    own : str
        What a metric of one's own is called, the last of the others; empty: there is none.
    """

    main: Metric
    others: tuple[Metric, ...]
    own: str = ""

    @property
    def all(self) -> tuple[Metric, ...]:
        """Return all of them, the main one first."""
        return (self.main, *self.others)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """Return the metric of one's own, if there is one."""
        return self.others[-1:] if self.own else ()

    @property
    def is_regression(self) -> bool:
        """Return whether what is predicted is a number."""
        return self.main == OF_A_NUMBER.main


def _share(name: str) -> Metric:
    return Metric(name, name.replace("-", " "), high=1.0, is_share=True)


OF_CLASSES = Metrics(
    _share(protocol.ACCURACY), (_share(protocol.MACRO_F1), _share(protocol.BALANCED_ACCURACY))
)
OF_A_NUMBER = Metrics(
    Metric(protocol.RMSE, "RMSE", lower_is_better=True),
    (
        Metric(protocol.MAE, "MAE", lower_is_better=True),
        Metric(protocol.R2, "R²", low=-math.inf, high=1.0),
    ),
)


def metrics_of(*, is_regression: bool, own: str = "") -> Metrics:
    """Return what is measured of a number, or else of classes; and one's own metric, if named."""
    usual = OF_A_NUMBER if is_regression else OF_CLASSES
    if not own:
        return usual
    measured = Metric(protocol.OWN_METRIC, own, low=-math.inf)
    return replace(usual, others=(*usual.others, measured), own=own)


def metrics_in(said: Container[str]) -> Metrics:
    """Return what was measured where results have these keys: a number's name its main metric."""
    return metrics_of(is_regression=OF_A_NUMBER.main.name in said)
