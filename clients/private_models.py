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
    """Return whether an answer depends on a batch's other samples, draws being the same."""
    for is_training in (False, True):  # a model may distinguish them
        model.train(is_training)
        for index in range(len(samples)):
            others = 2 * samples + 1
            others[index] = samples[index]
            with seeded(0):
                before = model(samples)[index]
            with seeded(0):
                after = model(others)[index]
            if not torch.allclose(before, after, rtol=1e-3, atol=1e-5, equal_nan=True):
                return True
        try:
            if model(samples[:1])[0].shape != before.shape:
                return True
        except Exception:  # such as layers that need a second sample
            return True
    return False
