"""The CNN with batch normalisation throughout, which experiments/fedbn.toml takes."""

import torch

from experiments.norm_models import cnn_norm_throughout
from fl_core.objectives.private_norms import norm_layers


def test_every_layer_but_the_last_is_normalised():
    model = cnn_norm_throughout((1, 28, 28), 10)
    assert norm_layers(model) == "norm1,norm2,hidden-norm1,hidden-norm2"
    names = [name for name, _ in model.named_children()]
    assert [names[names.index(one) + 1] for one in ("conv1", "conv2", "hidden1", "hidden2")] == [
        "norm1",
        "norm2",
        "hidden-norm1",
        "hidden-norm2",
    ]
    assert model(torch.rand(3, 1, 28, 28)).shape == (3, 10)
