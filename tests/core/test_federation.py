from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fl_core.data.dataset import Dataset
from fl_core.data.datasets import rotate_images
from fl_core.partitions import federation as module
from fl_core.partitions.federation import simulate_federation
from fl_core.partitions.partition import Partition, draw_local_test
from fl_core.partitions.settings import FederationSettings
from fl_core.partitions.tasks import ROTATIONS

SETTINGS = FederationSettings(
    dataset="mnist-5k",
    data_dir="",
    num_clients=10,
    num_tasks=2,
    tasks="",
    partition="equal",
    dirichlet_alpha=2.0,
    minority=0.0,
    min_samples=1,
    noise="none",
    noise_rate=0.25,
    seed=0,
)


def toy(per_label=24):
    """Return ten labels' images of 2×2 with their index as the first pixel."""
    labels = torch.arange(10).repeat(per_label)
    images = torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(len(labels))
    test = torch.arange(10).repeat(3)
    names = tuple("0123456789")
    return Dataset("toy", images, labels, torch.zeros(30, 1, 2, 2).byte(), test, names)


@pytest.fixture(autouse=True)
def toy_data(monkeypatch):
    """Read no files: the federation's arithmetic is the same on 240 images."""
    simulate_federation.cache_clear()
    sets = {"mnist-5k": toy(), "rotated-mnist": rotate_images(toy(), "rotated-mnist")}
    monkeypatch.setattr(module, "load_dataset", lambda name, data_dir, **how: sets[name])
    yield
    simulate_federation.cache_clear()


def federation(**options):
    return simulate_federation(replace(SETTINGS, **options))


