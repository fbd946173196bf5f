"""Use the partitioners of flwr-datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl_core.data.image_files import HELD_OUT
from fl_core.data.samples import are_images
from fl_core.data.user_data import Partitions
from fl_core.partitions.validation import split_validation


def from_partitioner(
    partitioner: Any,
    samples: str | Sequence[str],
    label: str,
    *,
    tasks: Sequence[int] | None = None,
    class_names: Sequence[str] | str | None = None,
) -> Partitions:
    """Give each client a partition of a flwr-datasets partitioner; a fifth is held out for tests.

    Images, uint8 (n, H, W) or (n, H, W, C), become uint8 (n, C, H, W); all else becomes float64.

    Parameters
    ----------
    partitioner : flwr_datasets.partitioner.Partitioner
        With a `datasets.Dataset` assigned to its `dataset`.
    samples : str or sequence of str
        The column of the samples; or several columns of numbers, which become a table's.
    label : str
        The column of the labels, whole numbers from 0; or of the number to predict, where
        `class_names` is one name.
    tasks, class_names : optional
        As in `Partitions`.

    Raises
    ------
    ValueError
        If there is no such column, or samples are not numbers of one shape.
    """
    is_number = class_names is not None and (isinstance(class_names, str) or len(class_names) == 1)
    columns = [samples] if isinstance(samples, str) else list(samples)
    clients = []
    for client in range(partitioner.num_partitions):
        table = partitioner.load_partition(client).with_format("numpy")
        for name in (*columns, label):
            if name not in table.column_names:
                raise ValueError(
                    f'partition {client} has no column "{name}": its columns are '
                    f"{', '.join(table.column_names)}."
                )
        try:
            stored = [np.asarray(table[name][:]) for name in columns]
            x = _prepared(stored[0] if isinstance(samples, str) else np.stack(stored, axis=1))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f'column "{", ".join(columns)}" of partition {client} does not have numbers of one '
                "shape: give another by samples, or convert it by the map of your dataset."
            ) from error
        y = np.asarray(table[label][:], np.float64 if is_number else None)
        rest, test = split_validation(y, HELD_OUT, np.random.default_rng(client))
        clients.append((x[rest], y[rest], x[test], y[test]))
    return Partitions(clients, tasks, class_names)


def _prepared(stored: NDArray[Any]) -> NDArray[Any]:
    if stored.dtype != np.uint8 or stored.ndim not in (3, 4):
        return stored.astype(np.float64)
    # Hugging Face's images have their channels last, and grey ones none.
    if stored.ndim == 3:
        return stored[:, None]
    is_first = are_images(stored.shape[1:], is_float=False) and stored.shape[3] not in (1, 3)
    return stored if is_first else stored.transpose(0, 3, 1, 2)
