"""Standardise a simulated data set by the statistics of its training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fl_core.data.dataset import TENSORS, Dataset
from fl_core.data.samples import check_no_pixels
from fl_core.data.scaling import ColumnStatistics, Scaling, constant_notes
from fl_core.data.settings import NOT_STANDARDISED, SITE
from fl_core.partitions.partition import Partition


def standardise_dataset(
    data: Dataset,
    partition: Partition,
    scope: str,
    validation: Sequence[NDArray[np.int64]] = (),
) -> Dataset:
    """Return a data set with standardised columns and targets, its `scalings`, and notes.

    `scope` is "none", "site" (each client by its training rows) or "all" (all clients by their
    training rows together, where each row counts once). `validation` has the rows that each client
    excludes from training: they are scaled, but do not count.
    """
    if scope == NOT_STANDARDISED:
        return data
    check_no_pixels(data.name, scope, data.is_float)
    if scope == SITE and data.given_partition is None:
        raise ValueError(
            f'standardise is "{SITE}", but {data.name} does not come in one partition per site: '
            'choose "all", or let the function return Partitions.'
        )
    if scope == SITE:
        excluded = validation or [np.empty(0, np.int64)] * partition.num_clients
        scaled = [np.concatenate(rows) for rows in zip(partition.train, excluded, strict=True)]
        sites = list(zip(partition.train, scaled, partition.test, strict=True))
    else:
        train, test = (np.arange(len(rows)) for rows in (data.train_samples, data.test_samples))
        sites = [(np.unique(np.concatenate(partition.train)), train, test)]
    tensors = {name: getattr(data, name).clone() for name in TENSORS}
    statistics, scalings = [], []
    for trained, train, test in sites:
        site_statistics = ColumnStatistics.of(
            data.train_samples[trained], data.train_labels[trained]
        )
        scaling = Scaling.fit(site_statistics, is_regression=data.is_regression)
        for which, rows in (("train", train), ("test", test)):
            samples, labels = tensors[f"{which}_samples"], tensors[f"{which}_labels"]
            samples[rows] = scaling.transform(samples[rows])
            labels[rows] = scaling.transform_targets(labels[rows])
        statistics.append(site_statistics)
        scalings.append(scaling)
    notes = constant_notes(statistics, len(scalings[0].mean), data.column_names, scope)
    common = None if scope == SITE else scalings[0]
    return replace(
        data,
        **tensors,
        preparation=replace(data.preparation, standardise=scope, scaling=common),
        scalings=tuple(scalings),
        notes=(*data.notes, *notes),
    )
