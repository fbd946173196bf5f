"""A target that is a number: what is minimised, and how far off a model is."""

import math

import numpy as np
import pytest
import torch
from flwr.clientapp import ClientApp
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from torch import nn

from clients.client import Client
from clients.handlers import answer_training, as_metrics
from clients.settings import TrainingSettings
from clients.training.train import Errors, evaluate
from fl_core.data.scaling import Scaling
from fl_core.messages import protocol
from tests.local_messages import context, message


class Repeats(nn.Module):
    """Predicts a sample's first number."""

    def forward(self, x):
        return x[:, :1]


def errors_of(guesses, truths):
    samples = torch.tensor(guesses, dtype=torch.float32)[:, None]
    return evaluate(Repeats(), samples, torch.tensor(truths, dtype=torch.float32))


@pytest.mark.parametrize(("guesses", "r2"), [([0.1, 0.1, 0.1], 1), ([0.1, 0.1, 0.2], 0)])
def test_of_a_constant_number_r2_is_scikit_learns(guesses, r2):
    assert errors_of(guesses, [0.1] * 3).r2 == r2
    assert r2_score(np.zeros(3), np.float32(guesses) - np.float32(0.1)) == r2


@pytest.mark.parametrize("seed", range(3))
def test_errors_are_those_of_scikit_learn_in_any_order(seed):
    guesses, truths = np.random.default_rng(seed).normal(5, 3, (2, 9)).astype(np.float32)
    found = errors_of(guesses.tolist(), truths.tolist())
    assert found.rmse == pytest.approx(root_mean_squared_error(truths, guesses))
    assert found.mae == pytest.approx(mean_absolute_error(truths, guesses))
    assert found.r2 == pytest.approx(r2_score(truths, guesses))
    assert errors_of(guesses[::-1].tolist(), truths[::-1].tolist()) == pytest.approx(found)


def test_what_is_sent_of_errors_does_not_tell_the_clients_scale():
    """An RMSE in metres beside a loss in deviations would be that deviation."""
    scale = Scaling((0.0,), (1.0,), target_mean=5.0, target_deviation=4.0)
    found = Errors(loss=9.0, rmse=3.0, mae=2.0, r2=0.5)
    sent = as_metrics(found, scale, user_loss="")
    assert sent == {"loss": 144.0, "rmse": 12.0, "mae": 8.0, "r2": 0.5}
    assert math.sqrt(sent["loss"]) == sent["rmse"]
    assert "loss" not in as_metrics(found, scale, user_loss="my_package:loss")
    assert as_metrics(found, None, user_loss="my_package:loss")["loss"] == 9.0


class Site(Client):
    """Tests and validates a model that repeats its input on one sample: it is off by 3."""

    settings = TrainingSettings()

    def model(self):
        return Repeats()

    def test_data(self):
        return torch.tensor([[5.0]]), torch.tensor([2.0])

    validation_data = test_data

    def scaling(self):
        return Scaling((0.0,), (1.0,), target_mean=5.0, target_deviation=4.0)

    def training_settings(self):
        return self.settings


class SiteWithLoss(Site):
    settings = TrainingSettings(loss="torch.nn.functional:l1_loss")


@pytest.mark.parametrize(("site", "losses"), [(Site, [144.0]), (SiteWithLoss, [])])
def test_nor_does_what_is_sent_of_validation_samples(site, losses):
    app = ClientApp()
    answer_training(app, site)
    asked = message(Repeats(), kind=protocol.EVALUATE, candidate="single", seed=0)
    content = app(asked, context()).content
    sent = content[protocol.VALIDATION]
    assert sent[protocol.SCORE] == 12.0
    assert [sent[name] for name in sent if name == protocol.LOSS] == losses
    assert losses == [one for name, one in content[protocol.METRICS].items() if name == "loss"]
