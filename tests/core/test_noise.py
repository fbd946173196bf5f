import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_core.partitions.noise import add_label_noise, label_noise
from fl_core.partitions.partition import Partition
from fl_core.partitions.settings import NOISES, FederationSettings

TASK, OTHERS = (0, 1, 2), (3, 4, 5, 6)


def noisy(labels, kind, rate, seed=0):
    return add_label_noise(
        np.asarray(labels), TASK, OTHERS, kind, rate, np.random.default_rng(seed)
    )


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=200),
    st.sampled_from(["none", "class-independent", "class-dependent"]),
    st.floats(0, 0.999),
    st.integers(0, 1000),
)
def test_exactly_the_rate_changes_to_one_label_of_another_task(labels, kind, rate, seed):
    labels = np.array(labels)
    before = labels.copy()
    after = noisy(labels, kind, rate, seed)
    assert np.array_equal(labels, before)
    changed = after != labels
    targets = np.unique(after[changed])
    assert len(targets) <= 1
    assert set(targets.tolist()) <= set(OTHERS)
    expected = 0 if kind == "none" else round(rate * len(labels))
    # All that carry another label than the wrong one can change, and no more.
    possible = [np.count_nonzero(labels != wrong) for wrong in OTHERS]
    assert np.count_nonzero(changed) in {min(expected, p) for p in possible}
    if expected <= min(possible):
        assert np.count_nonzero(changed) == expected


def test_class_dependent_empties_one_label_before_the_next():
    labels = np.repeat([0, 1, 2], [40, 40, 40])
    changed_labels = labels[noisy(labels, "class-dependent", 0.5) != labels]
    counts = np.sort(np.bincount(changed_labels, minlength=3))
    assert counts.tolist() == [0, 20, 40]


def test_class_dependent_takes_strangers_last():
    labels = np.repeat([0, 1, 2, 6], [10, 10, 10, 70])
    after = noisy(labels, "class-dependent", 0.3, seed=1)
    assert not np.isin(after, TASK).any()


@pytest.mark.parametrize("seed", range(8))
def test_a_label_that_is_the_wrong_one_already_does_not_count_as_changed(seed):
    rng, labels = np.random.default_rng(seed), np.array([3, 3, 3, 0])
    assert add_label_noise(labels, (0,), (3,), "class-independent", 0.25, rng).tolist() == [3] * 4


@pytest.mark.parametrize("kind", NOISES)
def test_one_task_alone_has_no_wrong_labels(kind):
    labels = np.array([0, 1, 2])
    after = add_label_noise(labels, TASK, (), kind, 0.5, np.random.default_rng(0))
    assert np.array_equal(after, labels)


def wrong_labels(kind, labels=(0, 0, 1, 1), rate=0.5):
    """Return each client's wrong labels and how many of each label became it; two tasks of ten."""
    tasks = np.arange(20) % 2
    partition = Partition(((0, 1), (2, 3, 4)), tasks, (np.arange(4),) * 20, (np.arange(4),) * 20)
    found = []
    made = FederationSettings(dataset="x", num_clients=20, seed=0, noise=kind, noise_rate=rate)
    for client in range(20):
        true = np.array(labels) + 2 * tasks[client]
        after = label_noise(true, partition, client, made)
        (wrong,) = set(after[after != true].tolist())
        found.append((wrong, sorted(np.bincount(true[after != true] - 2 * tasks[client]).tolist())))
    return found[::2], found[1::2]


@pytest.mark.parametrize("kind", ["class-independent", "class-dependent"])
def test_a_noise_per_task_has_one_wrong_label_for_all_of_its_clients(kind):
    for of_task, others in zip(wrong_labels(f"{kind}-per-task"), [{2, 3, 4}, {0, 1}], strict=True):
        assert len({wrong for wrong, _ in of_task}) == 1
        assert {wrong for wrong, _ in of_task} < others
    for of_task, others in zip(wrong_labels(kind), [{2, 3, 4}, {0, 1}], strict=True):
        assert {wrong for wrong, _ in of_task} == others
