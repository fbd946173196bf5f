"""The scaler of tables: column statistics, the scaling that follows from them, and its use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.samples import Split, check_no_pixels
from fl_core.data.settings import ALL_SITES, SITE
from fl_core.json_records import STRICT
from fl_core.text import listed, printable

_COMPARED = 10_000  # rows, to see whether values stay different
_HALF = 2**10  # of the last bits of a float64 that are rounding: 41 of 52 remain, 12 digits


class ColumnStatistics(NamedTuple):
    """Statistics of some rows. Those of several sites can be merged."""

    num_rows: int
    mean: NDArray[np.float64]  # (columns,)
    deviation: NDArray[np.float64]  # (columns,), divided by n; exactly 0 where a column is constant
    is_flag: NDArray[np.bool_]  # (columns,): nothing but zeros and ones

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor | None = None) -> ColumnStatistics:
        """Compute the statistics of at least one row, shape (n, columns, …).

        Labels with fractions, shape (n,), are numbers to predict: they count as the last column.
        """
        values = rows.numpy().astype(np.float64)
        tables = [np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])]
        if labels is not None and labels.is_floating_point():
            tables.append(labels.numpy().astype(np.float64)[:, None])
        pairs = [(table, table.min(axis=0) == table.max(axis=0)) for table in tables]
        return cls(
            len(rows),
            np.concatenate([np.where(c, table[0], table.mean(axis=0)) for table, c in pairs]),
            np.concatenate([np.where(c, 0.0, table.std(axis=0)) for table, c in pairs]),
            np.concatenate([np.isin(table, (0, 1)).all(axis=0) for table in tables]),
        )

    @classmethod
    def merged(cls, parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
        """Return the statistics of the rows of all parts together; each row counts once.

        Source: Chan, Golub and LeVeque, The American Statistician 37 (1983), equation 2.1.
        """
        count = np.array([part.num_rows for part in parts], np.float64)
        share = count / count.sum()
        means, deviations = (np.stack([part[which] for part in parts]) for which in (1, 2))
        constant = (deviations == 0).all(axis=0) & (means == means[0]).all(axis=0)
        mean = np.where(constant, means[0], share @ means)
        deviation = np.sqrt(share @ (deviations**2 + (means - mean) ** 2))
        is_flag = np.array(np.stack([part.is_flag for part in parts]).all(axis=0))
        return cls(int(count.sum()), mean, deviation, is_flag)


@dataclass(frozen=True)
class Scaling:
    """A fitted scaler: subtracts a mean from each column and divides by a deviation.

    Of samples with more axes, a column is an entry of the first one: the channel of a series.
    """

    __pydantic_config__ = STRICT
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    target_mean: float = 0.0
    target_deviation: float = 1.0

    def __post_init__(self) -> None:
        numbers = (*self.mean, *self.deviation, self.target_mean, self.target_deviation)
        if not all(map(math.isfinite, numbers)):
            raise ValueError("means and deviations must be finite numbers")
        if len(self.mean) != len(self.deviation) or not self.mean:
            raise ValueError(f"{len(self.mean)} means and {len(self.deviation)} deviations")
        if min(*self.deviation, self.target_deviation) <= 0:
            raise ValueError("deviations must be above 0")

    @classmethod
    def fit(cls, statistics: ColumnStatistics, *, is_regression: bool = False) -> Scaling:
        """Return the scaler for columns; with `is_regression`, the last one is the target.

        Constant columns, and those of zeros and ones, count as of deviation 1: rare categories
        would become huge numbers.
        """
        is_unscaled = statistics.is_flag | (statistics.deviation == 0)
        mean = statistics.mean.tolist()
        deviation = np.where(is_unscaled, 1.0, statistics.deviation).tolist()
        if not is_regression:
            return cls(tuple(mean), tuple(deviation))
        return cls(tuple(mean[:-1]), tuple(deviation[:-1]), mean[-1], deviation[-1])

    def transform(self, rows: Tensor) -> Tensor:
        """Scale samples, floats (n, columns, …), in float64; return float32."""
        shape = (-1, *[1] * (rows.dim() - 2))
        mean, deviation = (
            torch.tensor(one, dtype=torch.float64, device=rows.device).reshape(shape)
            for one in (self.mean, self.deviation)
        )
        return ((rows.double() - mean) / deviation).float()

    def transform_targets(self, labels: Tensor) -> Tensor:
        """Scale numbers to predict, floats (n,), to float32; return classes unchanged."""
        if not labels.is_floating_point():
            return labels
        return ((labels.double() - self.target_mean) / self.target_deviation).float()

    def restore_targets(self, numbers: Tensor) -> Tensor:
        """Return predicted numbers in their original unit, float64."""
        return numbers.double() * self.target_deviation + self.target_mean

    def transform_split(self, split: Split, column_names: Sequence[str] = ()) -> Split:
        """Scale all samples and targets of a device."""
        return _checked(split, split.mapped(self.transform, self.transform_targets), column_names)


def unscaled_split(split: Split, column_names: Sequence[str] = ()) -> Split:
    """Return a device's samples and targets as float32, or as pixels and classes."""
    return _checked(split, split.mapped(_as_float32, _as_float32), column_names)


