"""Columns of one scale: without their mean and by their deviation, of training rows alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.settings import NOBODY, SITE
from fl_core.partitions.partition import Partition
from fl_core.text import listed, printable

logger = logging.getLogger(__name__)


def standardised(
    data: Dataset,
    partition: Partition,
    whose: str,
    validation: Sequence[NDArray[np.int64]] = (),
) -> Dataset:
    """Return a data set whose columns are standardised by the training rows that clients hold.

    Of samples with more than one axis, a column is the first: the channel of a series.

    Parameters
    ----------
    data : Dataset
        Of float32 samples.
    partition : Partition
        Who holds which.
    whose : {"none", "site", "all"}
        Whose training rows say the mean and the deviation: each client's its own, or all clients'
        together, in which each row counts once.
    validation : sequence of K NDArray[np.int64], or empty
        The rows that each client keeps from training: they become what its training rows say.

    Raises
    ------
    ValueError
        If samples are pixels, or rows have no clients of their own.
    """
    if whose == NOBODY:
        return data
    if not data.is_float:
        raise ValueError(
            f'standardise is "{whose}", but the samples of {data.name} are pixels, which become '
            "numbers from 0 to 1: leave it at none."
        )
    if whose == SITE and data.held is None:
        raise ValueError(
            f'standardise is "{SITE}", but {data.name} does not come in partitions, one of each '
            'site: choose "all", or let the function return Partitions.'
        )
    train, test = data.train_images.clone(), data.test_images.clone()
    if whose == SITE:
        kept = validation or [np.empty(0, np.int64)] * partition.num_clients
        groups = list(zip(partition.train, partition.test, kept, strict=True))
    else:
        everybody = np.unique(np.concatenate(partition.train))
        groups = [(everybody, np.arange(len(test)), np.empty(0, np.int64))]
    constant: set[int] = set()
    for rows, tests, others in groups:
        mean, deviation, alike = moments(train[rows])
        constant.update(told_constant(mean, alike, whose))
        own = slice(None) if whose != SITE else np.concatenate([rows, others])
        train[own] = scaled(train[own], mean, deviation)
        test[tests] = scaled(test[tests], mean, deviation)
    warn_of_constant(sorted(constant), data.column_names, whose)
    return replace(data, train_images=train, test_images=test)


def moments(
    rows: Tensor,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return each column's mean and deviation, and which columns have one value only.

    The deviation is that of all rows (divided by n). It counts as 1 where it is 0, and where there
    is nothing but zeros and ones: a rare category would become a huge number.

    Parameters
    ----------
    rows : Tensor, shape (n, columns, …)
    """
    values = rows.numpy().astype(np.float64)
    values = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    alike = values.min(axis=0) == values.max(axis=0)
    mean = np.where(alike, values[0], values.mean(axis=0))
    is_flag = np.isin(values, (0, 1)).all(axis=0)
    return mean, np.where(alike | is_flag, 1.0, values.std(axis=0)), alike


def scaled(rows: Tensor, mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> Tensor:
    """Return rows, (n, columns, …), without the mean and divided by the deviation."""
    shape = (-1, *[1] * (rows.dim() - 2))
    subtracted, divisor = (torch.from_numpy(one).reshape(shape) for one in (mean, deviation))
    return ((rows.double() - subtracted) / divisor).float()


def told_constant(mean: NDArray[np.float64], alike: NDArray[np.bool_], whose: str) -> list[int]:
    """Return the constant columns that are worth a word.

    That one site has no row of a category, or nothing else, is not.
    """
    told = alike & ~np.isin(mean, (0, 1)) if whose == SITE else alike
    return [int(column) for column in np.flatnonzero(told)]


def warn_of_constant(columns: Sequence[int], names: Sequence[str], whose: str) -> None:
    """Say which columns have one value only, and so tell nothing."""
    if columns:
        shown = [printable(names[one]) if names else str(one) for one in columns]
        at = "at some site" if whose == SITE else "in all training rows"
        logger.warning(
            "constant %s: %s; standardised by a deviation of 1", at, listed(shown, 10, ", ")
        )
