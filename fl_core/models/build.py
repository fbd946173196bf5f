"""Build the models of `MODELS` from a seed."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod

import torch
from torch import nn

from fl_core.models.user_model import build_user_model
from fl_core.user_code import is_import_path

ImageShape = tuple[int, ...]
"""Channels, height, width; of other samples, any shape."""


def _sequential(**layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(layers))


def logistic_regression(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return one linear layer on the pixels (RCC-PFL's model for MNIST)."""
    return _sequential(flatten=nn.Flatten(), output=nn.Linear(prod(shape), num_classes))


def perceptron(shape: ImageShape, num_classes: int, hidden: int) -> nn.Module:
    """Return a perceptron with one hidden layer, of 200 in FLT and IFCA, and of 32 in MT-HFL."""
    return _sequential(
        flatten=nn.Flatten(),
        hidden=nn.Linear(prod(shape), hidden),
        relu=nn.ReLU(),
        output=nn.Linear(hidden, num_classes),
    )


class Blocked(nn.Module):
    """Converts images on a CPU to oneDNN's layout once, instead of in each layer.

    Images that need a gradient are not converted: Opacus inspects the layers, for DP-SGD.
    """

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the same images."""
        there = images.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return images.to_mkldnn() if there and not images.requires_grad else images


class Dense(nn.Module):
    """Converts from oneDNN's layout back."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the same numbers."""
        return values.to_dense() if values.is_mkldnn else values


def cnn(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return the CNN of RCC-PFL and MT-HFL: two 5×5 convolutions with 2×2 max-pools, 120-84-C.

    The papers give no channel counts; 6 and 16 are LeNet-5's.
    """
    channels, height, width = shape
    flat = 16 * (((height - 4) // 2 - 4) // 2) * (((width - 4) // 2 - 4) // 2)
    # Pooled before ReLU, which is the same to the bit, gradients too, and a quarter of ReLU's work.
    return _sequential(
        blocked=Blocked(),
        conv1=nn.Conv2d(channels, 6, 5),
        pool1=nn.MaxPool2d(2),
        relu1=nn.ReLU(),
        conv2=nn.Conv2d(6, 16, 5),
        pool2=nn.MaxPool2d(2),
        relu2=nn.ReLU(),
        dense=Dense(),
        flatten=nn.Flatten(),
        hidden1=nn.Linear(flat, 120),
        relu3=nn.ReLU(),
        hidden2=nn.Linear(120, 84),
        relu4=nn.ReLU(),
        output=nn.Linear(84, num_classes),
    )


def cnn_norm(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return `cnn` with batch normalisation after each convolution (FedBN), not hidden layers."""
    layers = OrderedDict[str, nn.Module]()
    for name, layer in cnn(shape, num_classes).named_children():
        if not isinstance(layer, Blocked):  # its gradient of a normalisation differs
            layers[name] = layer
        if isinstance(layer, nn.Conv2d):
            layers[name.replace("conv", "norm")] = nn.BatchNorm2d(layer.out_channels)
    return nn.Sequential(layers)


def leaf_cnn(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return LEAF's CNN for FEMNIST (FLT, scenario 3): two padded 5×5 convolutions, 2048-C."""
    channels, height, width = shape
    return _sequential(
        conv1=nn.Conv2d(channels, 32, 5, padding="same"),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 5, padding="same"),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        hidden=nn.Linear(64 * (height // 4) * (width // 4), 2048),
        relu3=nn.ReLU(),
        output=nn.Linear(2048, num_classes),
    )


_BUILDERS: dict[str, Callable[[ImageShape, int], nn.Module]] = {
    "logistic-regression": logistic_regression,
    "mlp": lambda shape, classes: perceptron(shape, classes, 200),
    "mlp-32": lambda shape, classes: perceptron(shape, classes, 32),
    "cnn": cnn,
    "cnn-norm": cnn_norm,
    "leaf-cnn": leaf_cnn,
}


LEAST_SIDES = {"cnn": 16, "cnn-norm": 16, "leaf-cnn": 4}
"""The smallest height and width, in pixels, of images for convolutional models."""


def build_model(name: str, shape: ImageShape, num_classes: int, seed: int) -> nn.Module:
    """Build a model of `MODELS`, or of an import path, with random weights that depend on `seed`.

    The state of PyTorch's global generator does not change.
    """
    with seeded(seed):
        return _build(name, shape, num_classes)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators of the CPU and of a CUDA device, and restore them afterwards.

    Without a GPU, `torch.manual_seed` would store a call with a traceback for each kind of GPU.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        (torch.manual_seed if gpus else torch.default_generator.manual_seed)(seed)
        yield


def empty_model(name: str, shape: ImageShape, num_classes: int, device: torch.device) -> nn.Module:
    """Build a model without initial weights, which would take up to 70 ms at each message."""
    model = unfilled_model(name, shape, num_classes)
    return model.to(device) if is_import_path(name) else model.to_empty(device=device)


def unfilled_model(name: str, shape: ImageShape, num_classes: int) -> nn.Module:
    """Build a model without memory for its weights; a user-defined one is built with them."""
    if is_import_path(name):
        return build_model(name, shape, num_classes, 0)
    with torch.device("meta"):
        return _build(name, shape, num_classes)


def _build(name: str, shape: ImageShape, num_classes: int) -> nn.Module:
    if is_import_path(name):
        return build_user_model(name, shape, num_classes)
    side = LEAST_SIDES.get(name, 0)
    if side and (len(shape) != 3 or min(shape[1:]) < side):
        raise ValueError(
            f"model is {name}, which needs images (channels, height, width) of at least {side}×"
            f"{side} pixels, but samples have the shape {tuple(shape)}: use mlp, or a user-defined "
            "model."
        )
    return _BUILDERS[name](shape, num_classes)
