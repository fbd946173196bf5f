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

Moments = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]
"""Each column's mean and deviation, and whether it has one value only."""


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
    def of(cls, samples: Moments, targets: Moments | None = None) -> Scaling:
        """Return it for moments of samples, and of numbers to predict, if they are such."""
        found = tuple(map(float, samples[0])), tuple(map(float, samples[1]))
        if targets is None:
            return cls(*found)
        return cls(*found, float(targets[0][0]), float(targets[1][0]))

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


class Tally(NamedTuple):
    """What somebody's rows come to, of which that of all rows can be made.

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


def tally(rows: Tensor) -> Tally:
    """Return what rows come to.

    Parameters
    ----------
    rows : Tensor, shape (n, columns, …)
        One row at least.
    """
    values = rows.numpy().astype(np.float64)
    values = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    alike = values.min(axis=0) == values.max(axis=0)
    return Tally(
        len(rows),
        np.where(alike, values[0], values.mean(axis=0)),
        np.where(alike, 0.0, values.std(axis=0)),
        np.array(np.isin(values, (0, 1)).all(axis=0)),
    )


def together(tallies: Sequence[Tally]) -> Moments:
    """Return the moments of all rows together, of which each counts once.

    The deviation counts as 1 where it is 0, and where there is nothing but zeros and ones: a rare
    category would become a huge number.

    Source: Chan, Golub and LeVeque, The American Statistician 37 (1983), equation 2.1.
    """
    share = np.array([one.num_rows for one in tallies], np.float64)
    share /= share.sum()
    means, deviations = (np.stack([one[which] for one in tallies]) for which in (1, 2))
    alike = (deviations == 0).all(axis=0) & (means == means[0]).all(axis=0)
    mean = np.where(alike, means[0], share @ means)
    deviation = np.sqrt(share @ (deviations**2 + (means - mean) ** 2))
    is_flag = np.stack([one.is_flag for one in tallies]).all(axis=0)
    return mean, np.where(is_flag | (deviation == 0), 1.0, deviation), alike


def moments(rows: Tensor) -> Moments:
    """Return each column's mean and deviation, and which columns have one value only.

    As in `together`, of rows of shape (n, columns, …).
    """
    return together([tally(rows)])


def target_moments(labels: Tensor) -> Moments | None:
    """Return the moments of numbers to predict, float32 (n,); of classes, there are none."""
    return moments(labels[:, None]) if labels.dtype == torch.float32 else None
