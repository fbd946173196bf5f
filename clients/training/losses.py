"""What a training minimises: cross-entropy of classes, squared error of a number, or one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from fl_core.own_code import call_own, load_own

_KEY = "loss"

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From a model's outputs for n samples, and their labels, (n,), to their mean loss, a scalar.

Outputs are logits, (n, classes), of float32; or, (n, 1), numbers, which one's own function gets as
(n,), like the labels.
"""


def loss_of(path: str, labels: torch.Tensor) -> Loss:
    """Return the loss of an import path; where it is empty, the usual one for such labels.

    Raises
    ------
    ValueError
        If there is no such function.
    """
    if not path:
        return squared_error if labels.is_floating_point() else F.cross_entropy
    loss = load_own(_KEY, path)
    return partial(_of_numbers, loss) if labels.is_floating_point() else loss


def squared_error(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean squared error of predictions, (n, 1), of numbers, (n,)."""
    return _of_numbers(F.mse_loss, outputs, labels)


def _of_numbers(loss: Loss, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return loss(outputs.squeeze(1), labels)


def of_each(loss: Loss) -> Loss:
    """Return the mean of the losses of each sample by itself, whatever a function does with many.

    Of no samples it is 0. So no sample's gradient depends on another sample, as noise that is
    counted for each needs it.
    """

    def mean(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total = 0 * outputs.sum()
        for place in range(len(labels)):
            total = total + loss(outputs[place : place + 1], labels[place : place + 1])
        return total / max(len(labels), 1)

    return mean


def check_own_loss(path: str, num_classes: int, *, is_regression: bool) -> None:
    """Refuse a function that does not make one number of outputs and labels, by a ValueError.

    It is tried on a few made-up ones.
    """
    generator = torch.Generator().manual_seed(0)
    outputs = torch.rand((3, num_classes), generator=generator, requires_grad=True)
    labels = torch.arange(3) % num_classes
    if is_regression:
        found = call_own(_KEY, path, outputs.squeeze(1), labels.to(torch.float32))
    else:
        found = call_own(_KEY, path, outputs, labels)
    if not (isinstance(found, torch.Tensor) and found.dim() == 0 and found.is_floating_point()):
        kind = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise ValueError(
            f'{_KEY} is "{path}", which returned {kind}: it must return the mean loss of outputs '
            "and labels, a tensor of one number and no dimensions."
        )
    if not found.requires_grad:
        raise ValueError(
            f'{_KEY} is "{path}", whose result does not depend on outputs as PyTorch sees it: '
            "compute it with PyTorch, without detach or item."
        )
