"""Measures of a model: shares of classes, or errors in the unit of a number."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fl_core.messages import protocol
from fl_core.text import rounded


@dataclass(frozen=True)
class Metric:
    """One measure of a client's test."""

    name: str  # in messages and files
    title: str  # in texts and tables
    low: float = 0.0
    high: float = math.inf  # included, but infinity is not
    is_share: bool = False  # shown in percent
    lower_is_better: bool = False

    @property
    def heading(self) -> str:
        """Return the title with a capital letter."""
        return self.title[0].upper() + self.title[1:]

    @property
    def head(self) -> str:
        """Return the head of its column."""
        return f"{self.title} %" if self.is_share else self.title

    def head_of(self, test: str) -> str:
        """Return the head of its column for one of two tests; a single test has its name."""
        return self.head if test == self.name else f"{test}{self.unit_suffix}"

    def in_test(self, test: str) -> Metric:
        """Return the metric with one of two tests in its title; without a test, unchanged."""
        return self if test in ("", self.name) else replace(self, title=f"{self.title} {test}")

    @property
    def unit_suffix(self) -> str:
        """Return the unit behind a value that is `shown`."""
        return " %" if self.is_share else ""

    @property
    def extreme(self) -> str:
        """Return the word for the worst of several."""
        return "highest" if self.lower_is_better else "lowest"

    def shown(self, value: float) -> str:
        """Return a value as text: of shares, percent without the sign; 52346, not 5.235e+04."""
        if self.is_share:
            return f"{rounded(100 * value, 1):.1f}"
        whole = 9_999.5 <= abs(value) < 1e7
        return f"{value:.0f}" if whole else f"{value:#.4g}".rstrip(".")

    def with_unit(self, value: float) -> str:
        """Return a value as text with its unit."""
        return f"{self.shown(value)}{self.unit_suffix}"

    def worst(self, values: Iterable[float]) -> float:
        """Return the worst of at least one value."""
        return (max if self.lower_is_better else min)(values)

    @property
    def bounds(self) -> str:
        """Return the bounds in words, after "a number"."""
        if self.is_share:
            return "in [0, 1]"
        if math.isinf(self.low) and math.isinf(self.high):
            return "that is finite"
        return f"of at most {self.high:g}" if math.isinf(self.low) else f"of at least {self.low:g}"

    def allows(self, values: NDArray[np.float64]) -> bool:
        """Return whether all finite values are within the bounds."""
        finite = values[np.isfinite(values)]
        return bool(((finite >= self.low) & (finite <= self.high)).all())


@dataclass(frozen=True)
class Metrics:
    """The metrics of classes, or of a number to predict."""

    main: Metric  # compares strategies; every tested client sends it
    others: tuple[Metric, ...]
    user_metric: str = ""  # the name of a user-defined one, the last of the others; empty: none

    @property
    def all(self) -> tuple[Metric, ...]:
        """Return all metrics, the main one first."""
        return (self.main, *self.others)

    @property
    def measured(self) -> tuple[Metric, ...]:
        """Return the user-defined metric, if there is one."""
        return self.others[-1:] if self.user_metric else ()

    @property
    def is_regression(self) -> bool:
        """Return whether they are those of a number to predict."""
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


def metrics_of(*, is_regression: bool, user_metric: str = "") -> Metrics:
    """Return the metrics of a number or of classes, and a user-defined one, if named."""
    usual = OF_A_NUMBER if is_regression else OF_CLASSES
    if not user_metric:
        return usual
    measured = Metric(protocol.USER_METRIC, user_metric, low=-math.inf)
    return replace(usual, others=(*usual.others, measured), user_metric=user_metric)


def metrics_in(keys: Container[str]) -> Metrics:
    """Return the metrics of results with these keys."""
    return metrics_of(is_regression=OF_A_NUMBER.main.name in keys)
