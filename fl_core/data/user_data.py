"""Data of one's own, by a function without arguments: whole, or in partitions already made.

Samples may be of any shape: images, rows of a table, spectrograms, embeddings. uint8 is taken for
pixels, which become numbers in [0, 1]; float32 stays as it is. Labels are classes, whole numbers;
or float32 numbers to be predicted, where what they measure has a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset
from fl_core.data.given_partition import GivenPartition
from fl_core.user_code import call_own

DATASET = "dataset"
_WANTED = (
    "return (train samples, train labels, test samples, test labels), "
    "a fl_core.data.dataset.Dataset, or fl_core.data.user_data.Partitions"
)
_PART_WANTED = (
    "return (train samples, train labels, test samples, test labels), and class names if they have "
    "some, or the name of what is predicted if labels are numbers"
)
_HIGHEST_UNNAMED = 999  # lest a label that is none names a billion classes

Part = tuple[Any, Any, Any, Any]
"""Training samples and labels, test samples and labels, as arrays or tensors."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Data of which each client has a partition that somebody else has made.

    Attributes
    ----------
    clients : sequence of K tuples
        For each client, its training samples (n, …), their labels (n,), its test samples and their
        labels: NumPy arrays or tensors, samples uint8 or float32, labels whole numbers from 0, or
        float32 numbers to be predicted.
    tasks : sequence of K int, optional
        The true task of each client; without them, no ARI can be shown.
    class_names : sequence of str, optional
        By default the numbers up to the highest label. Where labels are numbers to be predicted,
        the name of what they measure, with its unit, if any: a str, or a sequence of one.
    names : sequence of K str, optional
        What to call the clients: people, machines, places. By default their numbers.
    is_in_time : bool
        Whether training samples are in order of time, at least within a class: the last ones then
        validate (`validation-share`), instead of some that are drawn.
    """

    clients: Sequence[Part]
    tasks: Sequence[int] | None = None
    class_names: Sequence[str] | str | None = None
    names: Sequence[str] | None = None
    is_in_time: bool = False


def read_own(path: str) -> Dataset:
    """Call the function of an import path, and return the data set that it returns.

    Raises
    ------
    ValueError
        If it cannot be called, or returns something else.
    """
    found = call_own(DATASET, path)
    with _said(DATASET, path):
        if isinstance(found, Dataset):
            return replace(found, name=path)
        if isinstance(found, Partitions):
            return of_partitions(path, found)
        return _dataset(path, *_arrays_and_names(found, _WANTED))


def read_own_part(key: str, path: str) -> Dataset:
    """Call the function of a device's owner, which `key` names, and return the device's own data.

    It need not have all classes: without names, they are the numbers up to its highest label. The
    text of what it raises stands in the device's log alone.

    Raises
    ------
    ValueError
        If it cannot be called, or returns something else.
    """
    found = call_own(key, path, is_private=True)
    with _said(key, path):
        part, names = _arrays_and_names(found, _PART_WANTED)
        if names is not None or part[1].is_floating_point():
            return _dataset(path, part, names)
        highest = int(torch.cat(part[1::2]).max()) if len(part[1]) else 0
        if highest > _HIGHEST_UNNAMED:
            raise ValueError(f"labels up to {highest} without names: name all classes")
        return _dataset(path, part, [str(label) for label in range(highest + 1)])


def read_twice(key: str, path: str, read: Callable[[str], Dataset], caller: str) -> Dataset:
    """Call a user-defined function twice, by `read`, and refuse it unless both calls agree.

    Otherwise each process, named as `caller`, would train and test on other samples.
    """
    found = read(path)
    known = found.checksum()  # before the second call, which may change the same tensors in place
    if read(path).checksum() != known:
        raise ValueError(
            f'{key} is "{path}", which returned other data when it was called again, but {caller} '
            "calls it and must get the same: give what it draws a fixed seed."
        )
    return found


@contextmanager
def _said(key: str, path: str) -> Iterator[None]:
    """Say of what a function returned whose it is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f'{key} is "{path}", which returned {error}'.rstrip(".") + ".") from error


def _arrays_and_names(found: Any, wanted: str) -> tuple[tuple[Tensor, ...], Any]:
    """Return the one partition that a function returned, checked, and class names, if any."""
    if not isinstance(found, tuple | list) or len(found) not in (4, 5):
        raise ValueError(f"{_brief(found)}: it must {wanted}")
    return _part(found[:4], "the"), found[4] if len(found) == 5 else None


def of_partitions(name: str, given: Partitions) -> Dataset:
    """Return the data set that partitions are together, under a name.

    Raises
    ------
    ValueError
        If they are no partitions, or not alike; the sentence begins with what they are.
    """
    clients: Any = given.clients
    if not isinstance(clients, Iterable):
        raise ValueError(f"Partitions of {_brief(clients)}: give a list with one of each client")
    parts = [_part(own, f"client {c}'s") for c, own in enumerate(clients)]
    if not parts:
        raise ValueError("Partitions without clients: give it one partition each")
    for client, own in enumerate(parts):
        for part, first in zip(own[::2], parts[0][::2], strict=True):
            if (part.dtype, part.shape[1:]) != (first.dtype, first.shape[1:]):
                raise ValueError(
                    f"client {client}'s samples {_form(part)} and client 0's {_form(first)}, but "
                    "all must be alike"
                )
        if own[1].dtype != parts[0][1].dtype:
            raise ValueError(
                f"client {client}'s labels {_form(own[1])} and client 0's {_form(parts[0][1])}, "
                "but all must be classes, whole numbers, or all numbers to predict, float32"
            )
        for which, labels in (("training", own[1]), ("test", own[3])):
            if not len(labels):
                raise ValueError(f"no {which} samples for client {client}: leave that client out")
    for what, said in (("tasks", given.tasks), ("names", given.names)):
        if said is not None and not isinstance(said, list | tuple | np.ndarray | Tensor):
            kind = type(said).__name__
            raise ValueError(f"{what} in a {kind}: give a list, one for each client in their order")
    if given.tasks is not None and len(given.tasks) != len(parts):
        raise ValueError(f"{len(given.tasks)} tasks for {len(parts)} clients: give one for each")
    trained, _, tested, _ = zip(*parts, strict=True)
    tasks = None if given.tasks is None else _tasks(given.tasks)
    names = None if given.names is None else tuple(given.names)
    in_time = frozenset(range(len(parts)) if given.is_in_time else ())
    sizes = GivenPartition(tuple(map(len, trained)), tuple(map(len, tested)), tasks, names, in_time)
    whole = tuple(torch.cat(column) for column in zip(*parts, strict=True))
    found = _dataset(name, whole, given.class_names)
    return replace(found, given_partition=sizes)


