"""Partitions of flwr-datasets as data of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fl_core.data.image_files import HELD_OUT
from fl_core.data.user_data import Partitions

_CHANNELS = (1, 3)  # of an image


class Partitioner(Protocol):
    """What of a `flwr_datasets.partitioner.Partitioner` is used, its `dataset` being assigned."""

    @property
    def num_partitions(self) -> int:
        """Return how many partitions there are."""

    def load_partition(self, partition_id: int) -> Any:
        """Return one, a `datasets.Dataset`."""


def from_partitioner(
    partitioner: Partitioner,
    samples: str | Sequence[str],
    label: str,
    *,
    test_share: float = HELD_OUT,
    seed: int = 0,
    tasks: Sequence[int] | None = None,
    class_names: Sequence[str] | str | None = None,
    prepare: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> Partitions:
    """Give each client its partition of a flwr-datasets partitioner, some of it held out for tests.

    Parameters
    ----------
    partitioner : flwr_datasets.partitioner.Partitioner
        With a `datasets.Dataset` assigned to its `dataset`.
    samples : str or sequence of str
        The column of the samples; or several columns of numbers, which become a table's.
    label : str
        The column of the labels, whole numbers from 0; or of the number to predict, where
        `class_names` is one name.
    test_share : float
        Share of each client's samples of each class that is held out, rounded; in (0, 1).
    seed : int
        Says which.
    tasks, class_names : optional
        As in `Partitions`.
    prepare : callable, optional
        From a client's samples, as stored, to those to be used. By default images, uint8 (n, H, W)
        or (n, H, W, C), become uint8 (n, C, H, W), unless they are that, and all else float32.

    Raises
    ------
    ValueError
        If there is no such column, labels are not of their kind, samples are no numbers of one
        shape, a client has less than two of them, or `test_share` is not in (0, 1).
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share is {test_share}, but must be in (0, 1): a fifth is 0.2.")
    is_number = class_names is not None and (isinstance(class_names, str) or len(class_names) == 1)
    clients = []
    for client in range(partitioner.num_partitions):
        table = partitioner.load_partition(client).with_format("numpy")
        columns = [samples] if isinstance(samples, str) else list(samples)
        for name in (*columns, label):
            if name not in table.column_names:
                raise ValueError(
                    f'there is no column "{name}" in partition {client}: its columns are '
                    f"{', '.join(table.column_names)}."
                )
        where = f'column "{", ".join(columns)}" of partition {client}'
        stored = [_array(table[name][:]) for name in columns]
        if len({one.shape for one in stored}) > 1:
            raise _refused(where, "several shapes")
        x = stored[0] if isinstance(samples, str) else np.stack(stored, axis=1)
        y = _labels(table[label][:], f'column "{label}" of partition {client}', is_number)
        x = prepare(x) if prepare else _prepared(x, where)
        classes = np.zeros_like(y) if is_number else y
        is_test = _held_out(classes, test_share, np.random.default_rng([seed, client]))
        if is_test.all() or len(y) < 2:
            raise ValueError(f"partition {client} has {len(y)} samples: at least 2 are needed.")
        clients.append((x[~is_test], y[~is_test], x[is_test], y[is_test]))
    return Partitions(clients, tasks, class_names)


def _labels(stored: Any, where: str, is_number: bool) -> NDArray[Any]:
    """Return labels as numbers to predict, float32, or as classes, int64."""
    labels = np.asarray(stored)
    if labels.dtype.kind not in "biuf":
        raise ValueError(
            f"{where} holds {labels.dtype}, but labels must be numbers: number the classes from 0, "
            "in flwr-datasets by a ClassLabel, or name another column by label."
        )
    if is_number:
        return labels.astype(np.float32)
    wrong = ~np.isfinite(labels) | (labels != np.round(labels))
    if wrong.any():
        raise ValueError(
            f"{where} has {labels[wrong][0]:g} in row {np.argmax(wrong) + 1}, but classes are "
            "whole numbers from 0: correct it, or name the number to predict by class_names."
        )
    return labels.astype(np.int64)


def _held_out(labels: NDArray[Any], share: float, rng: np.random.Generator) -> Any:
    """Return which samples are held out, bool (n,): of each class its share, of all at least one.

    A class with a single sample trains.
    """
    is_test = np.zeros(len(labels), np.bool_)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(round(share * len(members)), len(members) - 1)
        is_test[rng.permutation(members)[:count]] = True
    if not is_test.any() and len(labels):
        is_test[rng.integers(len(labels))] = True
    return is_test


def _array(stored: Any) -> NDArray[Any]:
    """Return samples in an array; of objects, if they have several shapes."""
    try:
        return np.asarray(stored)
    except ValueError:
        found = np.empty(len(stored), object)
        for place, one in enumerate(stored):
            found[place] = one
        return found


def _prepared(stored: NDArray[Any], where: str) -> NDArray[Any]:
    if stored.dtype != np.uint8 or stored.ndim not in (3, 4):
        try:
            return stored.astype(np.float32)
        except (TypeError, ValueError) as error:
            what = "texts" if stored.dtype.kind in "US" else "several shapes or objects"
            raise _refused(where, what) from error
    # Hugging Face's images have their channels last, and grey ones none.
    if stored.ndim == 3:
        return stored[:, None]
    is_first = stored.shape[1] in _CHANNELS and stored.shape[3] not in _CHANNELS
    return stored if is_first else stored.transpose(0, 3, 1, 2)


def _refused(where: str, what: str) -> ValueError:
    return ValueError(
        f"{where} holds {what}, but samples must be numbers, all of one shape: name another by "
        "samples, or make them so by prepare."
    )
