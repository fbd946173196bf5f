"""Synthetic images of tasks that differ by a chosen degree (FedHC, section 4, only names it)."""

from math import ceil
from string import digits

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from torch import Tensor

from fl_core.data.dataset import Dataset, Groups
from fl_core.data.settings import SYNTHETIC

CLASSES = tuple(digits)
TRAIN_IMAGES, TEST_IMAGES = 4_000, 2_000  # of all tasks together
_SIDE = 28
_SMOOTHNESS = 4.0  # pixels, the standard deviation of the filter
_SMOOTH_NOISE = 1.0
_WHITE_NOISE = 0.5
_GREY, _CONTRAST = 127.5, 30.0
_STREAM = 0x5F171


def make_synthetic(num_tasks: int, heterogeneity: float, seed: int) -> Dataset:
    """Return grey images of 28×28 in ten classes, which differ between tasks.

    Every class has a common prototype, a smooth random field, and another one in each task; an
    image is √(1 − h²)·common + h·another plus noise, where h is the heterogeneity, in [0, 1], on
    which strength and noise do not depend. The groups are task·10 + class. All have the same share
    of `TRAIN_IMAGES` and `TEST_IMAGES`, rounded up.
    """
    rng = np.random.default_rng([seed, _STREAM])
    common = smooth_fields(rng, len(CLASSES))
    groups = len(CLASSES) * num_tasks
    counts = [ceil(images / groups) for images in (TRAIN_IMAGES, TEST_IMAGES)]
    train: list[Tensor] = []
    test: list[Tensor] = []
    for _ in range(num_tasks):
        fields = smooth_fields(rng, len(CLASSES))
        prototypes = np.sqrt(1 - heterogeneity**2) * common + heterogeneity * fields
        for images, count in zip((train, test), counts, strict=True):
            images.append(_noisy(prototypes.repeat(count, axis=0), rng))
    train_groups, test_groups = (torch.arange(groups).repeat_interleave(n) for n in counts)
    names = tuple(f"{label} in task {task}" for task in range(num_tasks) for label in CLASSES)
    labels, test_labels = train_groups % len(CLASSES), test_groups % len(CLASSES)
    parts = torch.cat(train), labels, torch.cat(test), test_labels
    return Dataset(SYNTHETIC, *parts, CLASSES, Groups(train_groups, test_groups, names))


def smooth_fields(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Return smooth random fields, shape (count, 28, 28), each with a mean square of 1."""
    white = rng.standard_normal((count, _SIDE, _SIDE))
    fields: NDArray[np.float64] = gaussian_filter(white, (0, _SMOOTHNESS, _SMOOTHNESS), mode="wrap")
    fields /= np.sqrt(np.mean(fields**2, axis=(1, 2), keepdims=True))
    return fields


def _noisy(clean: NDArray[np.float64], rng: np.random.Generator) -> Tensor:
    """Return clean fields, shape (n, 28, 28), with noise, as uint8 (n, 1, 28, 28)."""
    fields = clean + _SMOOTH_NOISE * smooth_fields(rng, len(clean))
    fields += _WHITE_NOISE * rng.standard_normal(clean.shape)
    grey = np.clip(np.round(_GREY + _CONTRAST * fields), 0, 255).astype(np.uint8)
    return torch.from_numpy(grey).unsqueeze(1)