def _tasks(given: Sequence[Any]) -> tuple[int, ...]:
    wrong = "tasks that are no whole numbers: number them from 0"
    try:
        given = [int(task) if isinstance(task, str) else task for task in given]
        found = tuple(map(int, given))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(wrong) from error
    if found != tuple(given):
        raise ValueError(wrong)
    return found


def _dataset(path: str, part: Sequence[Tensor], names: Any) -> Dataset:
    labels = torch.cat([part[1], part[3]])
    if not len(labels):
        raise ValueError("no samples at all")
    is_number = part[1].is_floating_point()
    if is_number and isinstance(names, str):
        names = [names]
    if names is not None and not isinstance(names, tuple | list | np.ndarray):
        raise ValueError(f"{_brief(names)} for class names: a list of texts is expected")
    if is_number and (names is None or len(names) != 1):
        raise ValueError(
            f"labels {_form(part[1])} with {0 if names is None else len(names)} names: for classes "
            "make them whole numbers, and for a number to predict say in one text what it is, such "
            'as "blood sugar (mg/dl)"'
        )
    if names is None:
        present = torch.unique(part[1]).tolist()
        if present != list(range(len(present))) or len(present) < 2:
            wanted = "0, 1 and so on without a gap: number them so"
            if len(present) < 2:
                wanted = "of two classes at least: add samples of another one"
            raise ValueError(
                f"training labels {present[:5]}{' …' if len(present) > 5 else ''}, but they must "
                f"be {wanted}, or name all classes"
            )
        names = [str(label) for label in present]
    images, _, tests, _ = part
    try:
        return Dataset(path, images, part[1], tests, part[3], tuple(map(str, names)))
    except ValueError as error:
        raise ValueError(f"this: {error}") from error


def _part(found: Sequence[Any], whose: str) -> tuple[Tensor, ...]:
    """Return one partition as tensors, checked."""
    if not isinstance(found, tuple | list) or len(found) != 4:
        raise ValueError(f"as {whose} partition {_brief(found)}, but four arrays are expected")
    tensors = []
    for which, samples, labels in (("training", *found[:2]), ("test", *found[2:])):
        x = _tensor(samples, f"{whose} {which} samples")
        y = _tensor(labels, f"{whose} {which} labels")
        _check_samples(x, f"{whose} {which} samples")
        is_number = y.dtype == torch.float32
        is_whole = not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
        if not (is_number or is_whole) or y.dim() != 1:
            raise ValueError(
                f"{whose} {which} labels {_form(y)}, but they must be whole numbers, (n,), or "
                "float32 for a number to predict"
            )
        if len(x) != len(y):
            raise ValueError(f"{len(x)} samples and {len(y)} labels for {which}, not as many")
        tensors += [x, y if is_number else y.to(torch.int64)]
    if tensors[1].dtype != tensors[3].dtype:
        raise ValueError(
            f"{whose} training labels {_form(tensors[1])} and test labels {_form(tensors[3])}, but "
            "both must be whole numbers, or both float32"
        )
    return tuple(tensors)


def _tensor(found: Any, what: str) -> Tensor:
    rows = found if isinstance(found, list | tuple) else ()
    if np.ma.is_masked(found) or any(map(np.ma.is_masked, rows)):
        raise ValueError(
            f"{what} that are masked in part, but what is masked would be taken for numbers: "
            "replace it by .filled, or leave these samples out"
        )
    if isinstance(found, Tensor):
        if found.layout != torch.strided:
            raise ValueError(f"{what} that are a sparse tensor: make it dense, by .to_dense()")
        return found.detach().cpu().contiguous()
    try:
        # A copy: the array may be read-only, or somebody may go on using it.
        array = np.array(found)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} that are {_brief(found)}, but an array is expected") from error
    try:
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:  # texts, any objects, bytes in another order
        raise ValueError(
            f"{what} {array.dtype} {array.shape}, but they must be numbers of a type that PyTorch "
            "has too: convert them, in NumPy by .astype, or number the classes from 0"
        ) from error


def _check_samples(samples: Tensor, what: str) -> None:
    if samples.dtype not in (torch.uint8, torch.float32):
        raise ValueError(
            f"{what} {_form(samples)}, but they must be float32, or uint8 for pixels: convert "
            "them, in NumPy by .astype(np.float32)"
        )
    if samples.dim() < 2 or 0 in samples.shape[1:]:
        raise ValueError(f"{what} {_form(samples)}, but (n, …) is expected, such as (n, 30)")
    if samples.is_floating_point() and not torch.isfinite(samples).all():
        raise ValueError(f"{what} among which some numbers are infinite or NaN: replace these")


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _brief(found: Any) -> str:
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {len(found)}"
    return "nothing" if found is None else f"a {type(found).__name__}"
