"""How far a client's images have moved since it was last asked for its signature (FLT's δ).

FLT's Algorithm 3 does not say by which measure. Ours needs no labels, no encoder and nothing stored
at the client: it compares 66 numbers.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from fl_core.messages import protocol

Float64 = NDArray[np.float64]

_PURPOSE = 0x5AF7
# Of the images between the two sketches, as many are taken to be others of the same kind. With
# none, chance alone moves clients of 30 images; with all, half of them exchanged for another
# task's go unseen (docs/methods.md has the figures).
_REPLACED = 0.5


def image_sketch(images: torch.Tensor) -> Float64:
    """Return the number of images, their total variance, and the position of their mean.

    From uint8 (n, C, H, W) to float64 (protocol.SKETCH_SIZE,): n; the variance of pixels in [0, 1],
    summed over pixels; and the mean image under a random projection that is the same for all.
    """
    flat = images.flatten(1).cpu().numpy()
    count, total = len(flat), flat.sum(axis=0, dtype=np.int64)
    squares = np.einsum("np,np->p", flat, flat, dtype=np.int64)
    # In whole numbers, so that images that are all the same have a variance of exactly 0.
    variance = np.sum(count * squares - total**2) / (255.0 * count) ** 2
    mean = total / (255 * count)
    rng = np.random.default_rng(_PURPOSE)
    places = protocol.SKETCH_SIZE - 2
    projection = rng.standard_normal((len(mean), places), np.float32) / np.sqrt(places)
    return np.array([count, variance, *(mean @ projection)])


def data_shift(known: Float64, present: Float64) -> float:
    """Return δ, the distance between two sketches' means in units of the present spread.

    δ² = max(0, ‖μ − μ₀‖² − ½(σ₀²/n₀ + σ²/n)) / σ². What is subtracted is what other images of the
    same kind instead of half of the old ones would explain. Where all present images are the same,
    δ is 1 if they have moved at all.
    """
    (count_then, variance_then), (count, variance) = known[:2], present[:2]
    moved = np.sum((present[2:] - known[2:]) ** 2)
    by_chance = _REPLACED * (variance_then / count_then + variance / count)
    if variance == 0:
        return float(moved > by_chance)
    return float(np.sqrt(max(0.0, moved - by_chance) / variance))
