import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from torch import nn

from clients.training.paired_comparison import compare_candidate
from clients.training.train import each_score, evaluate


def context():
    return Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})


def right(*samples):
    return np.array(samples, np.uint8)


def test_models_are_compared_sample_by_sample_with_all_before_them():
    client = context()
    first = compare_candidate(client, "local", [0, 0], right(1, 1, 0, 0), 0.7)
    assert dict(first) == {"num-examples": 4, "score": 0.5, "loss": 0.7}
    second = compare_candidate(client, "single", [0, 0], right(1, 0, 1, 1), 0.5)
    assert second["local"] == [2.0, 1.0]
    third = compare_candidate(client, "a+b+c", [0, 0], right(0, 0, 0, 0), 0.5)
    assert (third["local"], third["single"]) == ([0.0, 2.0], [0.0, 3.0])


def test_other_seeds_folds_and_samples_are_not_compared():
    client = context()
    compare_candidate(client, "local", [0, 0], right(1, 0), 1.0)
    assert "local" not in compare_candidate(client, "single", [1, 0], right(1, 1), 1.0)
    assert "single" not in compare_candidate(client, "ditto", [1, 0], right(1, 1, 1), 1.0)
    assert "single" not in compare_candidate(client, "x", [1, 1], right(1, 1), 1.0)  # another fold


def test_of_numbers_the_mean_and_the_variance_of_differences_are_sent():
    client = context()
    compare_candidate(client, "local", [0, 0], np.array([3, 2, 1], np.float32), 1.0)
    found = compare_candidate(client, "single", [0, 0], np.array([1, 2, 2], np.float32), 1.0)
    assert found["score"] == pytest.approx(5 / 3)
    assert found["local"] == pytest.approx([1 / 3, 7 / 3])  # of 2, 0 and −1
    one = context()
    compare_candidate(one, "local", [0, 0], np.array([3], np.float32), 1.0)
    assert compare_candidate(one, "x", [0, 0], np.array([1], np.float32), 1.0)["local"] == [
        2.0,
        0.0,
    ]


def test_each_score_says_which_samples_a_model_is_right_about():
    model = nn.Flatten()
    images = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    scores, loss = each_score(model, images, torch.tensor([0, 1, 1]))
    assert loss == evaluate(model, images, torch.tensor([0, 1, 1])).loss
    assert scores.dtype == np.uint8
    assert scores.tolist() == [1, 1, 0]
    off, _ = each_score(model, torch.tensor([[1.0], [2.5]]), torch.tensor([3.0, 2.0]))
    assert off.dtype == np.float32
    assert off.tolist() == [2.0, 0.5]
