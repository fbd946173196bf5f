"""One scale for all columns: what is subtracted from samples, and by what they are divided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.json_records import STRICT


class ColumnStatistics(NamedTuple):
    """The statistics of some rows, from which those of all rows can be computed.

    Attributes
    ----------
    num_rows : int
    mean, deviation : NDArray[np.float64], shape (columns,)
        Each column's; the deviation is that of all rows (divided by n), and 0 exactly where all
        are the same.
    is_flag : NDArray[np.bool_], shape (columns,)
        Whether a column has nothing but zeros and ones.
    """

    num_rows: int
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    is_flag: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor | None = None) -> ColumnStatistics:
        """Return the statistics of rows, shape (n, columns, …), at least one.

        Of numbers to predict, float32 (n,), the last column has the statistics.
        """
        values = rows.numpy().astype(np.float64)
        values = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
        constant = values.min(axis=0) == values.max(axis=0)
        found = cls(
            len(rows),
            np.where(constant, values[0], values.mean(axis=0)),
            np.where(constant, 0.0, values.std(axis=0)),
            np.array(np.isin(values, (0, 1)).all(axis=0)),
        )
        if labels is None or labels.dtype != torch.float32:
            return found
        target = cls.of(labels[:, None])
        return cls(
            len(rows),
            np.append(found.mean, target.mean),
            np.append(found.deviation, target.deviation),
            np.append(found.is_flag, target.is_flag),
        )

    @classmethod
    def merged(cls, parts: Sequence[ColumnStatistics]) -> ColumnStatistics:
        """Return the statistics of the rows of all parts together, of which each counts once.

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
    """What samples, and a number to predict, lose, and by what they are then divided.

    Attributes
    ----------
    mean, deviation : tuple of float
        One for each column: of samples with more than one axis, for each entry of the first one.
    target_mean, target_deviation : float
        Those of the number to predict; 0 and 1 where classes are.

    Raises
    ------
    ValueError
        If they are not finite, not as many, or a deviation is not above 0.
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
    def of(cls, found: ColumnStatistics, *, is_regression: bool = False) -> Scaling:
        """Return it for the statistics of columns, of which the last may be a number to predict.

        The deviation counts as 1 where a column has one value, and where it has nothing but zeros
        and ones: a rare category would become a huge number.
        """
        divisor = np.where(found.is_flag | (found.deviation == 0), 1.0, found.deviation)
        mean, deviation = found.mean.tolist(), divisor.tolist()
        if not is_regression:
            return cls(tuple(mean), tuple(deviation))
        return cls(tuple(mean[:-1]), tuple(deviation[:-1]), mean[-1], deviation[-1])

    def samples(self, rows: Tensor) -> Tensor:
        """Return samples, float32 (n, columns, …), on this scale."""
        shape = (-1, *[1] * (rows.dim() - 2))
        mean, deviation = (
            torch.tensor(one, dtype=torch.float64, device=rows.device).reshape(shape)
            for one in (self.mean, self.deviation)
        )
        return ((rows.double() - mean) / deviation).float()

    def targets(self, labels: Tensor) -> Tensor:
        """Return numbers to predict, float32 (n,), on this scale; classes as they are."""
        if labels.dtype != torch.float32:
            return labels
        return ((labels.double() - self.target_mean) / self.target_deviation).float()

    def predicted(self, numbers: Tensor) -> Tensor:
        """Return numbers of this scale in their own unit."""
        return (numbers.double() * self.target_deviation + self.target_mean).float()
