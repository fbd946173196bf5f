"""What a training minimises: cross-entropy of classes, squared error of a number, or one's own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From a model's outputs for n samples, and their labels, (n,), to the mean loss, a scalar.

Outputs are logits, (n, classes); of a number, the number, (n,).
"""


def loss_of(labels: torch.Tensor) -> Loss:
    """Return the loss for such labels, which takes outputs as the model makes them."""
    return squared_error if labels.is_floating_point() else F.cross_entropy


def squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of predictions, (n, 1), of numbers, (n,)."""
    return F.mse_loss(outputs.squeeze(1), labels)
