"""Columns of one scale: without their mean and by their deviation, of training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.data.dataset import Dataset
from fl_core.data.image_folder import Split
from fl_core.data.known import check_no_pixels
from fl_core.data.scaling import ColumnStatistics, Scaling
from fl_core.data.settings import NOBODY, SITE
from fl_core.partitions.partition import Partition
from fl_core.text import listed, printable


def standardised(
    data: Dataset,
    partition: Partition,
    whose: str,
    validation: Sequence[NDArray[np.int64]] = (),
) -> Dataset:
    """Return a data set whose columns are standardised by the training rows that clients hold.

    So is a number to predict. Of samples with more than one axis, a column is the first: the
    channel of a series.

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

    Returns
    -------
    Dataset
        With its `scalings`, and a note on constant columns.

    Raises
    ------
    ValueError
        If samples are pixels, or rows have no clients of their own.
    """
    if whose == NOBODY:
        return data
    check_no_pixels(data.name, whose, data.is_float)
    if whose == SITE and data.given_partition is None:
        raise ValueError(
            f'standardise is "{SITE}", but {data.name} does not come in partitions, one of each '
            'site: choose "all", or let the function return Partitions.'
        )
    train, test = data.train_samples.clone(), data.test_samples.clone()
    labels, tested = data.train_labels.clone(), data.test_labels.clone()
    if whose == SITE:
        kept = validation or [np.empty(0, np.int64)] * partition.num_clients
        groups = list(zip(partition.train, partition.test, kept, strict=True))
    else:
        everybody = np.unique(np.concatenate(partition.train))
        groups = [(everybody, np.arange(len(test)), np.empty(0, np.int64))]
    constant: set[int] = set()
    scalings = []
    for rows, tests, others in groups:
        found = ColumnStatistics.of(train[rows], data.train_labels[rows])
        scaling = Scaling.of(found, is_regression=data.is_regression)
        constant.update(constant_columns(found, whose, len(scaling.mean)))
        own = slice(None) if whose != SITE else np.concatenate([rows, others])
        train[own], labels[own] = scaling.samples(train[own]), scaling.targets(labels[own])
        test[tests], tested[tests] = scaling.samples(test[tests]), scaling.targets(tested[tests])
        scalings.append(scaling)
    return replace(
        data,
        train_samples=train,
        train_labels=labels,
        test_samples=test,
        test_labels=tested,
        preparation=replace(
            data.preparation, standardise=whose, scaling=None if whose == SITE else scalings[0]
        ),
        scalings=tuple(scalings),
        notes=(*data.notes, *constant_notes(sorted(constant), data.column_names, whose)),
    )


def constant_columns(found: ColumnStatistics, whose: str, num_columns: int) -> list[int]:
    """Return which of the first columns have one value only.

    That one site has no row of a category, or nothing else, is not worth a note.
    """
    constant = found.deviation == 0
    if whose == SITE:
        constant &= ~np.isin(found.mean, (0, 1))
    return [int(column) for column in np.flatnonzero(constant[:num_columns])]


def constant_notes(columns: Sequence[int], names: Sequence[str], whose: str) -> list[str]:
    """Say which columns have one value only, and so tell nothing; nothing if there are none."""
    if not columns:
        return []
    shown = [printable(names[one]) if names else str(one) for one in columns]
    at = "at some site" if whose == SITE else "in all training rows"
    return [f"constant {at}: {listed(shown, 10, ', ')}; standardised by a deviation of 1"]


def standardised_site(
    read: Split, training: NDArray[np.bool_], names: Sequence[str] = ()
) -> tuple[Split, Scaling, list[str]]:
    """Return a device's samples, standardised by its own training rows (`standardise=site`).

    `training` says which of those that do not test they are. Their scale comes with them, and a
    note on constant columns, which may have `names`.

    Raises
    ------
    ValueError
        If they are pixels.
    """
    check_no_pixels("a device", SITE, read.train_samples.dtype == torch.float32)
    found = ColumnStatistics.of(read.train_samples[training], read.train_labels[training])
    scaling = Scaling.of(found, is_regression=read.train_labels.dtype == torch.float32)
    constant = constant_columns(found, SITE, len(scaling.mean))
    return scaled(read, scaling), scaling, constant_notes(constant, names, SITE)


def scaled(read: Split, scaling: Scaling) -> Split:
    """Return a device's samples, and numbers to predict, on a scale."""
    return read._replace(
        train_samples=scaling.samples(read.train_samples),
        train_labels=scaling.targets(read.train_labels),
        test_samples=scaling.samples(read.test_samples),
        test_labels=scaling.targets(read.test_labels),
    )
