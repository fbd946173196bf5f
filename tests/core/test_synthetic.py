import numpy as np
import pytest
import torch

from fl_core.data import synthetic as module
from fl_core.data.synthetic import make_synthetic, smooth_fields
from fl_core.partitions.federation import simulate_federation
from fl_core.partitions.settings import FederationSettings


@pytest.fixture
def without_noise(monkeypatch):
    for name in ("_SMOOTH_NOISE", "_WHITE_NOISE"):
        monkeypatch.setattr(module, name, 0.0)
    for name in ("TRAIN_IMAGES", "TEST_IMAGES"):
        monkeypatch.setattr(module, name, 40)


def prototypes(heterogeneity, seed=0):
    """Return what the images of each of two tasks show, shape (2, 10, 28, 28)."""
    data = make_synthetic(2, heterogeneity, seed)
    assert torch.equal(data.train_samples, data.test_samples)
    shown = data.train_samples.reshape(2, 10, 2, 28, 28)
    assert torch.equal(shown[:, :, 0], shown[:, :, 1])
    return (shown[:, :, 0].double().numpy() - 127.5) / 30


def test_fields_have_a_mean_square_of_one_and_are_smooth():
    fields = smooth_fields(np.random.default_rng(0), 50)
    assert fields.shape == (50, 28, 28)
    assert np.allclose((fields**2).mean(axis=(1, 2)), 1)
    # White noise through a Gaussian of width s has correlation exp(-d²/4s²) at distance d; s is 4.
    for distance, expected in [(1, 0.984), (4, 0.779)]:
        product = fields * np.roll(fields, distance, axis=1)
        assert product.mean() == pytest.approx(expected, abs=0.03)


def test_by_hand_sixty_percent_are_four_fifths_common_and_three_fifths_another(without_noise):
    common, mixed, another = (prototypes(h) for h in (0, 0.6, 1))
    expected = np.clip(0.8 * common + 0.6 * another, -127.5 / 30, 127.5 / 30)
    assert np.abs(mixed - expected).max() < 1.3 / 30  # each is rounded to a grey value


def test_at_the_ends_tasks_are_the_same_or_unrelated(without_noise):
    same, unrelated = ([prototypes(h, seed) for seed in range(20)] for h in (0, 1))
    assert all(np.array_equal(*tasks) for tasks in same)
    assert abs(np.mean([np.mean(a * b) for a, b in unrelated])) < 0.1


def test_each_class_of_each_task_has_as_many_images():
    data = make_synthetic(3, 0.5, seed=0)
    assert data.sample_shape == (1, 28, 28)
    assert np.bincount(data.train_groups).tolist() == [134] * 30  # 4,000 / 30, rounded up
    assert np.bincount(data.test_groups).tolist() == [67] * 30
    assert torch.equal(data.train_labels, data.train_groups % 10)
    assert torch.equal(data.test_labels, data.test_groups % 10)
    assert data.group_names[23] == "3 in task 2"


def settings(**options):
    plain = {"dataset": "synthetic", "num_clients": 6, "num_tasks": 3, "seed": 0, "minority": 0.0}
    return FederationSettings(**plain | options)


def test_a_task_has_all_classes_and_other_images():
    made = simulate_federation(settings())
    assert made.partition.tasks == tuple(tuple(range(t, t + 10)) for t in (0, 10, 20))
    for client, task in enumerate(made.partition.client_tasks):
        another = made.dataset.train_groups[torch.from_numpy(made.partition.train[client])]
        assert set((another // 10).tolist()) == {task}
        assert len(made.test_data(client)[1]) == 670
    assert sum(map(len, made.partition.train)) == 30 * 134


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "0,1|2,3"}, 'tasks is "0,1.*dataset is "synthetic".*leave tasks empty'),
        ({"shift": "concept"}, "synthetic has tasks that are no label"),
        ({"noise": "class-dependent"}, "all tasks have the same labels: set noise to none"),
    ],
)
def test_what_does_not_go_with_synthetic_data(options, message):
    with pytest.raises(ValueError, match=message):
        simulate_federation(settings(**options))
