"""Whether a model of one's own can be trained with noise: each sample by itself, and by Opacus."""

from __future__ import annotations

import warnings

import torch
from torch import nn

from fl_core.extras import load_extra
from fl_core.models.build import seeded
from fl_core.text import one_line


def check_private_model(path: str, model: nn.Module, samples: torch.Tensor, epsilon: float) -> None:
    """Refuse a model for which ε would not hold, or whose gradients of each sample cannot be had.

    Parameters
    ----------
    path : str
        Its import path.
    model : nn.Module
        One for this alone: it cannot be used afterwards.
    samples : torch.Tensor, float32, shape (n, …)
        A few, at least two, as they are in training.
    epsilon : float

    Raises
    ------
    ValueError
        If it is refused.
    MissingExtraError
        If it is not yet, and Opacus is not installed.
    """
    if _mixes_samples(model, samples):
        raise ValueError(
            f'model is "{path}", which answers a sample alone otherwise than among {len(samples)}, '
            f"but training-epsilon is {epsilon:g}, and noise is for each sample by itself: take "
            "out what looks at a whole batch, such as its mean, or set training-epsilon to 0."
        )
    load_extra("opacus", "training-epsilon", "set it to 0")
    try:
        _take_step(model, samples)
    except Exception as error:  # Opacus raises several kinds, and so do layers in its hooks
        raise ValueError(
            f'model is "{path}", which cannot be trained with training-epsilon {epsilon:g}, as '
            f"Opacus finds no gradient of each sample ({one_line(str(error), 200).rstrip('. ')}): "
            "use other layers (for LSTM and MultiheadAttention, opacus.layers has DPLSTM and "
            "DPMultiheadAttention), or set training-epsilon to 0."
        ) from error


@torch.no_grad()
def _mixes_samples(model: nn.Module, samples: torch.Tensor) -> bool:
    """Return whether an answer depends on other samples of a batch, as far as a few can show.

    When tested and when trained, for a model may tell them apart. Where it draws, as by dropout,
    answers differ anyway, and gradients alone say whether one depends on other samples.
    """
    for is_training in (False, True):
        model.train(is_training)
        if _depends_on_others(model, samples):
            return True
        answers = []
        for seed in (0, 1):
            with seeded(seed):
                answers.append(model(samples))
        if not torch.equal(*answers):
            continue
        try:
            alone = torch.cat([model(one[None]) for one in samples])
        except Exception:  # such as layers that need a second sample
            return True
        if alone.shape != answers[0].shape or not torch.allclose(
            alone, answers[0], rtol=1e-3, atol=1e-5, equal_nan=True
        ):
            return True
    return False


@torch.enable_grad()
def _depends_on_others(model: nn.Module, samples: torch.Tensor) -> bool:
    """Return whether the gradient of an answer is not zero at another sample."""
    given = samples.clone().requires_grad_()
    answers = model(given)
    for place in range(len(samples)):
        (found,) = torch.autograd.grad(
            answers[place].sum(), given, retain_graph=True, allow_unused=True
        )
        if found is not None and torch.cat([found[:place], found[place + 1 :]]).any():
            return True
    return False


def _take_step(model: nn.Module, samples: torch.Tensor) -> None:
    """Train once, as `train_privately` does, without noise and for no loss in particular."""
    opacus = load_extra("opacus", "training-epsilon")
    with warnings.catch_warnings(), seeded(0):
        warnings.simplefilter("ignore")
        model.train()
        wrapped = opacus.GradSampleModule(model)
        optimizer = opacus.optimizers.DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1),
            noise_multiplier=0.0,
            max_grad_norm=1.0,
            expected_batch_size=len(samples),
        )
        wrapped(samples.clone().requires_grad_()).sum().backward()
        optimizer.step()
