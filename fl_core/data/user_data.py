"""User-defined data: what a function without arguments returns, whole or in partitions.

Samples may be of any shape. uint8 is taken for pixels, which become numbers in [0, 1]; floats are
scaled only by `standardise`, in float64, and become float32. Labels are classes, whole numbers; or
floats, numbers to predict, with the name of what they measure.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fl_core.data.dataset import Dataset, check_labelled, check_one_type, described_tensor
from fl_core.data.samples import GivenPartition
from fl_core.text import note_on_spellings, type_name
from fl_core.user_code import call_user_code

DATASET = "dataset"
_EXPECTED = (
    "(train samples, train labels, test samples, test labels), and class names if they have some, "
    "or the name of what is predicted if labels are numbers"
)
_CHANNELS = (1, 3, 4)  # of images
_MIN_IMAGE_SIDE = 8  # pixels; fewer may be anything
_MAX_PIXEL = 15  # as a float: more is not scaled, whatever the number of bits
_MAX_UNNAMED = 999  # a wrong label could otherwise name a billion classes

ClientArrays = tuple[Any, Any, Any, Any]
"""Training samples and labels, test samples and labels, as arrays or tensors."""


@dataclass(frozen=True, eq=False)
class Partitions:
    """Data that come in one partition per client.

    Attributes
    ----------
    clients : sequence of K tuples
        Training samples (n, …), their labels (n,), test samples and theirs, of each client.
    tasks : sequence of K int, optional
        The true task of each client; without them, no ARI can be shown.
    class_names : sequence of str, optional
        By default the numbers up to the highest label. For numbers to predict, the name of what
        they measure, with its unit, if any: a str, or a sequence of one.
    names : sequence of K str, optional
        The names of the clients: people, machines, places. By default their numbers.
    is_in_time : bool
        Whether training samples are in order of time: the last ones then validate.
    """

    clients: Sequence[ClientArrays]
    tasks: Sequence[int] | None = None
    class_names: Sequence[str] | str | None = None
    names: Sequence[str] | None = None
    is_in_time: bool = False


def read_user_data(path: str) -> Dataset:
    """Call the function of an import path, and return the data set that it returns."""
    returned = call_user_code(DATASET, path)
    with _naming(DATASET, path):
        if isinstance(returned, Dataset):
            return _checked(replace(returned, name=path))
        if isinstance(returned, Partitions):
            return _checked(dataset_of_partitions(path, returned))
        return _checked(_dataset(path, *_arrays_and_names(returned)))


def read_user_part(key: str, path: str) -> Dataset:
    """Call the function of a device's owner, which `key` names, and return the device's data.

    Without names, the classes are the numbers up to the highest label. Only the device's log has
    the text of an error that the function raises.
    """
    returned = call_user_code(key, path, is_private=True)
    with _naming(key, path):
        part, names = _arrays_and_names(returned)
        if names is None and not part[1].is_floating_point():
            highest = int(torch.cat(part[1::2]).max()) if len(part[1]) else 0
            if highest > _MAX_UNNAMED:
                raise ValueError(f"labels are up to {highest}, but have no names: name all classes")
            names = [str(label) for label in range(highest + 1)]
        return _checked(_dataset(path, part, names))


def read_repeatable(key: str, path: str, read: Callable[[str], Dataset], caller: str) -> Dataset:
    """Call a user-defined function twice, by `read`, and refuse it unless both calls agree."""
    first = read(path)
    known = first.checksum()  # before the second call, which may change the same tensors in place
    if read(path).checksum() != known:
        raise ValueError(
            f'{key} is "{path}", which returned other data when it was called again, but {caller} '
            "calls it and must get the same: use a fixed seed for what it draws."
        )
    return first


@contextmanager
def _naming(key: str, path: str) -> Iterator[None]:
    """Begin the message of a ValueError by the function that returned the data."""
    try:
        yield
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ValueError(f'{key} is "{path}", but it returned unusable data: {reason}.') from error


def _arrays_and_names(returned: Any) -> tuple[tuple[Tensor, ...], Any]:
    """Return a partition that a function returned, checked, and class names, if any."""
    if not isinstance(returned, tuple | list) or len(returned) not in (4, 5):
        raise ValueError(f"{_brief(returned)}; it must return {_EXPECTED}")
    return _tensors(returned[:4]), returned[4] if len(returned) == 5 else None


def dataset_of_partitions(name: str, given: Partitions) -> Dataset:
    """Return the data set of these partitions, under a name."""
    clients = list(given.clients) if isinstance(given.clients, Iterable) else []
    if not clients:
        raise ValueError(f"Partitions of {_brief(given.clients)}; give a list with one per client")
    parts = [_tensors(part, f"client {client}'s ") for client, part in enumerate(clients)]
    for client, part in enumerate(parts):
        check_one_type(f"client {client}'s", part, "client 0's", parts[0])
    tasks = None if given.tasks is None else np.asarray(given.tasks)
    if tasks is not None and (tasks.dtype.kind not in "iu" or tasks.shape != (len(parts),)):
        raise ValueError(f"tasks are {tasks.dtype} {tasks.shape}; give {len(parts)} whole numbers")
    names = given.names
    if names is not None and not isinstance(names, list | tuple | np.ndarray):
        raise ValueError(f"names are {_brief(names)}; give a list, one for each client")
    partition = GivenPartition(
        tuple(len(part[0]) for part in parts),
        tuple(len(part[2]) for part in parts),
        None if tasks is None else tuple(tasks.tolist()),
        None if names is None else tuple(names),
        frozenset(range(len(parts)) if given.is_in_time else ()),
    )
    whole = tuple(torch.cat(column) for column in zip(*parts, strict=True))
    return replace(_dataset(name, whole, given.class_names), given_partition=partition)


def _dataset(path: str, part: Sequence[Tensor], names: Any) -> Dataset:
    labels = part[1]
    is_number = labels.is_floating_point()
    if is_number and isinstance(names, str):
        names = [names]
    if names is None and not is_number:
        names = torch.unique(labels).tolist()
        if names != list(range(len(names))) or len(names) < 2:
            raise ValueError(
                f"training labels are {names[:5]}{' …' if len(names) > 5 else ''}, but must be at "
                "least two classes, 0, 1 and so on without a gap; number them so, or name all "
                "classes"
            )
    if not isinstance(names, tuple | list | np.ndarray) or (is_number and len(names) != 1):
        raise ValueError(
            f"labels are {described_tensor(labels)} and class names are {_brief(names)}; give a "
            "list of names for classes, whole numbers, and one name for a number to predict, such "
            'as "blood sugar (mg/dl)"'
        )
    samples, _, test_samples, test_labels = part
    return Dataset(path, samples, labels, test_samples, test_labels, tuple(map(str, names)))


def _checked(data: Dataset) -> Dataset:
    """Return the data with images' channels first, and notes on what looks wrong."""
    data = _checked_images(data)
    note = note_on_spellings("the classes", data.class_names, "by renaming {}")
    return replace(data, notes=(*data.notes, note)) if note else data


