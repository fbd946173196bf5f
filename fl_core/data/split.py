"""Training and test samples of one data set or one site."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

from torch import Tensor


class Split(NamedTuple):
    """Training and test samples with their labels; a site may have no test samples."""

    train_samples: Tensor  # uint8, float32 or, before they are scaled, float64, (n, …)
    train_labels: Tensor  # (n,): int64, indices into `class_names`; or floats, to be predicted
    test_samples: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...]  # of a number to predict, its name
    is_in_time: bool = False  # training samples are ordered by time, as rows of a table
    notes: tuple[str, ...] = ()  # about samples

    def mapped(
        self, samples: Callable[[Tensor], Tensor], labels: Callable[[Tensor], Tensor]
    ) -> Self:
        """Return a split with what two functions return for samples and labels."""
        return self._replace(
            train_samples=samples(self.train_samples),
            train_labels=labels(self.train_labels),
            test_samples=samples(self.test_samples),
            test_labels=labels(self.test_labels),
        )
