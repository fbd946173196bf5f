"""A data set as tensors: read once by a process, then indexed by all of its clients."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import blake2b

import torch
from torch import Tensor

from fl_core.data.given_partition import GivenPartition
from fl_core.data.preparation import AS_THEY_COME, Preparation
from fl_core.data.samples import sample_word
from fl_core.data.scaling import Scaling


@dataclass(frozen=True, eq=False)
class Groups:
    """What tasks are made of, where that is not labels: a digit of one rotation, say, or a writer.

    Attributes
    ----------
    train, test : Tensor, int64, shapes (n,) and (m,)
        Each sample's group, an index into `names`.
    names : tuple of str
    """

    train: Tensor
    test: Tensor
    names: tuple[str, ...]


_TENSORS = ("train_samples", "train_labels", "test_samples", "test_labels")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples with their labels. All clients share it: never write to it.

    Attributes
    ----------
    name : str
        One of `DATASETS`, several joined, or the import path of one's own.
    train_samples, test_samples : Tensor, uint8 or float32, shapes (n, …) and (m, …)
        Those of the package are uint8, (n, C, H, W); one's own samples may be of any shape.
    train_labels, test_labels : Tensor, int64 or float32, shapes (n,) and (m,)
        Indices into `class_names`; or, float32, the number that is to be predicted.
    class_names : tuple of str
        Of a number, its own name alone.
    groups : Groups, optional
        What tasks are made of; by default the labels.
    given_partition : GivenPartition, optional
        Which client holds what, where the data come so; by default nobody has said.
    column_names : tuple of str
        Of a table, what each number of a sample is, with its unit if that is known.
    preparation : Preparation
        What was done to the samples, which anybody's have to go through before a model sees them.
    scalings : tuple of Scaling
        By which they were standardised: one of all clients, or one of each; none if they are as
        they came.
    notes : tuple of str
        What people should know of the data; said once in a run.

    Raises
    ------
    ValueError
        If there are no samples, types, shapes, labels or groups are not these, two classes have
        one name, a number is not finite, or clients hold more or less than there is, or nothing.
    """

    name: str
    train_samples: Tensor
    train_labels: Tensor
    test_samples: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]
    groups: Groups | None = None
    given_partition: GivenPartition | None = None
    column_names: tuple[str, ...] = ()
    preparation: Preparation = AS_THEY_COME
    scalings: tuple[Scaling, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        held = self.given_partition or GivenPartition((), ())
        for which, images, labels, groups, own in (
            ("training", self.train_samples, self.train_labels, self.train_groups, held.train),
            ("test", self.test_samples, self.test_labels, self.test_groups, held.test),
        ):
            if not len(images):
                raise ValueError(f"data set {self.name} has no {which} {sample_word(self)}s.")
            typed = images.dtype == self.train_samples.dtype
            typed = typed and labels.dtype == self.train_labels.dtype
            typed = typed and images.dtype in (torch.uint8, torch.float32)
            typed = typed and labels.dtype in (torch.int64, torch.float32)
            shaped = images.dim() >= 2 and images.shape[1:] == self.train_samples.shape[1:]
            if not (typed and shaped and labels.shape == (len(images),)):
                raise ValueError(
                    f"data set {self.name} has {which} {sample_word(self)}s {images.dtype} "
                    f"{tuple(images.shape)} with labels {labels.dtype} {tuple(labels.shape)}: "
                    "uint8 or float32 (n, …) with int64 (n,), or float32 for a number, is "
                    "expected, as for training."
                )
            if self.is_regression and not (torch.isfinite(labels).all() and self.num_classes == 1):
                raise ValueError(
                    f"data set {self.name} has {which} labels that are numbers and "
                    f"{self.num_classes} names: finite numbers and the one name of what they "
                    "measure are expected."
                )
            if groups.dtype != torch.int64 or groups.shape != labels.shape:
                raise ValueError(
                    f"data set {self.name} has {which} groups {groups.dtype} "
                    f"{tuple(groups.shape)}: int64 ({len(images)},) is expected, one per "
                    f"{sample_word(self)}."
                )
            for what, values, count, names in (
                ("labels", labels, self.num_classes, "classes"),
                ("groups", groups, len(self.group_names), "names of groups"),
            ):
                if values.dtype == torch.int64 and (values.min() < 0 or values.max() >= count):
                    raise ValueError(
                        f"data set {self.name} has {which} {what} from {values.min()} to "
                        f"{values.max()}, but {count} {names}."
                    )

            self._check_samples(which, images, own)
        for name in self.class_names:
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise ValueError(
                    f"data set {self.name} has the class {name!a}, which is no Unicode text: "
                    "rename it."
                )
        if twice := [name for name, count in Counter(self.class_names).items() if count > 1]:
            raise ValueError(
                f"data set {self.name} has two classes named {twice[0]}: give each another name."
            )

    def _check_samples(self, which: str, images: Tensor, held: tuple[int, ...]) -> None:
        if images.is_floating_point() and not torch.isfinite(images).all():
            raise ValueError(
                f"data set {self.name} has {which} {sample_word(self)}s among which some numbers "
                "are infinite or NaN: replace these."
            )
        if held and (sum(held) != len(images) or min(held) < 1):
            raise ValueError(
                f"data set {self.name} has {len(images)} {which} {sample_word(self)}s, but its "
                f"clients hold {sum(held)}, the least {min(held)}: each must hold some, and all "
                "together everything."
            )

    def checksum(self) -> str:
        """Return a key that the same data have in any process."""
        content = blake2b(repr((self.class_names, self.given_partition)).encode())
        for tensor in (*(getattr(self, name) for name in _TENSORS), self.train_groups):
            content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            content.update(tensor.detach().contiguous().numpy().data)
        return content.hexdigest()

    def prepared_for(self, client: int | None) -> Preparation:
        """Return what was done to a client's samples; to those of several, for None."""
        if client is None or not self.scalings:
            return self.preparation
        scaling = self.scalings[client if len(self.scalings) > 1 else 0]
        return replace(self.preparation, scaling=scaling)

    def to(self, device: torch.device) -> Dataset:
        """Return it with images and labels on another device; groups of its own stay."""
        return replace(self, **{name: getattr(self, name).to(device) for name in _TENSORS})

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Return the shape of a sample: of an image, channels, height and width."""
        return tuple(self.train_samples.shape[1:])

    @property
    def is_float(self) -> bool:
        """Return whether samples are numbers of any size, float32, instead of pixels, uint8."""
        return self.train_samples.dtype == torch.float32

    @property
    def num_classes(self) -> int:
        """Return the number of classes, and of a model's outputs: 1 for a number."""
        return len(self.class_names)

    @property
    def is_regression(self) -> bool:
        """Return whether what is to be predicted is a number."""
        return self.train_labels.dtype == torch.float32

    @property
    def train_groups(self) -> Tensor:
        """Return the group, or else the label, of each training sample, as tasks see it, (n,).

        Where labels are numbers, all are of one group.
        """
        return self._grouped(self.train_labels) if self.groups is None else self.groups.train

    @property
    def test_groups(self) -> Tensor:
        """Return the group, or else the label, of each test sample, as tasks see it, int64 (m,)."""
        return self._grouped(self.test_labels) if self.groups is None else self.groups.test

    def _grouped(self, labels: Tensor) -> Tensor:
        return torch.zeros(len(labels), dtype=torch.int64) if self.is_regression else labels

    @property
    def group_names(self) -> tuple[str, ...]:
        """Return the names of what tasks are made of: of the groups or of the classes."""
        return self.class_names if self.groups is None else self.groups.names
