"""Differentially private training: DP-SGD by Opacus, with noise from another generator.

M. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016; A. Yousefpour et al., "Opacus:
User-Friendly Differential Privacy Library in PyTorch", 2021. Each step draws its samples
independently (Poisson sampling), for which Opacus' accountant counts.
"""

import math
import warnings
from functools import lru_cache

import torch
from torch import nn

from clients.privacy import Promise, Randomness
from clients.settings import TrainingSettings
from clients.training.losses import loss_of, mean_per_sample
from clients.training.train import as_pixels, build_optimizer
from fl_core.extras import load_extra
from fl_core.objectives.objective import GradientTerm, no_term

_USER = "training-epsilon"
# Those of Opacus, and more: for a small ε or few steps, the best order is high.
_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(12, 64), 80, 128, 256, 512, 1024)


def steps_of(num_images: int, settings: TrainingSettings) -> tuple[int, float]:
    """Return a round's number of steps, as without privacy; and a sample's probability in each."""
    steps = settings.local_epochs * math.ceil(num_images / settings.batch_size)
    return steps, min(1.0, settings.batch_size / num_images)


@lru_cache(maxsize=256)
def training_noise(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """Return σ for which `steps` steps are (ε, δ)-differentially private, to 1 % of ε below it.

    `rate` is each sample's probability in a step; steps are those of all rounds.
    """
    utils = load_extra("opacus.accountants.utils", _USER)
    try:
        with warnings.catch_warnings():
            # That another order might be better: what it finds with these is true nevertheless.
            warnings.filterwarnings("ignore", "Optimal order is the", UserWarning)
            found = utils.get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant="rdp",
                epsilon_tolerance=epsilon / 100,
                alphas=list(_ORDERS),
            )
    except ValueError as error:
        raise ValueError(
            f"training-epsilon is {epsilon:g}, which no amount of noise gives over {steps} steps "
            f"with privacy-delta {delta:g}: raise one of the two, or train in fewer rounds."
        ) from error
    return float(found)


def train_privately(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    settings: TrainingSettings,
    promise: Promise,
    randomness: Randomness,
    add_term: GradientTerm = no_term,
) -> None:
    """Train `model` in place for one of `promise.rounds` rounds; a loss would reveal the samples.

    Parameters are as in `clients.training.train.train`; layers treat samples separately.
    `randomness` draws the samples of each step, and the noise; `add_term` is called once gradients
    have their noise, and must not look at samples.
    """
    opacus = load_extra("opacus", _USER)
    steps, rate = steps_of(len(labels), settings)
    sigma = training_noise(
        promise.training_epsilon, promise.privacy_delta, rate, steps * promise.rounds
    )
    expected = rate * len(labels)
    model.train()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss_function = loss_of(settings.loss, labels)
    if settings.loss:
        loss_function = mean_per_sample(loss_function)
    wrapped = opacus.GradSampleModule(model)
    optimizer = opacus.optimizers.DPOptimizer(
        build_optimizer(settings, model),
        noise_multiplier=0.0,  # Opacus would draw it from 32 bits of seed: `_add_noise` does it
        max_grad_norm=promise.training_clip,
        expected_batch_size=expected,
    )
    deviation = sigma * promise.training_clip / expected

    def finish(_: object) -> None:
        _add_noise(model, deviation, randomness)
        add_term()

    optimizer.attach_step_hook(finish)
    for _ in range(steps):
        batch = torch.from_numpy(randomness.random(len(labels)) < rate).to(images.device)
        optimizer.zero_grad()
        # Opacus' hooks warn where no input has a gradient.
        pixels = as_pixels(images[batch]).requires_grad_()
        # A mean over samples, as Opacus expects; with no sample, the step is nothing but noise.
        loss = loss_function(wrapped(pixels), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        # What is not finite cannot be cut to a length: in a model of a server's choosing, a single
        # sample could turn the sum into NaN.
        for gradients in optimizer.grad_samples:
            gradients.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        optimizer.step()
    wrapped.to_standard_module()
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            raise ValueError(
                f"training-epsilon is {promise.training_epsilon:g}, but training changes the "
                f"model's {name}, to which no noise is added: use layers that store nothing of "
                "samples, such as group or layer normalisation."
            )


def _add_noise(model: nn.Module, deviation: float, randomness: Randomness) -> None:
    """Add noise of this deviation to each number of the gradient."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            noise = torch.from_numpy(randomness.standard_normal(tuple(parameter.shape)))
            parameter.grad.add_(noise.to(parameter.grad) * deviation)