def same_data(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# What clients are tested on


def test_by_hand_a_client_is_tested_on_its_mix_of_classes():
    # Image i has label i % 10, and there are three test images of each label. The client has 6, 4
    # and 2 images of labels 0, 1 and 2: label 0 runs out at 3, half of what it trains on.
    train = np.concatenate([np.arange(label, 10 * n, 10) for label, n in ((0, 6), (1, 4), (2, 2))])
    all_of_task = np.flatnonzero(np.arange(30) % 10 < 3)
    partition = Partition(((0, 1, 2),), np.zeros(1, np.int64), (train,), (all_of_task,))
    groups = toy().train_groups.numpy(), toy().test_groups.numpy()
    drawn = draw_local_test(*groups, partition.train, seed=0, client=0)
    assert np.bincount(drawn % 10).tolist() == [3, 2, 1]
    assert len(set(drawn.tolist())) == 6
    others = [draw_local_test(*groups, partition.train, seed, 0).tolist() for seed in range(9)]
    few = draw_local_test(*groups, (np.array([0, 1]),), seed=0, client=0)  # more than it trains on
    assert np.bincount(few % 10).tolist() == [3, 3]
    assert others[0] == drawn.tolist()
    assert len(set(map(tuple, others))) > 1


@pytest.mark.parametrize("dataset", ["mnist-5k", "rotated-mnist"])
def test_local_tests_have_the_mix_of_the_training_images(dataset):
    options = {"dataset": dataset, "minority": 0.2, "client_test": "own", "partition": "label"}
    local = federation(**options)
    data, held, there = local.dataset, local.dataset.train_groups, local.dataset.test_groups
    for c, (train, test) in enumerate(
        zip(local.partition.train, local.partition.test, strict=True)
    ):
        expected, found, available = (
            torch.bincount(groups, minlength=int(held.max()) + 1).numpy()
            for groups in (held[train], there[test], there)
        )
        share = (available[expected > 0] / expected[expected > 0]).min()
        assert np.abs(found - share * expected).max() <= 0.5 + 1e-9
        assert (found <= available).all()
        assert (found == available).any()
        assert same_data(local.test_data(c), (data.test_samples[test], data.test_labels[test]))


def test_local_tests_change_no_other_draw_and_follow_the_data():
    options = {"minority": 0.2, "drift_clients": 2, "drift_round": 3}
    task, local = (federation(**options, client_test=kind) for kind in ("task", "own"))
    noisy = federation(**options, client_test="own", noise="class-independent")
    for c, source in enumerate(local.after_drift):
        assert same_data(local.training_data(c), task.training_data(c))
        assert same_data(local.test_data(c), noisy.test_data(c))  # true labels count
        assert same_data(local.test_data(c, 3), local.test_data(source))
        assert set(task.partition.test[c]) > set(local.partition.test[c]) - _of_minority(local, c)


def both_tests(made, client, server_round=0):
    """Return what `test_data` and the other test have, each as a sorted list of images' bytes."""
    images, _ = made.test_data(client, server_round)
    shared, more, _ = made.other_test_data(client, server_round)
    other = [*images[shared], *more]
    return [sorted(one.numpy().tobytes() for one in them) for them in (images, other)]


def test_the_other_test_is_what_the_other_client_test_has_and_follows_the_data():
    options = {"minority": 0.2, "drift_clients": 2, "drift_round": 3}
    task, local = (federation(**options, client_test=kind) for kind in ("task", "own"))
    assert (task.other_test, local.other_test) == ("own", "task")
    for client in range(task.partition.num_clients):
        for server_round in (0, 3):
            first, other = both_tests(task, client, server_round)
            assert both_tests(local, client, server_round) == [other, first]
            assert len(other) not in (0, len(first))
    shared, images, labels = task.other_test_data(0)
    assert len(shared)
    assert len(images) == len(labels) > 0
    assert not {*labels.tolist()} & {*task.partition.tasks[task.partition.client_tasks[0]]}
    held = task.after_drift[task.drifters[0]]
    assert both_tests(task, task.drifters[0], 3) == both_tests(task, held)


def test_a_client_with_a_class_without_test_samples_has_no_other_test():
    made = federation()
    gone = replace(made, other_indices=lambda client: np.empty(0, np.int64))
    assert gone.other_test_data(0) is None


def _of_minority(made, client):
    unintended = made.partition.unintended(client)
    labels = made.dataset.test_labels.numpy()
    return {i for i in made.partition.test[client].tolist() if labels[i] in unintended}


# Drift


@pytest.mark.parametrize(
    ("count", "num_tasks"), [(2, 2), (4, 2), (10, 2), (2, 3), (3, 3), (5, 3), (7, 5), (10, 5)]
)
def test_drifting_clients_get_the_data_of_another_task(count, num_tasks):
    after = federation(
        num_tasks=num_tasks, drift_clients=count, drift_round=3, noise="class-dependent"
    )
    before = federation(num_tasks=num_tasks, noise="class-dependent")
    drifters = after.drifters
    assert len(drifters) == count
    assert sorted(after.after_drift) == list(range(10))
    tasks = before.partition.client_tasks
    for r in (0, 1, 2):
        assert np.array_equal(after.tasks_at(r), tasks)
        assert all(same_data(after.training_data(c, r), before.training_data(c)) for c in range(10))
    for r in (3, 4):
        assert np.flatnonzero(after.tasks_at(r) != tasks).tolist() == list(drifters)
        for c, source in enumerate(after.after_drift):
            assert (c == source) == (c not in drifters)
            assert same_data(after.training_data(c, r), before.training_data(source))
            assert same_data(after.test_data(c, r), before.test_data(source))
            assert after.tasks_at(r)[c] == tasks[source]
    spread = Counter(tasks[list(drifters)].tolist())
    assert max(spread.values()) - min(spread[t] for t in range(num_tasks)) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drift_clients": 3}, r"drift-clients is 3, but 2 of them have task [01] and only 1"),
        ({"drift_clients": 1}, r"drift-clients is 1, but 1 of them"),
        ({"drift_clients": 2, "num_tasks": 1}, r"2 of them have task 0 and only 0 .*more tasks"),
        ({"drift_clients": 11}, "drift-clients is 11, but of 10 clients only 10"),
        ({"drift_clients": 6, "newcomers": 5, "newcomer_round": 1}, "only 5 are there from"),
        ({"newcomers": 10, "newcomer_round": 2}, "newcomers is 10, .* choose at most 9"),
        ({"malicious": 1.0}, "malicious is 1.0, but of 10 clients at least one must be honest"),
        ({"malicious": 0.96}, "malicious is 0.96, but of 10 clients"),
        ({"malicious": 0.2, "num_clients": 1, "num_tasks": 1}, "0.2, but of 1 clients .* attack"),
        ({"malicious": -0.1}, "malicious is -0.1"),
        ({"malicious": float("nan")}, "malicious is nan"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        federation(**{"drift_round": 1, **options})


# Newcomers and malicious clients


@pytest.mark.parametrize("num_tasks", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 3, 5, 6, 9])
@pytest.mark.parametrize("seed", [0, 1])
def test_newcomers_and_malicious_clients_are_spread_and_spare_every_task_one(
    num_tasks, count, seed
):
    made = federation(
        num_tasks=num_tasks, newcomers=count, newcomer_round=2, malicious=count / 10, seed=seed
    )
    sizes = np.bincount(made.partition.client_tasks)
    for chosen in (made.newcomers, made.malicious):
        assert len(chosen) == count
        assert list(chosen) == sorted(set(chosen))
        taken = np.bincount(made.partition.client_tasks[list(chosen)], minlength=num_tasks)
        assert taken.max() - taken.min() <= 1 or (sizes - taken).min() >= 1
        assert np.count_nonzero(sizes > taken) == min(num_tasks, 10 - count)


@pytest.mark.parametrize("seed", range(8))
def test_the_only_client_of_a_task_is_drawn_last(seed):
    assert 0 not in module._draw_clients(np.array([0, 1, 1, 1, 1, 1]), 4, seed, 1)


def test_the_share_is_rounded():
    assert len(federation(malicious=0.24).malicious) == 2
    assert len(federation(malicious=0.26).malicious) == 3
    with pytest.raises(ValueError, match=r"malicious is 0\.04, less than one of 10"):
        federation(malicious=0.04)


def test_no_draw_depends_on_another():
    plain = federation(drift_clients=4, drift_round=2)
    full = federation(
        drift_clients=4,
        drift_round=7,
        malicious=0.3,
        noise="class-independent",
        noise_rate=0.5,
        minority=0.1,
    )
    late = federation(newcomers=3, newcomer_round=1)
    assert plain.drifters == full.drifters
    assert full.malicious == federation(malicious=0.3).malicious
    assert federation(newcomers=3, newcomer_round=9, malicious=0.4).newcomers == late.newcomers
    base = federation()
    for made in (plain, late):
        for c in range(10):
            assert np.array_equal(made.partition.train[c], base.partition.train[c])
    assert late.newcomers != federation(malicious=0.3).malicious


# Groups


def test_tasks_are_rotations_and_labels_stay_digits():
    made = federation(dataset="rotated-mnist", num_tasks=4, num_clients=8)
    assert made.partition.tasks == ROTATIONS
    for c, task in enumerate(made.partition.client_tasks):
        assert set((made.partition.train[c] // 240).tolist()) == {task}
        assert len(made.partition.train[c]) == 120
        assert set((made.partition.test[c] // 30).tolist()) == {task}
        images, labels = made.training_data(c)
        assert images.shape == (120, 1, 2, 2)
        assert labels.max() <= 9
        assert set(made.test_data(c)[1].tolist()) == set(range(10))
    counts = made.label_counts(noisy=False)
    assert counts.shape == (8, 10)
    assert counts.sum() == 960


# Concept shift


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "0,1|2,3"}, 'tasks is "0,1.*leave tasks empty'),
        ({"dataset": "rotated-mnist"}, "rotated-mnist has tasks that are no label"),
        ({"noise": "class-independent"}, "all tasks have the same labels: set noise to none"),
        ({"num_tasks": 11, "num_clients": 11}, "num-tasks is 11, .*choose 1 to 10"),
    ],
)
def test_what_does_not_go_with_concept_shift(options, message):
    with pytest.raises(ValueError, match=message):
        federation(shift="concept", **options)
