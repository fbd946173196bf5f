"""Feature maps that are formulas, for tables and series, with constants that are the same for all.

Random Fourier features: A. Rahimi and B. Recht, "Random Features for Large-Scale Kernel Machines",
NIPS 2007. docs/comparing-clients.md has how these maps were chosen.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clients.features.dimensions import FOURIER_DIMENSION, are_series, octaves

_FOURIER_SEED = 0xF0A71E
_TINY = 1e-12


def raw_values(samples: Tensor) -> Tensor:
    """Return each sample's numbers, float32 (n, d): of uint8, pixels in [0, 1]."""
    if samples.dtype not in (torch.uint8, torch.float32) or samples.ndim < 2:
        raise ValueError(
            f"the samples are {samples.dtype} of shape {tuple(samples.shape)}, but features need "
            "torch.uint8 or torch.float32 of shape (n, …): convert and stack them."
        )
    return samples.flatten(1) if samples.is_floating_point() else samples.flatten(1) / 255


def fourier(samples: Tensor) -> Tensor:
    """Return random Fourier features of each sample's p numbers, float32 (n, 256).

    cos(xw) and sin(xw) of 128 directions w, divided by √128: the inner product of two rows
    approximates the Gaussian kernel exp(−‖x − y‖²/(2p)), for columns of deviation 1.
    """
    values = raw_values(samples).numpy().astype(np.float64)
    angles = values @ _directions(values.shape[1])
    rows = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return torch.from_numpy(rows / np.sqrt(FOURIER_DIMENSION // 2)).float()


@lru_cache(maxsize=2)
def _directions(columns: int) -> NDArray[np.float64]:
    """Draw w for each feature, shape (p, 128): the same for all clients with p columns."""
    rng = np.random.default_rng([_FOURIER_SEED, columns])
    scale = 1 / np.sqrt(columns)
    directions: NDArray[np.float64] = rng.normal(0, scale, (columns, FOURIER_DIMENSION // 2))
    return directions


def power_spectrum(series: Tensor) -> Tensor:
    """Return the mean, the deviation and the spectrum of each channel, float32 (n, d), d C(2 + b).

    Of float32 (n, C, T), T at least 2. The spectrum is the root of the energy in each of b octaves
    of the real FFT's frequencies (1; 2 and 3; 4 to 7; …, in periods per series), scaled such that
    their squares add up to the deviation's, but for an even length's last frequency, which counts
    twice. Each row is scaled to length 1, so that a vigorous series does not outweigh a calm one.
    """
    is_float = series.dtype == torch.float32
    if not are_series(tuple(series.shape[1:]), is_float=is_float):
        raise ValueError(
            f"the samples are {series.dtype} of shape {tuple(series.shape)}, but power-spectrum "
            "needs series, torch.float32 of shape (n, channels, at least 2 times): use fourier."
        )
    values = series.numpy().astype(np.float64)
    amplitudes = np.abs(np.fft.rfft(values, axis=2)) / values.shape[2]
    energies = 2 * np.add.reduceat(amplitudes**2, octaves(values.shape[2]), axis=2)
    parts = [values.mean(axis=2, keepdims=True), values.std(axis=2, keepdims=True)]
    rows = torch.from_numpy(np.concatenate([*parts, np.sqrt(energies)], axis=2)).flatten(1)
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return (rows / lengths.clamp_min(_TINY)).float()
