"""A data set as tensors: read once by a process, then indexed by all of its clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from fl_core.data.preparation import NO_PREPARATION, Preparation
from fl_core.data.samples import GivenPartition, Split, sample_word
from fl_core.data.scaling import Scaling

_FLOATS = (torch.float32, torch.float64)
_TENSORS = ("train_samples", "train_labels", "test_samples", "test_labels")


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups that tasks are made of, where these are not labels: rotated digits, or writers."""

    train: Tensor  # int64, (n,): the group of each sample, an index into `names`
    test: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their labels. All clients share it: never write to it."""

    name: str  # one of `DATASETS`, several joined, or an import path
    # uint8, float32 or, before they are scaled, float64, (n, …); images are uint8 (n, C, H, W)
    train_samples: Tensor
    train_labels: Tensor  # (n,): int64, indices into `class_names`; or floats, to be predicted
    test_samples: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]  # of a number to predict, its name
    groups: Groups | None = None  # by default, tasks are made of labels
    given_partition: GivenPartition | None = None  # where the data come in partitions
    column_names: tuple[str, ...] = ()  # of a table: each number of a sample, with its unit
    preparation: Preparation = NO_PREPARATION
    scalings: tuple[Scaling, ...] = ()  # none, one for all clients, or one per client
    notes: tuple[str, ...] = ()  # shown once in a run

    def __post_init__(self) -> None:
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f"data set {self.name}: {error}.") from error

    def _check(self) -> None:
        given = self.given_partition or GivenPartition((), ())
        for which, samples, labels, groups, counts in (
            ("training", self.train_samples, self.train_labels, self.train_groups, given.train),
            ("test", self.test_samples, self.test_labels, self.test_groups, given.test),
        ):
            check_labelled(samples, labels, which)
            if not len(samples):
                raise ValueError(f"it has no {which} {sample_word(self)}s")
            check_one_type(which, (samples, labels), "training", self.split[:2])
            if groups.dtype != torch.int64 or groups.shape != labels.shape:
                raise ValueError(
                    f"{which} groups are {described_tensor(groups)}, but must be int64, one each"
                )
            for what, values, count, names in (
                ("labels", labels, self.num_classes, "classes"),
                ("groups", groups, len(self.group_names), "names of groups"),
            ):
                if values.dtype == torch.int64 and (values.min() < 0 or values.max() >= count):
                    raise ValueError(
                        f"{which} {what} are from {values.min()} to {values.max()}, but it has "
                        f"{count} {names}"
                    )
            if counts and (sum(counts) != len(samples) or min(counts) < 1):
                raise ValueError(
                    f"it has {len(samples)} {which} samples, but its clients have {sum(counts)} in "
                    f"all and {min(counts)} at least: each client needs some, and each sample a "
                    "client"
                )
        if self.is_regression and self.num_classes != 1:
            raise ValueError(
                f"its labels are numbers to predict, but it has {self.num_classes} names: give one"
            )
        for name, count in Counter(self.class_names).items():
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise ValueError(f"the class {name!a} is not Unicode text: rename it")
            if count > 1:
                raise ValueError(f"two classes are named {name}: rename one")

    def checksum(self) -> str:
        """Return a key that the same data have in any process."""
        content = blake2b(repr((self.class_names, self.given_partition)).encode())
        for tensor in (*(getattr(self, name) for name in _TENSORS), self.train_groups):
            content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            content.update(tensor.detach().contiguous().numpy().data)
        return content.hexdigest()

    def preparation_of(self, client: int | None) -> Preparation:
        """Return the preparation of a client's samples; with None, of several clients'."""
        if client is None or not self.scalings:
            return self.preparation
        scaling = self.scalings[client if len(self.scalings) > 1 else 0]
        return replace(self.preparation, scaling=scaling)

    def to(self, device: torch.device) -> Dataset:
        """Return a copy with samples and labels on another device; groups are not moved."""
        return self.with_split(self.split.mapped(*[lambda one: one.to(device)] * 2))

    def with_split(self, split: Split) -> Dataset:
        """Return a copy with other samples and labels."""
        tensors: dict[str, Any] = dict(zip(_TENSORS, split, strict=False))
        return replace(self, **tensors)

    @property
    def split(self) -> Split:
        """Return the samples and labels."""
        train, test = self.train_samples, self.test_samples
        return Split(train, self.train_labels, test, self.test_labels, self.class_names)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample: of an image, channels, height and width."""
        return tuple(self.train_samples.shape[1:])

    @property
    def is_float(self) -> bool:
        """Return whether samples are floats; otherwise they are pixels, uint8."""
        return self.train_samples.is_floating_point()

    @property
    def num_classes(self) -> int:
        """Return the number of classes, which is that of a model's outputs: 1 for a number."""
        return len(self.class_names)

    @property
    def is_regression(self) -> bool:
        """Return whether labels are numbers to predict."""
        return self.train_labels.is_floating_point()

    @property
    def train_groups(self) -> Tensor:
        """Return what tasks are made of, int64 (n,): groups, labels, or 0 for a regression."""
        return self._labels_as_groups(self.train_labels) if not self.groups else self.groups.train

    @property
    def test_groups(self) -> Tensor:
        """Return the same of test samples, int64 (m,)."""
        return self._labels_as_groups(self.test_labels) if not self.groups else self.groups.test

    def _labels_as_groups(self, labels: Tensor) -> Tensor:
        return torch.zeros(len(labels), dtype=torch.int64) if self.is_regression else labels

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the names of the groups, or of the classes where there are none."""
        return self.groups.names if self.groups else self.class_names


def check_labelled(samples: Tensor, labels: Tensor, what: str) -> None:
    """Raise a ValueError for samples or labels that cannot be trained on; it begins with `what`."""
    if samples.dtype not in (torch.uint8, *_FLOATS):
        raise ValueError(
            f"{what} samples are {described_tensor(samples)}, but must be float32 or float64, or "
            "uint8 for pixels: convert them, in NumPy by .astype(np.float64), and divide pixels of "
            "16 bits by 65535"
        )
    if samples.dim() < 2 or 0 in samples.shape[1:]:
        raise ValueError(f"{what} samples are {described_tensor(samples)}, but must be (n, …)")
    if labels.dtype not in (torch.int64, *_FLOATS) or labels.shape != samples.shape[:1]:
        raise ValueError(
            f"{what} labels are {described_tensor(labels)}, but must be whole numbers for classes, "
            f"or floats for a number to predict, of shape ({len(samples)},)"
        )
    for kind, values in (("samples", samples), ("labels", labels)):
        if values.is_floating_point() and not torch.isfinite(values.float()).all():
            raise ValueError(f"{what} {kind} contain infinity, NaN or numbers above 3e38")


def check_one_type(whose: str, part: Sequence[Tensor], other: str, like: Sequence[Tensor]) -> None:
    """Refuse samples and labels of another type or shape than those of `other`."""
    for what, one, first in zip(("samples", "labels"), part, like, strict=False):
        if (one.dtype, one.shape[1:]) != (first.dtype, first.shape[1:]):
            raise ValueError(
                f"{whose} {what} are {described_tensor(one)}, but {other} {what} are "
                f"{described_tensor(first)}: convert them to one type and shape"
            )


def described_tensor(tensor: Tensor) -> str:
    """Return the type and shape of a tensor as text: `float32 (4, 30)`."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
