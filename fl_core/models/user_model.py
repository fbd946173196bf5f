"""Models of one's own, by a function `make_model(shape, num_classes)`."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fl_core.user_code import call_own, what_failed

_KEY = "model"


def own_model(path: str, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Call the function of an import path with a sample's shape and the number of classes.

    Raises
    ------
    ValueError
        If it cannot be called, or returns no module with weights.
    """
    model = call_own(_KEY, path, tuple(shape), num_classes)
    if not isinstance(model, nn.Module):
        raise ValueError(
            f'{_KEY} is "{path}", which returned a {type(model).__name__}: called with '
            "a sample's shape and the number of classes, it must return a torch.nn.Module."
        )
    weights = list(model.parameters())
    if any(map(is_lazy, weights)):
        raise ValueError(
            f'{_KEY} is "{path}", whose layers do not know their sizes yet: replace lazy layers by '
            "such as have theirs."
        )
    if not any(weight.requires_grad for weight in weights):
        raise ValueError(f'{_KEY} is "{path}", which has no weights that could be trained.')
    odd = [name for name, one in model.state_dict().items() if not _can_travel(one)]
    if odd:
        kind = getattr(model.state_dict()[odd[0]], "dtype", "no tensor")
        raise ValueError(
            f'{_KEY} is "{path}", whose {odd[0]} is {kind}: weights must be float32, and counters '
            "int64."
        )
    return model


def _can_travel(tensor: object) -> bool:  # extra state may be anything
    return isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float32, torch.int64)


def check_model(name: str, model: nn.Module, samples: torch.Tensor, num_classes: int) -> None:
    """Refuse a model that does not make one logit per class of samples, by a ValueError.

    It is tried as in tests, and as in training, where its logits must depend on its weights.

    Parameters
    ----------
    name : str
        Its import path.
    samples : torch.Tensor, float32, shape (n, …)
        A few, as they are in training: pixels in [0, 1].
    """
    with torch.random.fork_rng(devices=()):  # it may draw what it drops
        for is_training in (False, True):
            model.train(is_training)
            logits = _logits(name, model, samples, num_classes, " in training" * is_training)
    if not logits.requires_grad:
        raise ValueError(
            f'{_KEY} is "{name}", whose output does not depend on its weights as PyTorch sees it: '
            "compute it without no_grad, detach or argmax."
        )
    model.eval()
    _logits(name, model, samples[:1], num_classes, "")


def _logits(
    name: str, model: nn.Module, samples: torch.Tensor, num_classes: int, when: str
) -> torch.Tensor:
    try:
        logits = model(given := samples.clone())
    except Exception as error:
        raise ValueError(
            f'{_KEY} is "{name}", which cannot take samples of shape {tuple(samples.shape)}{when}: '
            f"{what_failed(error)}."
        ) from error
    wanted = (len(samples), num_classes)
    if not isinstance(logits, torch.Tensor):
        raise ValueError(
            f'{_KEY} is "{name}", whose output is a {type(logits).__name__}{when}, but it must be '
            f"a tensor of {wanted}: a logit per class."
        )
    if tuple(logits.shape) != wanted or logits.dtype != torch.float32:
        raise ValueError(
            f'{_KEY} is "{name}", whose output is {logits.dtype} {tuple(logits.shape)}{when} for '
            f"{len(samples)} samples of {num_classes} classes, but it must be float32 {wanted}."
        )
    if not torch.isfinite(logits).all():
        raise ValueError(
            f'{_KEY} is "{name}", whose output has NaN or infinity in it{when}: start it with '
            "smaller weights, or bring samples to another scale."
        )
    if not torch.equal(given, samples):
        raise ValueError(
            f'{_KEY} is "{name}", which changes the samples that it is given, and other models are '
            "given the same: compute out of place, x = x / 3 instead of x /= 3."
        )
    return logits
