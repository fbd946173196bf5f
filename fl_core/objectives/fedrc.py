"""FedRC: Y. Guo, X. Tang, T. Lin, "FedRC: Tackling Diverse Distribution Shifts Challenge in
Federated Learning by Robust Clustering", ICML 2024, https://arxiv.org/abs/2301.12379.

Authors' code: github.com/LINs-lab/FedRC.
"""  # noqa: D205

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fl_core.messages.protocol import NDArrays
from fl_core.objectives.fedem import FedEm
from fl_core.objectives.objective import LocalTraining

if TYPE_CHECKING:
    import torch

_ROUNDING = 1e-3  # of a sum of parts
_LEAST = 1e-6  # of the share of a class: one that no client has would weigh infinitely


@dataclass(frozen=True)
class FedRc(FedEm):
    """FedRC: as FedEM, but with exp(−loss) / P_m(y) in the place of the likelihood.

    P_m(y) is the share of class y in model m's parts of all clients' samples, which the server
    counts. So clients with the same labels are no reason for a cluster; those that disagree about
    them are.
    """

    name: ClassVar[str] = "fedrc"
    uses_last_layer: ClassVar[bool] = True

    def first_beside(self, model: NDArrays) -> NDArrays:
        """Return the mean share of a model, and P_m(y), first equal for all classes."""
        classes = next(array for array in reversed([*model.values()]) if array.ndim).shape[0]
        return {**super().first_beside(model), "labels": np.full(classes, 1 / classes, np.float32)}

    def check_beside(self, sent: NDArrays) -> None:
        """Refuse parts of classes that are negative, or are not the client's share in all."""
        share, parts = np.sum(sent["share"]), np.asarray(sent["labels"], np.float64)
        if parts.min() < 0 or abs(parts.sum() - share) > _ROUNDING:
            raise ValueError(f"its parts of classes are {parts}, not of its share, {share:.3g}")

    def combine_beside(self, before: NDArrays, combined: NDArrays, share: float) -> NDArrays:
        """Return P_m(y), from the mean parts of the classes."""
        counts: Any = combined["labels"]
        return combined if not counts.sum() else {**combined, "labels": counts / counts.sum()}

    def log_prior(self, local: LocalTraining) -> torch.Tensor | float:
        """Return log P_m(y) of each sample, shape (M, n)."""
        import torch  # noqa: PLC0415 - it takes a second, and a server needs none

        labels = local.loop.data[1]
        if labels.is_floating_point():
            raise ValueError("fedrc counts labels, and a number to predict has none: take fedem.")
        shares = torch.stack([beside["labels"] for beside in local.besides])
        return shares.clamp(min=_LEAST).log()[:, labels]

    def note_labels(self, parts: torch.Tensor, local: LocalTraining) -> None:
        """Note the mean part of each class: of clients with more samples, means weigh more."""
        labels = local.loop.data[1]
        for beside, part in zip(local.besides, parts, strict=True):
            counts = labels.bincount(part, minlength=len(beside["labels"])) / len(labels)
            beside["labels"] = counts.to(beside["labels"])
