"""Check that a user-defined model can be trained with noise: by sample, and by Opacus."""

import torch
from torch import nn

from fl_core.extras import load_extra
from fl_core.models.build import seeded
from fl_core.text import one_line


def check_private_model(path: str, model: nn.Module, samples: torch.Tensor, epsilon: float) -> None:
    """Refuse a model that mixes samples, so that ε would not hold, or has unsupported layers.

    `samples` are a few, at least two, float32 (n, …), as in training.
    """
    if _mixes_samples(model, samples):
        raise ValueError(
            f'model is "{path}", which mixes the samples of a batch, but training-epsilon is '
            f"{epsilon:g}, which adds noise sample by sample: remove what depends on a whole "
            "batch, such as its mean, or set training-epsilon to 0."
        )
    opacus = load_extra("opacus.validators", "training-epsilon", "set it to 0")
    unsupported = opacus.ModuleValidator.validate(model.train())
    if unsupported:
        raise ValueError(
            f'model is "{path}", which cannot be trained with training-epsilon {epsilon:g}. Opacus '
            f"says: {one_line(str(unsupported[0]), 400)} Use other layers, such as those of "
            "opacus.layers, or set training-epsilon to 0."
        )


@torch.no_grad()
def _mixes_samples(model: nn.Module, samples: torch.Tensor) -> bool:
    """Return whether an answer depends on a batch's other samples, as far as a few can show."""

    def answers(batch: torch.Tensor, seed: int = 0) -> torch.Tensor:
        with seeded(seed):
            found: torch.Tensor = model(batch)
        return found

    for is_training in (False, True):  # a model may distinguish them
        model.train(is_training)
        if _has_gradients_at_others(model, samples):
            return True
        usual = answers(samples)
        for index in range(len(samples)):
            others = samples.roll(1, 0)  # of values that a model may look up
            others[index] = samples[index]
            if not _are_close(answers(others)[index], usual[index]):
                return True
        if not torch.equal(usual, answers(samples, seed=1)):
            continue  # it draws, otherwise for a lone sample than for a batch
        try:
            alone = torch.cat([model(one[None]) for one in samples])
        except Exception:  # such as layers that need a second sample
            return True
        if alone.shape != usual.shape or not _are_close(alone, usual):
            return True
    return False


def _are_close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


@torch.enable_grad()
def _has_gradients_at_others(model: nn.Module, samples: torch.Tensor) -> bool:
    """Return whether the gradient of an answer is not zero at another sample."""
    given = samples.clone().requires_grad_()
    answers = model(given)
    for index in range(len(samples)):
        (found,) = torch.autograd.grad(
            answers[index].sum(), given, retain_graph=True, allow_unused=True
        )
        if found is not None and torch.cat([found[:index], found[index + 1 :]]).any():
            return True
    return False
