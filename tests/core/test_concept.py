import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fl_core.data.dataset import Dataset
from fl_core.partitions.concept import permutations, shift_concept


def toy(per_class=6):
    """Return images of three classes with the class as pixels, and two test images of each."""
    labels, test_labels = torch.arange(3).repeat(per_class), torch.arange(3).repeat(2)

    def images(of):
        return of.to(torch.uint8)[:, None, None, None].repeat(1, 1, 2, 2)

    return Dataset("toy", images(labels), labels, images(test_labels), test_labels, tuple("abc"))


@given(st.integers(2, 30), st.data())
def test_no_two_tasks_agree_on_any_class_and_the_first_leaves_labels_alone(num_classes, data):
    num_tasks = data.draw(st.integers(1, num_classes))
    found = permutations(num_classes, num_tasks, np.random.default_rng(data.draw(st.integers(0))))
    assert found.dtype == np.int64
    assert found[0].tolist() == list(range(num_classes))
    for label_of in found:
        assert sorted(label_of) == list(range(num_classes))
    for names_of_a_class in found.T:
        assert len(set(names_of_a_class.tolist())) == num_tasks


def test_more_tasks_than_classes_must_agree_somewhere():
    with pytest.raises(ValueError, match=r"num-tasks is 4, but shift is .* 3 classes.* 1 to 3"):
        permutations(3, 4, np.random.default_rng(0))


def test_by_hand_two_classes_are_exchanged():
    assert permutations(2, 2, np.random.default_rng(5)).tolist() == [[0, 1], [1, 0]]


def test_images_are_split_evenly_and_labels_are_what_the_task_calls_them():
    base = toy()
    data = shift_concept(base, 3, seed=1)
    tasks, classes = data.train_groups // 3, data.train_groups % 3
    assert torch.equal(data.train_samples, base.train_samples)
    assert torch.equal(classes, base.train_labels)
    assert np.bincount(data.train_groups.numpy()).tolist() == [2] * 9  # 6 images / 3 tasks
    assert torch.equal(data.train_labels[tasks == 0], classes[tasks == 0])
    for group in range(9):
        called = data.train_labels[data.train_groups == group].unique()
        assert len(called) == 1
        assert torch.equal(called, data.test_labels[data.test_groups == group].unique())
        assert data.group_names[group] == f"{'abc'[group % 3]} as {'abc'[called]}"
    assert data.num_classes == 3


def test_each_task_is_tested_on_all_test_images():
    base = toy()
    data = shift_concept(base, 2, seed=1)
    assert torch.equal(data.test_samples, base.test_samples.repeat(2, 1, 1, 1))
    assert data.test_groups.tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
    assert (data.test_labels[:6] != data.test_labels[6:]).all()
