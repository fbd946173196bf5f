"""Standardise a simulated data set by the statistics of its training rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.samples import Split, check_no_pixels
from fl_core.data.scaling import ColumnStatistics, Scaling, constant_notes, unscaled_split
from fl_core.data.settings import NOT_STANDARDISED, SITE
from fl_core.partitions.partition import Partition


def standardise_dataset(
    data: Dataset,
    partition: Partition,
    scope: str,
    validation: Sequence[NDArray[np.int64]] = (),
) -> Dataset:
    """Return a data set with standardised columns and targets, its `scalings`, and notes.

    `scope` is "none", "site" (each client by its training rows) or "all" (all training rows, each
    once). `validation` has the rows that clients exclude: they are scaled, but do not count.
    """
    if scope == NOT_STANDARDISED:
        if torch.float64 not in (data.train_samples.dtype, data.train_labels.dtype):
            return data
        return data.with_split(unscaled_split(data.split, data.column_names))
    check_no_pixels(data.name, scope, data.is_float)
    if scope == SITE and data.given_partition is None:
        raise ValueError(
            f'standardise is "{SITE}", but {data.name} does not come in one partition per site: '
            'choose "all", or let the function return Partitions.'
        )
    if scope == SITE:
        excluded = validation or [np.empty(0, np.int64)] * partition.num_clients
        scaled_rows = [np.concatenate(rows) for rows in zip(partition.train, excluded, strict=True)]
        sites = list(zip(partition.train, scaled_rows, partition.test, strict=True))
    else:
        train, test = (np.arange(len(rows)) for rows in (data.train_samples, data.test_samples))
        sites = [(np.unique(np.concatenate(partition.train)), train, test)]
    whole = data.split.mapped(_copy, _copy)
    statistics, scalings = [], []
    for trained, train, test in sites:
        training = data.train_samples[trained], data.train_labels[trained]
        statistics.append(ColumnStatistics.of(*training))
        scalings.append(Scaling.fit(statistics[-1], is_regression=data.is_regression))
        rows = (train, train, test, test)
        x, y, xt, yt = (values[of] for values, of in zip(data.split[:4], rows, strict=True))
        site = Split(x, y, xt, yt, data.class_names)
        scaled = scalings[-1].transform_split(site, data.column_names)
        for values, of, new in zip(whole[:4], rows, scaled[:4], strict=True):
            values[of] = new
    notes = constant_notes(statistics, len(scalings[0].mean), data.column_names, scope)
    common = None if scope == SITE else scalings[0]
    return replace(
        data.with_split(whole),
        preparation=replace(data.preparation, standardise=scope, scaling=common),
        scalings=tuple(scalings),
        notes=(*data.notes, *notes),
    )


def _copy(values: Tensor) -> Tensor:
    """Return a copy, floats as float32: rows that are used by no client are not scaled."""
    return values.to(torch.float32 if values.is_floating_point() else values.dtype, copy=True)
