"""The CNN of these experiments with the batch normalisation that FedBN's authors have.

Their digits model (med-air/FedBN, `nets/models.py`) normalises after the hidden layers, too. The
product's `cnn-norm` does not, since a batch of one image cannot be normalised there; no client of
these experiments has one.
"""

from collections import OrderedDict

from torch import nn

from fl_core.models.build import ImageShape, cnn_norm


def cnn_norm_throughout(shape: ImageShape, num_classes: int) -> nn.Module:
    """Return `cnn_norm` with batch normalisation after both hidden layers, too."""
    layers = OrderedDict[str, nn.Module]()
    for name, layer in cnn_norm(shape, num_classes).named_children():
        layers[name] = layer
        if isinstance(layer, nn.Linear) and name != "output":
            layers[name.replace("hidden", "hidden-norm")] = nn.BatchNorm1d(layer.out_features)
    return nn.Sequential(layers)
