"""The loss of a training, and user-defined metrics: functions of outputs and labels."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from fl_core.data.scaling import Scaling
from fl_core.user_code import call_user_code, load_user_function

_METRIC = "metric"
_MOST_TRIED = 1_000  # labels: as many classes as most data have

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From a model's outputs for n samples, and their labels, (n,), to their mean loss, a scalar.

Outputs are logits, (n, classes), of float32; or numbers, (n, 1), which a user-defined function
gets as (n,), like the labels.
"""


Measure = Callable[[torch.Tensor, torch.Tensor], float]
"""From a model's outputs for all test samples of a client, and their labels, to a finite number."""


def loss_of(path: str, labels: torch.Tensor) -> Loss:
    """Return the loss of an import path; where it is empty, the usual one for such labels."""
    if labels.is_floating_point():
        return partial(_of_numbers, load_user_function("loss", path) if path else F.mse_loss)
    return load_user_function("loss", path) if path else F.cross_entropy


def each_loss(path: str, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of each sample by itself, (n,); `path` is as in `loss_of`."""
    loss = loss_of(path, labels)
    if path:  # vmap traces no user's `.item()`, nor a branch on values
        pairs = zip(torch.split(outputs, 1), torch.split(labels, 1), strict=True)
        return torch.stack([loss(*pair) for pair in pairs])
    found: torch.Tensor = torch.func.vmap(lambda output, truth: loss(output[None], truth[None]))(
        outputs, labels
    )
    return found


def _of_numbers(loss: Loss, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return loss(outputs.squeeze(1), labels)


def mean_per_sample(loss: Loss) -> Loss:
    """Return the mean of each sample's loss by itself, as noise for each needs it."""

    def mean(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        total = 0 * outputs.sum()
        for place in range(len(labels)):
            total = total + loss(outputs[place : place + 1], labels[place : place + 1])
        return total / max(len(labels), 1)

    return mean


def measure_of(path: str, scaling: Scaling | None = None) -> Measure | None:
    """Return the metric of an import path, of numbers in their unit; none where it is empty.

    A ValueError says that the function fails, or that its result is no finite number.
    """

    def measured(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        said, truth = outputs.cpu(), labels.cpu()
        if labels.is_floating_point():
            said = said.squeeze(1)
            if scaling is not None:
                said, truth = scaling.restore_targets(said), scaling.restore_targets(truth)
        found = call_user_code(_METRIC, path, said, truth)
        try:
            number = float(found)
        except (TypeError, ValueError, RuntimeError):  # of a tensor of several, say
            number = math.nan
        if not math.isfinite(number):
            kind = found if isinstance(found, float) else type(found).__name__
            raise ValueError(
                f'{_METRIC} is "{path}", which returned {kind}: it must return one finite number.'
            )
        return number

    return measured if path else None


def check_user_metric(path: str, num_classes: int, *, is_regression: bool) -> None:
    """Refuse a function that does not make a number of a few random outputs and labels."""
    if measure := measure_of(path):
        measure(*_made_up(num_classes, is_regression=is_regression))


def _made_up(num_classes: int, *, is_regression: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return different numbers above 0, or labels of all classes."""
    count = max(3, min(num_classes, _MOST_TRIED))
    outputs = torch.rand((count, num_classes), generator=torch.Generator().manual_seed(0))
    if is_regression:
        return outputs, torch.arange(1, count + 1, dtype=torch.float32)
    return outputs, torch.arange(count) % num_classes


def check_user_loss(path: str, num_classes: int, *, is_regression: bool) -> None:
    """Refuse a function that does not make one number of a few random outputs and labels."""
    outputs, labels = _made_up(num_classes, is_regression=is_regression)
    outputs.requires_grad_()
    found = call_user_code("loss", path, outputs.squeeze(1) if is_regression else outputs, labels)
    if not (isinstance(found, torch.Tensor) and found.dim() == 0 and found.is_floating_point()):
        kind = tuple(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
        raise ValueError(
            f'loss is "{path}", which returned {kind}: it must return the mean loss of outputs '
            "and labels, a tensor of one number and no dimensions."
        )
    if not found.requires_grad:
        raise ValueError(
            f'loss is "{path}", but its result does not depend on outputs as PyTorch sees it: '
            "compute it with PyTorch, without detach or item."
        )
