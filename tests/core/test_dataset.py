"""What a data set must be, so that nothing trains on what cannot be meant."""

import pytest
import torch

from fl_core.data.dataset import Dataset
from fl_core.data.samples import GivenPartition

X, Y, NAMES = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), ("a", "b")


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ((2, 1), (2, 2), "d: it has 4 training samples, but its clients have 3 in all and 1 at"),
        ((2, 3), (2, 2), "it has 4 training samples, but its clients have 5 in all and 2 at"),
        ((2, 2), (4, 0), "it has 4 test samples, but its clients have 4 in all and 0 at"),
    ],
)
def test_each_sample_has_a_client_and_each_client_samples(train, test, said):
    with pytest.raises(ValueError, match=said):
        Dataset("d", X, Y, X, Y, NAMES, given_partition=GivenPartition(train, test))
    assert Dataset(
        "d", X, Y, X, Y, NAMES, given_partition=GivenPartition((1, 3), (2, 2))
    ).given_partition.train == (1, 3)


def test_a_class_name_that_is_no_text_is_refused():
    images, labels = torch.zeros((2, 3)), torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"the class 'b\\ud800' is not Unicode text"):
        Dataset("x", images, labels, images, labels, ("a", "b\ud800"))
