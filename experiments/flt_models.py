"""The models of FLT's authors' code, where this project has others."""

from collections import OrderedDict

import torch
from torch import nn

from fl_core.models.build import ImageShape, cnn, perceptron


def mlp_with_dropout(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return `mlp`, 200 hidden units, half of which are dropped in each step of training."""
    layers = OrderedDict[str, nn.Module]()
    for name, layer in perceptron(shape, num_classes, 200).named_children():
        layers[name] = layer
        if name == "hidden":
            layers["dropout"] = nn.Dropout(0.5)
    return nn.Sequential(layers)


class Centred(nn.Module):
    """Takes pixels from [0, 1] to [−1, 1]."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return other images of the same shape."""
        return images * 2 - 1


def cnn_of_centred(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return `cnn`, which is the authors', on the pixels that theirs sees."""
    return nn.Sequential(
        OrderedDict(centred=Centred(), **dict(cnn(shape, num_classes).named_children()))
    )
