import numpy as np
import pytest
import torch

from clients.attacks import corrupt_update, flip_labels

RECEIVED = {
    "weight": np.array([[1.0, 2.0]], np.float32),
    "half": np.array([1.0], np.float16),
    "count": np.array(3, np.int64),
    "norm.running_var": np.array([2.0, 1.0], np.float32),
}
TRAINED = {
    "weight": np.array([[1.5, 0.0]], np.float32),
    "half": np.array([1.25], np.float16),
    "count": np.array(8, np.int64),
    "norm.running_var": np.array([1.0, 1.0], np.float32),
}


@pytest.mark.parametrize(
    ("attack", "weight", "half"),
    [
        ("none", [[1.5, 0.0]], [1.25]),
        ("sign-flip", [[0.5, 4.0]], [0.75]),
        ("scaled-update", [[6.0, -18.0]], [3.5]),
        ("zero-model", [[0.0, 0.0]], [0.0]),
        ("label-flip", [[1.5, 0.0]], [1.25]),
        ("random-signature", [[1.5, 0.0]], [1.25]),
    ],
)
def test_updates_by_hand(attack, weight, half):
    before = {name: array.copy() for name, array in TRAINED.items()}
    sent = corrupt_update(attack, RECEIVED, TRAINED, 10.0)
    assert list(sent) == list(TRAINED)
    assert sent["weight"].tolist() == weight
    assert sent["half"].tolist() == half
    assert sent["count"] == 8  # a counter is no direction
    assert sent["norm.running_var"].min() >= 0  # 2 + 10·(1 − 2) would be refused
    assert [a.dtype for a in sent.values()] == [a.dtype for a in TRAINED.values()]
    assert [a.shape for a in sent.values()] == [a.shape for a in TRAINED.values()]
    for name, array in before.items():
        assert np.array_equal(TRAINED[name], array)


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_labels_by_hand(kind):
    labels = kind([0, 1, 9, 4])
    flipped = flip_labels(labels, 10)
    assert type(flipped) is type(labels)
    assert flipped.dtype == labels.dtype
    assert flipped.tolist() == [9, 8, 0, 5]
    assert labels.tolist() == [0, 1, 9, 4]
    assert flip_labels(flipped, 10).tolist() == labels.tolist()
    assert len(flip_labels(labels[:0], 10)) == 0
