"""The feature maps Φ: what a client's samples become before their spectrum is compared.

Labels never enter, and no map is trained here: most are formulas, two are networks trained on
ImageNet, read up to their global average pool.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from clients.features.encoders import ENCODERS, load_encoder
from clients.features.formulas import fourier, power_spectrum, raw_values
from clients.features.hog import hog
from clients.features.user_features import user_features_map
from clients.settings import FEATURES
from fl_core.user_code import is_import_path

FeatureMap = Callable[[Tensor], Tensor]
"""From samples to features, float32 (n, d), both on the CPU: each row a function of its sample
alone. `hog` and the networks take images, uint8 (n, C, H, W), C 1 or 3; `power-spectrum`
series, float32 (n, C, T); `raw` and `fourier` all."""

_FORMULAS: dict[str, FeatureMap] = {
    "hog": hog,
    "raw": raw_values,
    "fourier": fourier,
    "power-spectrum": power_spectrum,
}


def feature_map(
    name: str, *, cache_dir: Path | None = None, device: torch.device | None = None
) -> FeatureMap:
    """Return the feature map of that name, with its weights loaded and checked.

    `hog`: histograms of oriented gradients. `raw`: pixels in [0, 1], or float32 as it is.
    `fourier`, `power-spectrum`: those of `clients.features.formulas`. `resnet18`: 512 features of
    images at 224 pixels. `efficientnet-lite0`: 1280 features of images at 96 pixels. Or the import
    path of a user-defined one. The networks compute on `device` and store their features in
    `cache_dir`, a file for each set of samples; the other maps use the CPU.
    """
    if name in ENCODERS:
        return load_encoder(ENCODERS[name], cache_dir, device or torch.device("cpu"))
    if is_import_path(name):
        return user_features_map(name)
    if name not in _FORMULAS:
        raise ValueError(f'features is "{name}", but must be one of {", ".join(FEATURES)}.')
    return _FORMULAS[name]
