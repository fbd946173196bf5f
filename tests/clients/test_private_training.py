import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from clients.privacy import Promise
from clients.private_training import steps_of, train_privately, training_noise
from clients.settings import TrainingSettings
from fl_core.objectives.objective import proximal_term
from tests.own_modules import own_modules


class Scripted:
    """Draws all samples into each batch, or none, and noise that is always the same."""

    def __init__(self, noise=0.0, drawn=0.0):
        self.noise, self.drawn = noise, drawn

    def random(self, size):
        return np.full(size, self.drawn)

    def standard_normal(self, shape):
        return np.full(shape, self.noise)


def linear(weights=0.0):
    """Return a model of one pixel and two classes without a bias."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    nn.init.constant_(model[1].weight, weights)
    return model


def white(count):
    return torch.full((count, 1, 1, 1), 255, dtype=torch.uint8)


SGD = TrainingSettings("sgd", learning_rate=1.0, batch_size=4, local_epochs=1)


def trained(randomness, clip, labels=(0, 0, 0, 1), settings=SGD, epsilon=1.0):
    """Return the weights after one step, and the σ with which it was taken."""
    model = linear()
    promise = Promise(training_epsilon=epsilon, training_clip=clip)
    labels = torch.tensor(labels)
    train_privately(model, white(len(labels)), labels, settings, promise, randomness)
    steps, rate = steps_of(len(labels), settings)
    sigma = training_noise(epsilon, 1e-5, rate, steps)
    return model[1].weight.detach().flatten().numpy(), sigma


def test_gradients_are_cut_image_by_image():
    # One pixel of 1, weights 0: each gradient is ±(−1/2, 1/2), of length 1/√2. Cut to 0.1·(∓1, ±1)
    # over √2, three of one kind and one of the other, divided by 4 images.
    cut, _ = trained(Scripted(), clip=0.1)
    expected = 2 * 0.1 / math.sqrt(2) / 4
    np.testing.assert_allclose(cut, [expected, -expected], rtol=1e-4)
    # Long enough a clip leaves them as they are.
    whole, _ = trained(Scripted(), clip=5)
    np.testing.assert_allclose(whole, [0.25, -0.25], rtol=1e-6)


class KeepsTheMean(nn.Module):
    """Gives the images back, and remembers their mean."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images):
        self.seen = images.detach().mean()
        return images


def test_what_a_model_stores_of_images_without_noise_never_leaves():
    model = nn.Sequential(KeepsTheMean(), linear())
    promise = Promise(training_epsilon=1.0)
    with pytest.raises(
        ValueError, match=r"training changes the model's 0\.seen, to which no noise"
    ):
        train_privately(model, white(4), torch.tensor([0, 0, 0, 1]), SGD, promise, Scripted())


def test_the_noise_of_a_step_is_sigma_times_the_clip():
    weights, sigma = trained(Scripted(noise=1), clip=0.1)
    quiet, _ = trained(Scripted(), clip=0.1)
    np.testing.assert_allclose(quiet - weights, sigma * 0.1 / 4, rtol=1e-4)


def test_a_step_without_any_image_is_nothing_but_noise():
    settings = TrainingSettings("sgd", learning_rate=1.0, batch_size=1, local_epochs=1)
    weights, sigma = trained(Scripted(noise=1, drawn=0.9), 0.1, settings=settings)
    # Four steps of one image on average.
    np.testing.assert_allclose(weights, [-4 * sigma * 0.1] * 2, rtol=1e-5)


@pytest.mark.parametrize("weight", [3e38, 1e30])
def test_an_image_with_an_overflowing_gradient_counts_for_nothing(weight):
    """Such a model can come from the server: finite, and only a white image overflows in it."""
    first = nn.Linear(1, 2, bias=False)
    nn.init.constant_(first.weight, weight)
    # Its logits are ±∞ for white images, the bias alone for black ones.
    model = nn.Sequential(nn.Flatten(), first, nn.Linear(2, 2))
    nn.init.constant_(model[2].weight, weight)
    model[2].weight.data[1] *= -1
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    images = torch.cat([torch.zeros(3, 1, 1, 1, dtype=torch.uint8), white(1)])
    promise = Promise(training_epsilon=1.0, training_clip=0.1)
    train_privately(model, images, torch.tensor([0, 0, 0, 0]), SGD, promise, Scripted())
    for name, tensor in model.state_dict().items():
        assert torch.isfinite(tensor).all(), name
    moved = model[2].bias.detach() - before["2.bias"]
    assert 0 < moved[0] <= 0.1


def test_the_accountant_is_that_of_abadi_et_al():
    from opacus.accountants.analysis.rdp import compute_rdp  # noqa: PLC0415

    # "Deep Learning with Differential Privacy", section 3.2: q = 0.01, σ = 4, δ = 1e-5, 10,000
    # steps: ε is about 1.26. What turns the accountant's orders into ε has become better since.
    orders = np.arange(2, 64)
    spent = compute_rdp(q=0.01, noise_multiplier=4, steps=10_000, orders=orders)
    assert min(spent + math.log(1e5) / (orders - 1)) == pytest.approx(1.26, abs=0.005)
    assert 3.3 < training_noise(1.26, 1e-5, 0.01, 10_000) < 4


def test_a_pull_comes_after_the_noise():
    """FedProx's term knows no image: with gradients cut to nothing, it is all that moves."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    images = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
    labels = torch.zeros(4, dtype=torch.int64)
    promise = Promise(training_epsilon=90.0, training_clip=1e-9, rounds=1)
    start = model[1].weight.detach().clone()
    settings = TrainingSettings("sgd", learning_rate=0.1, batch_size=4, local_epochs=2)
    add_term = proximal_term(model, 1.0, [torch.zeros(2, 4), torch.zeros(2)])
    train_privately(model, images, labels, settings, promise, Scripted(), add_term)
    assert torch.allclose(model[1].weight, start * 0.9**2, atol=1e-6)


def of_numbers(loss, clip):
    """Return the weight of ŷ = wx after one step from w = 0, all x being 1."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False))
    nn.init.zeros_(model[1].weight)
    settings = replace(SGD, loss=loss)
    promise = Promise(training_epsilon=1.0, training_clip=clip)
    labels = torch.tensor([1.0, 1.0, 1.0, -3.0])
    train_privately(model, white(4), labels, settings, promise, Scripted())
    return model[1].weight.item()


def test_a_loss_of_ones_is_taken_of_each_sample_by_itself(tmp_path):
    """What mixes a batch's samples would let one of them move another's gradient."""
    mixing = (
        "def mix(outputs, labels):\n    return ((outputs - labels).sum() / 4) ** 2 * len(labels)"
    )
    with own_modules(tmp_path, mixing=mixing):
        # By itself, each is ((w − y)/4)²: its gradient is −y/8, cut to 0.1 where it is longer.
        assert of_numbers("mixing:mix", clip=0.1) == pytest.approx((3 - 1) * 0.1 / 4, rel=1e-3)


@pytest.mark.parametrize(("count", "expected"), [(100, (8, 0.32)), (20, (2, 1.0))])
def test_a_round_has_as_many_steps_as_without_privacy(count, expected):
    assert steps_of(count, TrainingSettings(batch_size=32, local_epochs=2)) == expected
