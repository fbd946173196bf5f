"""User-defined models, from a function `make_model(shape, num_classes)`."""

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fl_core.text import type_name
from fl_core.user_code import call_user_code, describe_error


def build_user_model(path: str, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build the model of an import path."""
    model = call_user_code("model", path, tuple(shape), num_classes)
    if not isinstance(model, nn.Module):
        raise ValueError(
            f'model is "{path}", which returned {type_name(model)}: return a torch.nn.Module.'
        )
    weights = list(model.parameters())
    if any(map(is_lazy, weights)):
        raise ValueError(f'model is "{path}", which has lazy layers: give them sizes.')
    if not any(weight.requires_grad for weight in weights):
        raise ValueError(f'model is "{path}", which has no weights that can be trained.')
    for name, tensor in model.state_dict().items():
        kind = getattr(tensor, "dtype", "not a tensor")  # extra state may be anything
        if kind not in (torch.float32, torch.int64):
            raise ValueError(
                f'model is "{path}", but its {name} is {kind}: weights must be float32, and '
                "counters int64."
            )
    return model


def check_model(name: str, model: nn.Module, samples: torch.Tensor, num_classes: int) -> None:
    """Raise a ValueError unless a model returns one logit per class, in tests and in training."""
    with torch.random.fork_rng(devices=()):  # dropout draws random numbers
        for is_training in (False, True):
            model.train(is_training)
            logits = _logits(name, model, samples, num_classes, " in training" * is_training)
    if not logits.requires_grad:
        raise ValueError(
            f'model is "{name}", but PyTorch finds no gradient of its output: compute it '
            "without no_grad, detach or argmax."
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
            f'model is "{name}", which fails on samples of shape {tuple(samples.shape)}{when}: '
            f"{describe_error(error)}."
        ) from error
    expected = torch.float32, (len(samples), num_classes)
    is_tensor = isinstance(logits, torch.Tensor)
    if not is_tensor or (logits.dtype, tuple(logits.shape)) != expected:
        kind = f"{logits.dtype} {tuple(logits.shape)}" if is_tensor else type_name(logits)
        raise ValueError(
            f'model is "{name}", but its output is {kind}{when} for {len(samples)} samples of '
            f"{num_classes} classes: it must be a float32 tensor {expected[1]}, a logit per class."
        )
    if not torch.isfinite(logits).all():
        raise ValueError(
            f'model is "{name}", but its output contains NaN or infinity{when}: use smaller '
            "initial weights."
        )
    if not torch.equal(given, samples):
        raise ValueError(
            f'model is "{name}", which changes its input, and other models use the same samples: '
            "compute out of place, x = x / 3 instead of x /= 3."
        )
    right: torch.Tensor = logits
    return right