def _as_float32(values: Tensor) -> Tensor:
    return values.float() if values.is_floating_point() else values


def _checked(before: Split, after: Split, column_names: Sequence[str]) -> Split:
    """Refuse a column of floats if float32 leaves half of its values that differ in 12 digits."""
    for old, new, what, names in (
        (before.train_samples, after.train_samples, "column", column_names),
        (before.train_labels, after.train_labels, "the target", before.class_names),
    ):
        pairs = zip(_columns(old), _columns(new), strict=True) if old.is_floating_point() else ()
        for column, (values, shortened) in enumerate(pairs):
            # Without the sign of zero, in whole units of the last bit that counts.
            bits = (values.astype(np.float64) + 0.0).view(np.int64)
            count, left = len(np.unique((bits + _HALF) // (2 * _HALF))), len(np.unique(shortened))
            if 2 * left <= count:
                name = printable(names[column]) if names else str(column)
                raise ValueError(
                    f"{what} {name} has {count:,} different values, of which float32, the type "
                    f"that models compute in, leaves {left:,}: set standardise to {SITE} or "
                    f"{ALL_SITES}, which scales in float64; correct values that are far from all "
                    "others; or leave the column out."
                )
    return after


def _columns(values: Tensor) -> NDArray[Any]:
    """Return some of the values of each column, shape (columns, m), of (n, columns, …) or (n,)."""
    some = values[:: max(1, len(values) // _COMPARED)].numpy()
    columns = np.moveaxis(some[:, None] if some.ndim == 1 else some, 1, 0)
    columns = columns.reshape(len(columns), -1)
    return columns[:, :: max(1, columns.shape[1] // _COMPARED)]


def constant_notes(
    sites: Sequence[ColumnStatistics], num_columns: int, names: Sequence[str], scope: str
) -> list[str]:
    """Return a note that lists the constant ones of the first columns; nothing without any.

    With `scope` "site", a category that is 0 or 1 in all rows of one site is normal.
    """
    constant: set[int] = set()
    for statistics in sites:
        is_constant = statistics.deviation == 0
        if scope == SITE:
            is_constant &= ~np.isin(statistics.mean, (0, 1))
        constant.update(np.flatnonzero(is_constant[:num_columns]).tolist())
    if not constant:
        return []
    shown = [printable(names[column]) if names else str(column) for column in sorted(constant)]
    where = "at some site" if scope == SITE else "in all training rows"
    return [f"constant {where}: {listed(shown, 10, ', ')}; standardised by a deviation of 1"]


def standardise_site(
    split: Split, training: NDArray[np.bool_], column_names: Sequence[str] = ()
) -> tuple[Split, Scaling, list[str]]:
    """Standardise a device's samples by the rows that train, a mask (n,); return notes, too."""
    check_no_pixels("a device", SITE, split.train_samples.is_floating_point())
    statistics = ColumnStatistics.of(split.train_samples[training], split.train_labels[training])
    scaling = Scaling.fit(statistics, is_regression=split.train_labels.is_floating_point())
    notes = constant_notes([statistics], len(scaling.mean), column_names, SITE)
    return scaling.transform_split(split, column_names), scaling, notes
