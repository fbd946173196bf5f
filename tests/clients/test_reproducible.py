"""User-defined models that draw while they train: equal in any process."""

import pytest
import torch
from torch import nn

from clients.settings import TrainingSettings
from clients.training.train import train
from fl_core.models.build import seeded


def trained(before: int) -> torch.Tensor:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    torch.manual_seed(before)  # what another client has left
    images = torch.arange(64, dtype=torch.uint8).reshape(4, 1, 4, 4)
    order = torch.Generator().manual_seed(1)
    with seeded(7, torch.device("cpu")):
        train(model, images, torch.tensor([0, 1, 0, 1]), TrainingSettings(), order)
    return model[1].weight.detach()


@pytest.fixture(autouse=True)
def random_numbers_as_before():
    with torch.random.fork_rng():
        yield


def test_dropout_depends_on_the_clients_seed_alone():
    assert torch.equal(trained(1), trained(2))


def test_the_global_generator_goes_on_where_it_was():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with seeded(7, torch.device("cpu")):
        torch.rand(3)
    assert torch.equal(torch.rand(1), expected)
