"""Models of one's own that can, and that cannot, be trained with noise."""

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, dropout, layer_norm

from clients.privacy.private_models import check_private_model

SAMPLES = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


class Tried(nn.Module):
    """A linear layer behind whatever is tried."""

    def __init__(self, before):
        super().__init__()
        self.before, self.flat, self.last = before, nn.Flatten(), nn.Linear(20, 3)
        self.drop = nn.Dropout(0.1)

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
    ],
)
def test_what_looks_at_each_sample_alone_is_taken(before):
    check_private_model("own:Tried", Tried(before), SAMPLES, 1.0)


@pytest.mark.parametrize(
    "before",
    [
        lambda model, x: x - x.mean(0),
        lambda model, x: x - x[0],
        lambda model, x: x - x.mean(0) if model.training else x,
        lambda model, x: model.drop(x - x.mean(0) if model.training else x),
        lambda model, x: batch_norm(x.flatten(1), None, None, training=True),
        lambda model, x: x.squeeze(),
    ],
)
def test_what_looks_at_a_whole_batch_is_refused(before):
    with pytest.raises(ValueError, match=r'model is "own:Tried", which answers a sample alone'):
        check_private_model("own:Tried", Tried(before), SAMPLES, 1.0)


@pytest.mark.parametrize(
    "layer", [nn.LSTM(4, 4, batch_first=True), nn.GRU(4, 4, batch_first=True)], ids=str
)
def test_layers_without_gradients_of_each_sample_are_refused(layer):
    model = Tried(lambda model, x: model.recurrent(x)[0])
    model.recurrent = layer
    with pytest.raises(ValueError, match=r"finds no gradient of each sample .*: use other layers"):
        check_private_model("own:Tried", model, SAMPLES, 1.0)


def test_attention_is_refused_and_weights_that_nothing_uses():
    attention = Tried(lambda model, x: model.attention(x, x, x)[0])
    attention.attention = nn.MultiheadAttention(4, 2, batch_first=True)
    idle = Tried(lambda model, x: x)
    idle.idle = nn.Linear(2, 2)
    for model in (attention, idle):
        with pytest.raises(ValueError, match="training-epsilon 1, as Opacus finds no gradient"):
            check_private_model("own:Tried", model, SAMPLES, 1.0)
