"""The models of FLT's authors' code, which experiments/flt-code.toml and its like take."""

import torch

from experiments.flt_models import cnn_of_centred, mlp_with_dropout
from fl_core.models.build import build_model, cnn, seeded


def test_half_the_hidden_units_are_dropped_while_it_trains_and_none_in_a_test():
    with seeded(3):
        model = mlp_with_dropout((1, 4, 4), 10)
    images = torch.rand(5, 1, 4, 4)
    plain = build_model("mlp", (1, 4, 4), 10, seed=3)
    torch.testing.assert_close(model.eval()(images), plain(images))
    model.train()
    stored = model.get_submodule("dropout")(torch.ones(1, 100_000))
    assert set(stored.unique().tolist()) == {0, 2}
    assert abs(float(stored.mean()) - 1) < 0.02
    assert not torch.equal(model(images), model(images))


def test_pixels_are_taken_to_minus_one_and_one():
    with seeded(3):
        model = cnn_of_centred((3, 32, 32), 10)
    with seeded(3):
        plain = cnn((3, 32, 32), 10)
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), plain(images * 2 - 1))
    assert model.get_submodule("centred")(torch.tensor([0.0, 1.0])).tolist() == [-1, 1]
