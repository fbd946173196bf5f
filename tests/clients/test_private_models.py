"""User-defined models that can, and that cannot, be trained with noise."""

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, dropout, layer_norm

from clients.private_models import check_private_model

SAMPLES = torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0))


class Tried(nn.Module):
    """A linear layer behind the layers that are tried."""

    def __init__(self, before):
        super().__init__()
        self.before, self.flat, self.last = before, nn.Flatten(), nn.Linear(20, 3)
        self.drop, self.embedding = nn.Dropout(0.1), nn.Embedding(2, 4)

    def forward(self, x):
        return self.last(self.flat(self.before(self, x)))


@pytest.mark.parametrize(
    "before",
    [
        lambda model, x: x,
        lambda model, x: x - x.mean(1, keepdim=True),
        lambda model, x: dropout(x, training=model.training),
        lambda model, x: model.drop(x),
        lambda model, x: layer_norm(x, (4,)),
        lambda model, x: model.embedding(x[..., 0].round().long()),
    ],
)
def test_what_looks_at_each_sample_alone_is_taken(before):
    check_private_model("own:Tried", Tried(before), SAMPLES, 1.0)


@pytest.mark.parametrize(
    "before",
    [
        lambda model, x: x - x.mean(0),
        lambda model, x: x - x.mean(0).detach(),
        lambda model, x: x - x[0],
        lambda model, x: x - x.mean(0) if model.training else x,
        lambda model, x: model.drop(x - x.mean(0) if model.training else x),
        lambda model, x: batch_norm(x.flatten(1), None, None, training=True),
        lambda model, x: x.squeeze(),
        lambda model, x: x / len(x),
        lambda model, x: x + 1e-3 * (5 * x.mean()).tanh(),
        lambda model, x: x - 1e-3 * (20 * x.amax(0)).sigmoid(),
        lambda model, x: x + x.round().sum(0),
    ],
)
def test_what_looks_at_a_whole_batch_is_refused(before):
    with pytest.raises(ValueError, match=r'model is "own:Tried", which mixes the samples of'):
        check_private_model("own:Tried", Tried(before), SAMPLES, 1.0)


@pytest.mark.parametrize(
    ("layer", "replacement"),
    [
        (nn.LSTM(4, 4, batch_first=True), "DPLSTM"),
        (nn.GRU(4, 4, batch_first=True), "GRU class"),
        (nn.MultiheadAttention(4, 2, batch_first=True), "DPMultiheadAttention"),
    ],
)
def test_layers_that_opacus_does_not_support_are_refused(layer, replacement):
    def before(model, x):
        return model.layer(x, x, x)[0] if isinstance(layer, nn.MultiheadAttention) else layer(x)[0]

    model = Tried(before)
    model.layer = layer
    said = rf"training-epsilon 1. Opacus says: .*{replacement}.* Use other layers"
    with pytest.raises(ValueError, match=said):
        check_private_model("own:Tried", model, SAMPLES, 1.0)
