"""A user-defined feature map: a function from samples to a matrix."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fl_core.text import type_name
from fl_core.user_code import call_user_code

_FEW = 3
_STREAM = 0xFEA7


def user_features_map(path: str) -> Callable[[Tensor], Tensor]:
    """Return the feature map of an import path, from samples as stored to float32 (n, d)."""

    def phi(samples: Tensor) -> Tensor:
        # A copy: it may work in place, on what others will train on.
        return _checked(path, samples, call_user_code("features", path, samples.clone()))

    return phi


def _checked(path: str, samples: Tensor, found: object) -> Tensor:
    if isinstance(found, np.ndarray):
        found = torch.from_numpy(np.ascontiguousarray(found))
    if not isinstance(found, Tensor):
        raise ValueError(
            f'features is "{path}", which returned {type_name(found)}: it must return a '
            "tensor or an array, float32 (n, d)."
        )
    rows = found.detach().cpu()
    is_matrix = rows.dim() == 2 and len(rows) == len(samples) and rows.shape[1] > 0
    if rows.dtype != torch.float32 or not is_matrix:
        raise ValueError(
            f'features is "{path}", which returned {str(rows.dtype).removeprefix("torch.")} '
            f"{tuple(rows.shape)} for {len(samples)} samples, but it must be float32 "
            f"({len(samples)}, d), and d must be at least 1."
        )
    if not torch.isfinite(rows).all():
        raise ValueError(
            f'features is "{path}", which returned numbers that are infinite or NaN: a sample of '
            "zeros, say, cannot be divided by its length."
        )
    return rows.contiguous()


def check_features_are_per_sample(path: str, samples: Tensor) -> None:
    """Refuse a feature map with rows that do not depend on their samples alone, by a ValueError.

    What is fitted to a client's samples differs between clients. `samples` are at least two.
    """
    phi = user_features_map(path)
    together, alone = phi(samples), phi(samples[:1])
    if together.shape[1] != alone.shape[1] or not torch.allclose(
        together[:1], alone, rtol=1e-3, atol=1e-5
    ):
        raise ValueError(
            f'features is "{path}", which returned different features for a sample alone and '
            f"among {len(samples)}: each row must depend on its sample only, so that all clients "
            "compare the same features. Fit scales or axes beforehand, to public data."
        )


def user_features_dimension(path: str, shape: tuple[int, ...], is_float: bool) -> int:
    """Return d for samples of this shape, by a few random ones."""
    return user_features_map(path)(random_samples(shape, is_float=is_float)).shape[1]


def random_samples(shape: tuple[int, ...], *, is_float: bool) -> Tensor:
    """Return three random samples of this shape: float32 in [0, 1), or uint8."""
    generator = torch.Generator().manual_seed(_STREAM)
    if is_float:
        return torch.rand((_FEW, *shape), generator=generator)
    return torch.randint(0, 256, (_FEW, *shape), dtype=torch.uint8, generator=generator)