def _checked_images(data: Dataset) -> Dataset:
    """Return images with their channels first, and notes on channels and values that look wrong."""
    if len(data.sample_shape) not in (2, 3):
        return data
    notes = [*data.notes]
    first, *_, last = data.sample_shape
    is_last = len(data.sample_shape) == 3 and last in _CHANNELS
    if is_last and min(data.sample_shape[:2]) >= _MIN_IMAGE_SIDE:
        shape = "×".join(map(str, data.sample_shape))
        notes.append(
            f"samples of {data.name} have the shape {shape}, which is taken for images of {first} "
            f"pixels in height with {last} channels, the last dimension: the channels are moved "
            "to the front"
        )
        moved = data.split.mapped(lambda part: part.movedim(-1, 1).contiguous(), torch.clone)
        data = data.with_split(moved)
    *channels, height, width = data.sample_shape
    if min(height, width) < _MIN_IMAGE_SIDE or not set(channels) <= set(_CHANNELS):
        return replace(data, notes=tuple(notes))
    images = data.train_samples
    is_pixel = images.max() > 255 or torch.equal(images, images.round())
    if data.is_float and images.min() >= 0 and images.max() > _MAX_PIXEL and is_pixel:
        notes.append(
            f"samples of {data.name} are numbers up to {data.train_samples.max():g}, which seem to "
            "be pixels: if so, divide them by the highest possible value, such as 65535 for 16 bits"
        )
    given = data.given_partition
    sizes = given.train if given else (len(data.train_samples),)
    for client, images in enumerate(torch.split(data.train_samples, list(sizes))):
        if len(images) > 1 and torch.equal(images, images[:1].expand_as(images)):
            raise ValueError(
                f"all training images{f' of client {client}' if given else ''} have the same "
                "pixels, so that nothing can be learnt from them; return others"
            )
    return replace(data, notes=tuple(notes))


def _tensors(arrays: Sequence[Any], owner: str = "") -> tuple[Tensor, ...]:
    """Return one partition as checked tensors."""
    if not isinstance(arrays, tuple | list) or len(arrays) != 4:
        raise ValueError(f"{owner}partition is {_brief(arrays)}; give four arrays")
    tensors: list[Tensor] = []
    for which, samples, labels in (("training", *arrays[:2]), ("test", *arrays[2:])):
        x = _tensor(samples, f"{owner}{which} samples")
        y = _tensor(labels, f"{owner}{which} labels")
        if not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool):
            y = y.to(torch.int64)
        check_labelled(x, y, f"{owner}{which}")
        tensors += [x, y]
    return tuple(tensors)


def _tensor(array: Any, what: str) -> Tensor:
    if np.ma.is_masked(array):
        raise ValueError(f"{what} are masked in part; replace masked numbers by .filled")
    if isinstance(array, Tensor):
        return array.detach().cpu().contiguous()
    try:
        # A copy: the array may be read-only, or be changed later.
        return torch.from_numpy(np.array(array))
    except (TypeError, ValueError) as error:  # texts, any objects, bytes in another order
        kind = getattr(array, "dtype", _brief(array))
        raise ValueError(
            f"{what} are {kind}, of which PyTorch makes no tensor; give an array of numbers"
        ) from error


def _brief(value: Any) -> str:
    length = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    return "nothing" if value is None else f"{type_name(value)}{length}"
